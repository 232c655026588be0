// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDemo: what `make demo` promises: success with a count from the store, a
// planted leftover found, and nothing left of an interrupted run.
func TestDemo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	demo := filepath.Join(dir, "demo")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", demo, "./test/demo")
	build.Dir = moduleRoot
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// The unprivileged case must be able to reach the program.
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}

	t.Run("succeeds", func(t *testing.T) {
		t.Parallel()
		run := startDemo(t, demo)
		lines := run.wait(0)
		if last := lines[len(lines)-1]; last != "0 allocated" {
			t.Errorf("the last line is %q", last)
		}
		if n := strings.Count(strings.Join(lines, "\n"), "answered in"); n != 12 {
			t.Errorf("%d pings were answered, want 12: 3 pods, 2 others each, 2 families", n)
		}
	})
	t.Run("finds a planted leftover", func(t *testing.T) {
		t.Parallel()
		run := startDemo(t, demo, "PLANT=1")
		lines := run.wait(1)
		if last := lines[len(lines)-1]; last != "2 allocated" {
			t.Errorf("the last line is %q", last)
		}
		for _, word := range []string{"2 addresses are left", "10.64.", "fd00:64::", "green"} {
			if !strings.Contains(run.stderr.String(), word) {
				t.Errorf("stderr does not say %q", word)
			}
		}
	})
	for _, step := range []string{"[2/8]", "[3/8]", "[5/8]", "[7/8]"} {
		t.Run("is interrupted at "+step, func(t *testing.T) {
			t.Parallel()
			run := startDemo(t, demo)
			run.until(step)
			if err := run.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			run.wait(130)
		})
	}
	t.Run("says what to do without root", func(t *testing.T) {
		t.Parallel()
		run := demoCommand(t, demo)
		run.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		run.start()
		run.wait(1)
		if !strings.Contains(run.stderr.String(), "sudo make demo") {
			t.Error("stderr does not say how to get root")
		}
	})
}

// demoRun is one run of the demonstration.
type demoRun struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Scanner
	stderr bytes.Buffer
	lines  []string
}

func demoCommand(t *testing.T, demo string, env ...string) *demoRun {
	t.Helper()
	r := &demoRun{t: t, cmd: exec.CommandContext(t.Context(), demo, "-bin", binDir, "-plugins", cniDir)}
	r.cmd.Env = env
	r.cmd.Stderr = &r.stderr
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.stdout = bufio.NewScanner(out)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the demo printed:\n%s\n%s", strings.Join(r.lines, "\n"), &r.stderr)
		}
	})
	return r
}

func (r *demoRun) start() {
	r.t.Helper()
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
}

func startDemo(t *testing.T, demo string, env ...string) *demoRun {
	t.Helper()
	r := demoCommand(t, demo, env...)
	r.start()
	return r
}

// until reads the output up to a line that starts with prefix.
func (r *demoRun) until(prefix string) {
	r.t.Helper()
	for r.stdout.Scan() {
		r.lines = append(r.lines, r.stdout.Text())
		if strings.HasPrefix(r.stdout.Text(), prefix) {
			return
		}
	}
	r.t.Fatalf("no line starts with %q", prefix)
}

// wait reads the rest, compares the exit code, and looks for what the run left:
// its workspace holds its namespaces and its store.
func (r *demoRun) wait(code int) []string {
	r.t.Helper()
	for r.stdout.Scan() {
		r.lines = append(r.lines, r.stdout.Text())
	}
	_ = r.cmd.Wait() // the exit code is compared
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		r.t.Errorf("exit %d, want %d", got, code)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(workspace.Dir), fmt.Sprintf("%d-*", r.cmd.Process.Pid)))
	if err != nil || len(left) > 0 {
		r.t.Errorf("the run left %v (%v)", left, err)
	}
	return r.lines
}
