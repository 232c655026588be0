// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/test/fixture"
)

// many is how many processes work on one store at once.
const many = 200

// TestManyAtOnce (case R8): 200 ADDs of different containers started together on
// one bolt file, then 200 DELs. By the test's own record no address has two
// owners; nothing is left.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t, poolMaskManifest)
	conf := r.conf(object{"families": []string{"IPv4", "IPv6"}}, nil)
	var l ledger
	pods := make([]string, many)
	for i := range pods {
		pods[i] = fmt.Sprintf("web-%d", i)
	}
	adds := r.together("ADD", conf, pods, func(p string, a fixture.Answer) error {
		res, err := a.Result()
		l.add(p, res.Addrs())
		return err
	})
	if faults := l.faults(pods, 2); len(faults) > 0 {
		t.Errorf("by the test's own record: %q", faults)
	}
	if diff := cmp.Diff(l.held(), r.stored()); diff != "" {
		t.Errorf("what the plugins answered and what the store holds differ (-answered +stored):\n%s", diff)
	}
	r.counts(2*many, 0)
	r.clean()

	planted := ledger{lines: append(slices.Clone(l.lines), line{"thief", l.lines[0].addrs})}
	if len(planted.faults(pods, 2)) == 0 {
		t.Error("the record does not notice a planted duplicate")
	}

	dels := r.together("DEL", conf, pods, func(_ string, a fixture.Answer) error { return a.Err() })
	r.counts(0, 0)
	r.clean()
	t.Attr("figures", fmt.Sprintf("%d processes at once, %d addresses on one bolt file: ADD %s; DEL %s", many, 2*many, adds, dels))
}

// TestSameAddAtOnce (case R5): a runtime that lost patience asks again while the
// first ADD is still at work. All of them get the same addresses.
func TestSameAddAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, poolMaskManifest)
	conf := r.conf(object{"families": []string{"IPv4", "IPv6"}}, nil)
	var l ledger
	same := slices.Repeat([]string{"web-0"}, 8)
	r.together("ADD", conf, same, func(p string, a fixture.Answer) error {
		res, err := a.Result()
		l.add(p, res.Addrs())
		return err
	})
	if faults := l.faults([]string{"web-0"}, 2); len(faults) > 0 {
		t.Errorf("by the test's own record: %q", faults)
	}
	r.counts(2, 0)
	r.together("DEL", conf, same, func(_ string, a fixture.Answer) error { return a.Err() })
	r.counts(0, 0)
	r.clean()
}

// figures are the times of processes that were started together.
type figures struct {
	wall  time.Duration
	times []time.Duration // sorted
}

func (f figures) String() string {
	at := func(q int) time.Duration { return f.times[(len(f.times)-1)*q/100].Round(time.Millisecond) }
	return fmt.Sprintf("wall %v, p50 %v, p99 %v, max %v", f.wall.Round(time.Millisecond), at(50), at(99), at(100))
}

// together runs a verb for every pod, each in a process of its own, all started
// as fast as the kernel can, and hands each answer to took.
func (r *rig) together(verb string, conf []byte, pods []string, took func(string, fixture.Answer) error) figures {
	r.t.Helper()
	var wg sync.WaitGroup
	f := figures{times: make([]time.Duration, len(pods))}
	errs := make([]error, len(pods))
	gate := make(chan struct{})
	for i, p := range pods {
		wg.Go(func() {
			<-gate
			start := time.Now()
			a, err := r.plugin.Run(r.t.Context(), fixture.Call{Verb: verb, Sandbox: pod(p), Config: conf})
			f.times[i] = time.Since(start)
			if err == nil {
				err = took(p, a)
			}
			if err != nil {
				errs[i] = fmt.Errorf("%s %s: %w (stderr: %s)", verb, p, err, a.Stderr)
			}
		})
	}
	start := time.Now()
	close(gate)
	wg.Wait()
	f.wall = time.Since(start)
	slices.Sort(f.times)
	if err := errors.Join(errs...); err != nil {
		r.t.Error(err)
	}
	return f
}

// TestKilledAdds (case R5): ADDs are killed at random points of their life, four
// at a time on one store. Some are then retried and some are not; after DEL
// nothing is left and no block is damaged.
func TestKilledAdds(t *testing.T) {
	r := newRig(t, poolMaskManifest)
	conf := r.conf(object{"families": []string{"IPv4", "IPv6"}}, nil)
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("ALLOD_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatalf("ALLOD_SEED: %v", err)
		}
	}
	t.Logf("ALLOD_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	// How long an ADD takes, so that the kills fall within its life.
	start := time.Now()
	r.add(conf, pod("measure"))
	life := time.Since(start)
	r.ok("DEL", conf, pod("measure"))

	const rounds, width = 30, 4
	var l ledger
	killed, finished, retried := 0, 0, []string{}
	for round := range rounds {
		var wg sync.WaitGroup
		exits := make([]int, width)
		errs := make([]error, width)
		pods := make([]string, width)
		for i := range width {
			pods[i] = fmt.Sprintf("web-%d-%d", round, i)
			after := time.Duration(random.Int64N(int64(life * width)))
			wg.Go(func() {
				exits[i], errs[i] = r.killedAfter(after, fixture.Call{Verb: "ADD", Sandbox: pod(pods[i]), Config: conf})
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for i, p := range pods {
			if exits[i] == -1 {
				killed++
			} else {
				finished++
			}
			if random.IntN(2) == 0 {
				retried = append(retried, p)
				l.add(p, r.add(conf, pod(p)).Addrs())
			}
		}
	}
	t.Attr("figures", fmt.Sprintf("%d killed, %d finished before the kill, %d retried; an ADD alone took %v", killed, finished, len(retried), life))
	if killed < rounds*width/10 {
		t.Errorf("only %d of %d ADDs were killed: the test proves nothing", killed, rounds*width)
	}
	if faults := l.faults(retried, 2); len(faults) > 0 {
		t.Errorf("by the test's own record: %q", faults)
	}
	r.clean()
	for round := range rounds {
		for i := range width {
			r.ok("DEL", conf, pod(fmt.Sprintf("web-%d-%d", round, i)))
		}
	}
	r.counts(0, 0)
	r.clean()
}

// killedAfter starts an invocation and kills it. It returns the exit code, -1 if
// the kill came first.
func (r *rig) killedAfter(after time.Duration, c fixture.Call) (int, error) {
	cmd := r.plugin.Command(r.t.Context(), c)
	cmd.Stdin = bytes.NewReader(c.Config)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	kill := time.AfterFunc(after, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
	defer kill.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		return code, fmt.Errorf("ADD %s: exit %d", c.Sandbox.Pod, code)
	}
	return cmd.ProcessState.ExitCode(), nil
}
