// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The recordings in testdata are `go test -json` of one small package each.
func TestRead(t *testing.T) {
	const pkg = "example.org/rec/"
	tests := []struct {
		name    string
		want    Tally
		closing string
		verdict []string // parts of the error; none = the tier passes
		shown   []string
		hidden  string
	}{
		{
			name: "good", want: Tally{Passed: 3, Subtests: 3, Packages: 1},
			closing: "3 passed, 0 failed", shown: []string{"ok    " + pkg + "good"}, hidden: "quiet",
		},
		{
			name: "bad", want: Tally{Passed: 1, Failed: 1, Subtests: 1, Packages: 1},
			closing: "1 passed, 1 failed", verdict: []string{"1 tests failed"},
			shown: []string{"want 1, have 2", "--- FAIL: TestBad", "FAIL  " + pkg + "bad"}, hidden: "not shown",
		},
		{
			name: "broken", want: Tally{Broken: []string{pkg + "broken"}},
			closing: "0 passed, 1 failed", verdict: []string{"outside their tests: " + pkg + "broken", "no test ran"},
			shown: []string{"undefined: undefined", "[build failed]"},
		},
		{
			name: "exits", want: Tally{Broken: []string{pkg + "exits"}},
			closing: "0 passed, 1 failed", verdict: []string{"outside their tests", "no test ran"}, shown: []string{"no set-up"},
		},
		{
			name: "panics", want: Tally{Passed: 1, Failed: 2, Packages: 1}, // the other parallel test never got a verdict
			closing: "1 passed, 2 failed", verdict: []string{"2 tests failed"}, shown: []string{"panic: boom", "CONT  TestWaits"},
		},
		{
			name: "skips", want: Tally{Passed: 1, Skipped: 1, Subtests: 1, SkippedTests: []string{"TestSkipped", "TestSub/part"}, Packages: 1},
			closing: "1 passed, 0 failed, 2 skipped", verdict: []string{"skipped, which proves nothing: TestSkipped, TestSub/part"},
			shown: []string{"no root", "later"},
		},
		{name: "none", closing: "0 passed, 0 failed", verdict: []string{"no test ran"}, hidden: "none"},
		{name: "nothing", closing: "0 passed, 0 failed", verdict: []string{"no test ran"}, hidden: "good"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			recorded, err := os.ReadFile(filepath.Join("testdata", tt.name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			got, err := Read(bytes.NewReader(recorded), &out)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("tally (-want +got):\n%s", diff)
			}
			if got.String() != tt.closing {
				t.Errorf("closing line %q, want %q", got.String(), tt.closing)
			}
			checkVerdict(t, got.Verdict(nil), tt.verdict)
			for _, part := range tt.shown {
				if !strings.Contains(out.String(), part) {
					t.Errorf("output lacks %q:\n%s", part, out.String())
				}
			}
			if tt.hidden != "" && strings.Contains(out.String(), tt.hidden) {
				t.Errorf("output shows %q:\n%s", tt.hidden, out.String())
			}
		})
	}
}

func checkVerdict(t *testing.T, err error, parts []string) {
	t.Helper()
	if len(parts) == 0 {
		if err != nil {
			t.Errorf("verdict %q, want none", err)
		}
		return
	}
	if err == nil {
		t.Fatalf("the tier passed, want %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("verdict %q lacks %q", err, part)
		}
	}
}

// go test can fail although every test it reported passed.
func TestVerdictKeepsGoTestsFailure(t *testing.T) {
	killed := errors.New("signal: killed")
	if err := (Tally{Passed: 1}).Verdict(killed); !errors.Is(err, killed) {
		t.Errorf("verdict %v, want %v", err, killed)
	}
}

// A run that was cut: what had no verdict yet has failed.
func TestReadCut(t *testing.T) {
	recorded, err := os.ReadFile(filepath.Join("testdata", "good.json"))
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(recorded, []byte(`"Action":"run","Package":"example.org/rec/good","Test":"TestB"`))
	end := at + bytes.IndexByte(recorded[at:], '\n') + 1
	got, err := Read(bytes.NewReader(recorded[:end]), &strings.Builder{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Passed != 1 || got.Failed != 1 {
		t.Errorf("%d passed, %d failed, want TestA passed and TestB failed", got.Passed, got.Failed)
	}
}

func TestReadPassesOnWhatIsNoEvent(t *testing.T) {
	var out strings.Builder
	if _, err := Read(strings.NewReader("go: downloading x\n{\"Action\":\"start\",\"Package\":\"a\"}\n{\"Action\":\"pass\",\"Package\":\"a\"}"), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != "go: downloading x\n" {
		t.Errorf("output %q", out.String())
	}
}

func TestSummaryTable(t *testing.T) {
	lines := "verify\t-\t-\t-\t30\n" +
		summaryLine("unit", Tally{Passed: 7, SkippedTests: []string{"TestA/b"}, Broken: []string{"p"}}, 90*time.Second)
	var out strings.Builder
	if err := printTable(&out, lines); err != nil {
		t.Fatal(err)
	}
	want := `
    tier  passed  failed  skipped  minutes
  verify       -       -        -      0.5
    unit       7       1        1      1.5
   total       7       1        1      2.0
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"unit\t1\n", "unit\tx\t0\t0\t1\n", "unit\t1\t0\t0\t-\n"} {
		if err := printTable(&strings.Builder{}, bad); err == nil {
			t.Errorf("summary line %q was accepted", bad)
		}
	}
}

// What a test measured is shown although the test passes; other attributes are not.
func TestReadShowsFigures(t *testing.T) {
	events := `{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"attr","Package":"a","Test":"TestX","Key":"figures","Value":"3 of 4"}
{"Action":"attr","Package":"a","Test":"TestX","Key":"other","Value":"hidden"}
{"Action":"pass","Package":"a","Test":"TestX"}
{"Action":"pass","Package":"a"}
`
	var out strings.Builder
	if _, err := Read(strings.NewReader(events), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "TestX: 3 of 4\n") || strings.Contains(out.String(), "hidden") {
		t.Errorf("printed:\n%s", out.String())
	}
}
