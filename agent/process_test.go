// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/allod/allod/ipam/datastore/filelock"
)

// agent is a process of the agent; testscript.Main put it on the PATH.
func agent(t *testing.T, stdin string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "allod-agent", args...)
	cmd.Stdin = strings.NewReader(stdin)
	return cmd
}

func reservation(name string, octet int) string {
	return fmt.Sprintf("---\napiVersion: ipam.allod.io/v1alpha1\nkind: IPReservation\nmetadata: {name: %s}\nspec: {reservedCIDRs: [10.64.%d.0/24]}\n", name, octet)
}

const onePool = "---\napiVersion: ipam.allod.io/v1alpha1\nkind: IPPool\nmetadata: {name: default-v4}\nspec: {cidr: 10.64.0.0/16}\n"

// Processes that apply at once, on a store that is not there yet, lose nothing
// of each other (INV-7).
func TestAppliesAtOnce(t *testing.T) {
	const n = 12
	store := filepath.Join(t.TempDir(), "new", "ipam.db")
	var g errgroup.Group
	for i := range n {
		cmd := agent(t, onePool+reservation(fmt.Sprintf("r%d", i), i), "apply", "-f", "-", "--datastore-path", store)
		g.Go(func() error {
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, want := reservations(t, store), n; got != want {
		t.Errorf("%d reservations, want %d", got, want)
	}
}

// reservations returns how many reservations check sees in a store in which
// nothing is wrong.
func reservations(t *testing.T, store string) int {
	t.Helper()
	out, err := agent(t, "", "check", "--datastore-path", store).CombinedOutput()
	if err != nil {
		t.Fatalf("check: %v\n%s", err, out)
	}
	var n int
	_, rest, _ := bytes.Cut(out, []byte("pool, "))
	if _, err := fmt.Sscanf(string(rest), "%d reservation", &n); err != nil {
		t.Fatalf("check printed %q: %v", out, err)
	}
	return n
}

// An apply that is killed has changed everything or nothing, and what it leaves
// behind is a store that works.
func TestApplyKilled(t *testing.T) {
	const batch, rounds = 100, 12
	store := filepath.Join(t.TempDir(), "ipam.db")
	apply := func(round int) *exec.Cmd {
		var manifests strings.Builder
		manifests.WriteString(onePool)
		for i := range batch {
			manifests.WriteString(reservation(fmt.Sprintf("r%d-%d", round, i), i))
		}
		return agent(t, manifests.String(), "apply", "-f", "-", "--datastore-path", store)
	}
	start := time.Now()
	if out, err := apply(0).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	whole := time.Since(start) // only places the kills
	files := names(t, filepath.Dir(store))

	want, killed := batch, 0
	for round := 1; round <= rounds; round++ {
		cmd := apply(round)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The kill moves through the run and past its end, round by round.
		kill := time.AfterFunc(whole*3/2*time.Duration(round)/rounds, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		kill.Stop()
		got := reservations(t, store)
		switch {
		case err == nil && got != want+batch:
			t.Fatalf("round %d succeeded: %d reservations, want %d", round, got, want+batch)
		case got != want && got != want+batch:
			t.Fatalf("round %d (%v): %d reservations, want %d or %d", round, err, got, want, want+batch)
		case err != nil:
			killed++
		}
		want = got
	}
	t.Logf("%d of %d killed, %d of %d batches stored", killed, rounds, want/batch-1, rounds)
	if killed == 0 {
		t.Error("no run was killed")
	}
	// One whole run clears away what a killed one left.
	if out, err := apply(rounds).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if diff := cmp.Diff(files, names(t, filepath.Dir(store))); diff != "" {
		t.Errorf("files left behind (-want +got):\n%s", diff)
	}
}

func names(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// An interrupt while another process holds the store ends the wait, and nothing
// has changed.
func TestApplyInterrupted(t *testing.T) {
	store := filepath.Join(t.TempDir(), "ipam.db")
	if out, err := agent(t, onePool, "apply", "-f", "-", "--datastore-path", store).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before := readFile(t, store)
	held, err := filelock.Acquire(t.Context(), store+".lock", true)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()

	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := agent(t, "", "apply", "-f", "-", "--datastore-path", store)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = pr, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = pr.Close()
	// More than a pipe holds: when it is written the agent reads, and by then its
	// signals are handled.
	padding := strings.Repeat("# padding\n", 30_000)
	if _, err := pw.WriteString(padding + reservation("late", 1)); err != nil {
		t.Fatal(err)
	}
	_ = pw.Close()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("%v, want exit code 1; stderr %q", err, &stderr)
	}
	if !strings.Contains(stderr.String(), "interrupt") {
		t.Errorf("stderr %q does not say what ended it", &stderr)
	}
	if !bytes.Equal(before, readFile(t, store)) {
		t.Error("the store has changed")
	}
}

// An interrupt ends an apply that waits for its manifest.
func TestApplyInterruptedAtStdin(t *testing.T) {
	store := filepath.Join(t.TempDir(), "ipam.db")
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pw.Close() }()
	cmd := agent(t, "", "apply", "-f", "-", "--datastore-path", store)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = pr, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = pr.Close()
	if _, err := pw.WriteString(strings.Repeat("# padding\n", 30_000)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("%v, want exit code 1; stderr %q", err, &stderr)
	}
	if _, err := os.Stat(store); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the store was created (%v)", err)
	}
}
