// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Event is one line of `go test -json`.
type Event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output and build-fail
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string
	Key, Value  string // of attr, see testing.T.Attr
}

// figures is the attribute with which a test gives what it measured or counted;
// it is shown also when the test passes.
const figures = "figures"

// Tally is what a tier did. Top-level tests, examples and fuzz seeds are
// counted as tests; subtests only in Subtests.
type Tally struct {
	Passed, Failed, Skipped int
	Subtests                int
	SkippedTests            []string // subtests too
	Packages                int      // that ran at least one test
	Broken                  []string // packages that failed without a failed test: build, TestMain, a race after the last test
}

// Tests is the number of top-level tests that ran.
func (t Tally) Tests() int { return t.Passed + t.Failed + t.Skipped }

// String is the closing line of a tier. A package that failed on its own counts
// as one failure, so that the line never reads like success.
func (t Tally) String() string {
	s := fmt.Sprintf("%d passed, %d failed", t.Passed, t.Failed+len(t.Broken))
	if n := len(t.SkippedTests); n > 0 {
		s += fmt.Sprintf(", %d skipped", n)
	}
	return s
}

// Verdict says why the tier failed; nil if it did not. goErr is how go test ended.
func (t Tally) Verdict(goErr error) error {
	var errs []error
	if t.Failed > 0 {
		errs = append(errs, fmt.Errorf("%d tests failed", t.Failed))
	}
	if len(t.Broken) > 0 {
		errs = append(errs, fmt.Errorf("packages failed outside their tests: %s", strings.Join(t.Broken, ", ")))
	}
	if len(t.SkippedTests) > 0 {
		errs = append(errs, fmt.Errorf("tests were skipped, which proves nothing: %s", strings.Join(t.SkippedTests, ", ")))
	}
	if t.Tests() == 0 {
		errs = append(errs, errors.New("no test ran"))
	}
	if len(errs) == 0 {
		return goErr
	}
	return errors.Join(errs...)
}

// Read counts the events of one `go test -json` run and writes to out a line
// per package and everything that a failed or skipped test printed. Lines that
// are not JSON are passed on. The error is the reader's.
func Read(events io.Reader, out io.Writer) (Tally, error) {
	r := reader{out: out, packages: map[string]*packageRun{}}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e Event
			if json.Unmarshal(line, &e) == nil {
				r.add(e)
			} else {
				_, _ = out.Write(line)
			}
		}
		if err == io.EOF {
			r.close()
			return r.tally, nil
		}
		if err != nil {
			return r.tally, fmt.Errorf("read go test's events: %w", err)
		}
	}
}

// reader holds what the lines so far leave open.
type reader struct {
	out      io.Writer
	tally    Tally
	packages map[string]*packageRun
}

// packageRun is a package under test. A test is in open until its verdict;
// what a test printed is kept until then. The package itself is the test "".
type packageRun struct {
	open   []string
	output map[string]*strings.Builder
	ran    bool
	failed bool // a test of it
}

func (r *reader) add(e Event) {
	if e.Action == "build-output" {
		fmt.Fprint(r.out, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &packageRun{output: map[string]*strings.Builder{}}
		r.packages[e.Package] = p
	}
	switch e.Action {
	case "run":
		p.open = append(p.open, e.Test)
	case "attr":
		if e.Key == figures {
			fmt.Fprintf(r.out, "      %s: %s\n", e.Test, e.Value)
		}
	case "output":
		if p.output[e.Test] == nil {
			p.output[e.Test] = &strings.Builder{}
		}
		p.output[e.Test].WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(p, e)
		} else {
			r.endTest(p, e.Test, e.Action)
		}
	}
}

func (r *reader) endTest(p *packageRun, test, action string) {
	p.ran = true
	p.open = slices.DeleteFunc(p.open, func(t string) bool { return t == test })
	sub := strings.Contains(test, "/")
	switch {
	case sub:
		r.tally.Subtests++
	case action == "pass":
		r.tally.Passed++
	case action == "fail":
		r.tally.Failed++
	case action == "skip":
		r.tally.Skipped++
	}
	switch action {
	case "fail":
		p.failed = true
		r.print(p, test)
	case "skip":
		r.tally.SkippedTests = append(r.tally.SkippedTests, test)
		r.print(p, test)
	}
	delete(p.output, test)
}

// endPackage also ends the tests that a panic or a time-out left without a verdict.
func (r *reader) endPackage(p *packageRun, e Event) {
	for _, test := range slices.Clone(p.open) {
		r.endTest(p, test, "fail")
	}
	if p.ran {
		r.tally.Packages++
	}
	switch e.Action {
	case "fail":
		if !p.failed {
			r.tally.Broken = append(r.tally.Broken, e.Package)
		}
		r.print(p, "")
		fmt.Fprintf(r.out, "FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
	case "pass":
		if p.ran {
			fmt.Fprintf(r.out, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
		}
	}
	delete(r.packages, e.Package)
}

// close ends packages whose own verdict never came: go test was killed.
func (r *reader) close() {
	names := make([]string, 0, len(r.packages))
	for name := range r.packages {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		r.endPackage(r.packages[name], Event{Action: "fail", Package: name})
	}
}

func (r *reader) print(p *packageRun, test string) {
	if o := p.output[test]; o != nil {
		fmt.Fprint(r.out, o.String())
	}
}
