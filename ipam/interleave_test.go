// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/pool"
)

// interleaveEvery thins out what is explored, and the race detector's build does so
// further. All of it, minutes: go test ./ipam -run Interleavings -interleave.every=1
var interleaveEvery = 4

var interleaveFlag = flag.Int("interleave.every", 0, "explore every n-th pair of operations; 0: the default")

// lateSeconds is how many second operations meet each first one whose write is late.
func lateSeconds() int {
	if every() == 1 {
		return 4
	}
	return 1
}

func every() int { return cmp.Or(*interleaveFlag, interleaveEvery) }

// A stage is a situation in which operations meet. Every run begins from it.
type stage struct {
	name  string
	setup func(*play)
	stale int           // how far back lists may be that allow it
	skew  time.Duration // of the clock of the process that comes between
	ops   []string      // of operations(); all pairs meet
}

// An operation is done by one process; id makes what it creates its own.
type operation struct {
	name string
	run  func(p *play, c *Client, id string) error
}

// play is a world in which operations are interleaved.
type play struct {
	*world
	dead    map[block.Attachment]bool // sandboxes that are gone, DEL may have come or not
	strict  bool                      // from the beginning
	stale   int
	skew    time.Duration
	claimed bool // two blocks were claimed for node-b by hand: the limit binds what a host claims by itself
	orphans bool // a process may have crashed: half-done claims are no fault
}

// TestFaultInterleavings runs every pair of operations, the second one whole before
// each store call of the first. What they say must be what they would say one after
// the other, and the store must agree with it.
func TestFaultInterleavings(t *testing.T) {
	for _, st := range stages() {
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			x := newExplorer(t, st)
			for i, first := range st.ops {
				for j, second := range st.ops {
					if (i+j+len(st.name))%every() != 0 {
						continue
					}
					if first == "restart" && second == "restart" {
						continue // of two sandboxes of one pod only one is alive
					}
					t.Run(first+"/"+second, func(t *testing.T) { x.pair(t, first, second) })
				}
			}
			t.Logf("%d runs", x.runs)
		})
	}
}

// TestFaultInterleavingsLate is the same with one write of the first operation lost
// on its way, landing when the second has run.
func TestFaultInterleavingsLate(t *testing.T) {
	for _, st := range stages() {
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			x := newExplorer(t, st)
			x.world(t).orphans = true
			for i, first := range st.ops {
				if (i+len(st.name))%every() != 0 {
					continue
				}
				for n := range lateSeconds() {
					second := st.ops[(i*5+3+n*7)%len(st.ops)]
					if first == "restart" && second == "restart" {
						continue
					}
					t.Run(first+"/"+second, func(t *testing.T) { x.late(t, first, second) })
				}
			}
			t.Logf("%d runs", x.runs)
		})
	}
}

// TestFaultInterleavingsOfThree draws three operations and where they meet.
func TestFaultInterleavingsOfThree(t *testing.T) {
	for i, st := range stages() {
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			x := newExplorer(t, st)
			rnd := rand.New(rand.NewPCG(uint64(i), 7))
			for range 120 / every() {
				var names [3]string
				for j := range names {
					names[j] = st.ops[rnd.IntN(len(st.ops))]
				}
				if i := slices.Index(names[:], "restart"); i >= 0 && slices.Contains(names[i+1:], "restart") {
					continue
				}
				j, k := 1+rnd.IntN(9), 1+rnd.IntN(9)
				t.Run(fmt.Sprintf("%s/%s/%s at %d and %d", names[0], names[1], names[2], j, k), func(t *testing.T) {
					x.three(t, names, j, k)
				})
			}
		})
	}
}

type explorer struct {
	stage stage
	play  *play
	start memstore.State
	saved map[block.Attachment][]netip.Addr
	dead  map[block.Attachment]bool
	ops   map[string]operation
	runs  int
}

func newExplorer(t *testing.T, st stage) *explorer {
	t.Helper()
	p := st.play(t)
	x := &explorer{stage: st, play: p, start: p.mem.Snapshot(), saved: p.ledger, dead: p.dead, ops: map[string]operation{}}
	for _, o := range operations() {
		x.ops[o.name] = o
	}
	return x
}

func (st stage) play(t *testing.T) *play {
	t.Helper()
	p := &play{world: newWorld(t), stale: st.stale, skew: st.skew, dead: map[block.Attachment]bool{}}
	st.setup(p)
	c, err := p.c.Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.strict = c.StrictAffinity
	return p
}

// world goes back to the stage.
func (x *explorer) world(t *testing.T) *play {
	x.runs++
	if x.stage.stale > 0 { // the past of a restored store is what came after
		orphans := x.play.orphans
		x.play = x.stage.play(t)
		x.play.orphans = orphans
		x.play.clock.SetTime(epoch.Add(10 * time.Minute))
		return x.play
	}
	x.play.t, x.play.claimed = t, false
	x.play.mem.Restore(x.start)
	x.play.clock.SetTime(epoch.Add(10 * time.Minute))
	x.play.ledger, x.play.dead = maps.Clone(x.saved), maps.Clone(x.dead)
	return x.play
}

// skewed is a clock that is wrong by a constant.
type skewed struct {
	clock.PassiveClock
	by time.Duration
}

func (s skewed) Now() time.Time { return s.PassiveClock.Now().Add(s.by) }

// process is a client in whose calls time passes; at, if not nil, is told the
// number of each call before it is served.
func (p *play) process(name string, at func(n int)) (*Client, *memstore.Faults) {
	s, f := p.mem.Client(name)
	c := New(s, Options{Clock: p.clock})
	if name == "second" && p.skew != 0 {
		c = New(s, Options{Clock: skewed{p.clock, p.skew}})
	}
	f.StaleBy(p.stale)
	n := 0
	f.Hook(func(context.Context, memstore.Op) error {
		n++
		p.pass(time.Millisecond)
		if at != nil {
			at(n)
		}
		return nil
	})
	return c, f
}

// meet runs second whole before the k-th call of first, or after its end if it has
// fewer: met is false then.
func (x *explorer) meet(p *play, first, second string, k int) (errs [2]error, met bool, at memstore.Op) {
	q, _ := p.process("second", nil)
	var f *memstore.Faults
	c, f := p.process("first", func(n int) {
		if n == k {
			met = true
			errs[1] = x.ops[second].run(p, q, "second")
		}
	})
	errs[0] = x.ops[first].run(p, c, "first")
	if !met {
		errs[1] = x.ops[second].run(p, q, "second")
		return errs, false, at
	}
	return errs, true, f.Ops()[k-1]
}

// inUse accepts that a given address is another's when it is: which addresses the
// other takes may depend on where the two meet.
func (p *play) inUse(err error) bool {
	return errors.Is(err, ErrAddressInUse) && slices.ContainsFunc(slices.Collect(maps.Values(p.ledger)), func(as []netip.Addr) bool {
		return slices.ContainsFunc(as, func(a netip.Addr) bool { return strings.Contains(err.Error(), a.String()+":") })
	})
}

func (x *explorer) pair(t *testing.T, first, second string) {
	before, _, _ := x.meet(x.world(t), first, second, 1)
	after, _, _ := x.meet(x.world(t), first, second, 1000)
	several := first == "replace pool" || second == "replace pool" // operations in a row: each may meet the other alone
	p := x.world(t)
	p.stale = 0
	fresh, _, _ := x.meet(p, first, second, 1)
	p.stale = x.stage.stale
	for k := 1; ; k++ {
		p := x.world(t)
		errs, met, at := x.meet(p, first, second, k)
		for i, name := range []string{first, second} {
			if several && class(errs[i]) != "fault" {
				continue
			}
			if class(errs[i]) != class(before[i]) && class(errs[i]) != class(after[i]) && class(errs[i]) != class(fresh[i]) && !p.inUse(errs[i]) {
				p.t.Errorf("before call %d (%s): %s says %v; alone before or after the other it says %v or %v",
					k, at, name, errs[i], before[i], after[i])
			}
		}
		for _, w := range p.faults() {
			p.t.Errorf("before call %d (%s): %s", k, at, w)
		}
		if !met || t.Failed() {
			return
		}
	}
}

// late loses each write of first in turn; it lands after the second operation,
// which runs before each later call of the first. The first is then repeated by
// another process.
func (x *explorer) late(t *testing.T, first, second string) {
	p := x.world(t)
	c, f := p.process("first", nil)
	_ = x.ops[first].run(p, c, "first")
	writes, calls := f.Writes(), len(f.Ops())
	for i := range 2 * writes * (calls + 3) {
		w, k := 1+i/2/(calls+3), 1+i/2%(calls+3)
		fault := []memstore.Fault{memstore.LateRequest, memstore.LostReply}[i%2]
		p := x.world(t)
		var f *memstore.Faults
		q, _ := p.process("second", nil)
		done := false
		c, f := p.process("first", func(n int) {
			if n == k {
				done = true
				_ = x.ops[second].run(p, q, "second")
				f.Deliver()
			}
		})
		f.Plan(w, fault)
		err := x.ops[first].run(p, c, "first")
		if !done {
			_ = x.ops[second].run(p, q, "second")
		}
		f.Deliver()
		for _, wrong := range p.faults() {
			t.Errorf("write %d: %s, landing before call %d; %s says %v: %s", w, fault, k, first, err, wrong)
		}
		if t.Failed() {
			return
		}
	}
}

func (x *explorer) three(t *testing.T, names [3]string, j, k int) {
	p := x.world(t)
	var ran [3]bool
	var errs [3]error
	run := func(i int, at func(int)) {
		if ran[i] {
			return
		}
		ran[i] = true
		c, _ := p.process(names[i], at)
		errs[i] = x.ops[names[i]].run(p, c, []string{"first", "second", "third"}[i])
	}
	third := func() { run(2, nil) }
	second := func() {
		run(1, func(n int) {
			if n == k {
				third()
			}
		})
	}
	run(0, func(n int) {
		if n == j {
			second()
		}
	})
	second()
	third()
	for i, err := range errs {
		if class(err) == "fault" {
			t.Errorf("%s says %v", names[i], err)
		}
	}
	for _, w := range p.faults() {
		t.Error(w)
	}
}

// class is what of an error a caller may rely on.
func class(err error) string {
	if err == nil {
		return "ok"
	}
	for _, e := range []error{
		ErrBlockLimit, ErrStrictAffinity, ErrExhausted, ErrNoPool, ErrAddressInUse, ErrAddressCooling, ErrNotInPool,
		ErrReserved, ErrBlockNotEmpty, ErrStale, ErrNotAllocated, ErrContention, errRefused,
	} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return "fault"
}

// errRefused is the answer to an operator's change that is not possible now.
var errRefused = errors.New("refused")

// faults are what is wrong when nobody is at work: with store and ledger, with
// claims (INV-6), with labels, with the limits.
func (p *play) faults() []string {
	var out []string
	leaked := map[netip.Addr]block.Attachment{}
	for _, e := range p.blocks() {
		for a, s := range e.Value.All() {
			if key := s.Active.Attachment(); s.State == block.Allocated && p.dead[key] {
				leaked[a] = key
			}
		}
	}
	for _, w := range p.wrong() {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(leaked)), func(a netip.Addr) bool {
			return w == fmt.Sprintf("%s leaked: the store says %v, nobody is attached", a, leaked[a])
		}) {
			out = append(out, w)
		}
	}
	return slices.Concat(out, p.wrongClaims(), p.wrongBlocks())
}

func (p *play) wrongClaims() (out []string) {
	fail := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	es, err := p.mem.Store().Affinities.List(p.t.Context(), datastore.Query{})
	if err != nil {
		p.t.Fatal(err)
	}
	routes := map[netip.Prefix]affinityEntry{}
	for _, e := range es {
		if e.Value.State != datastore.Confirmed {
			if !p.orphans {
				fail("affinity of %v for %s is left %s", e.Key.Owner, e.Key.CIDR, e.Value.State)
			}
			continue
		}
		if w, ok := routes[e.Key.CIDR]; ok && w.Value.BlockSeq == e.Value.BlockSeq {
			fail("two affinities for %s with sequence %d", e.Key.CIDR, e.Value.BlockSeq)
		} else if !ok || w.Value.BlockSeq < e.Value.BlockSeq {
			routes[e.Key.CIDR] = e
		}
	}
	for _, b := range p.blocks() {
		r, ok := routes[b.Key]
		switch {
		case ok && r.Key.Owner != b.Value.Affinity:
			fail("block %s names %q and %v has the confirmed affinity", b.Key, b.Value.Affinity, r.Key.Owner)
		case !ok && !b.Value.Affinity.IsZero() && !p.orphans:
			fail("block %s names %v, which has no confirmed affinity", b.Key, b.Value.Affinity)
		case ok && r.Value.BlockSeq > b.Value.Seq:
			fail("block %s has sequence %d, its affinity %d (INV-15)", b.Key, b.Value.Seq, r.Value.BlockSeq)
		}
		delete(routes, b.Key)
	}
	for cidr, r := range routes {
		if !p.orphans {
			fail("%v has a confirmed affinity for %s, which does not exist", r.Key.Owner, cidr)
		}
	}
	return out
}

func (p *play) wrongBlocks() (out []string) {
	fail := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	v, err := p.c.view(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	held := map[block.Affinity]int{}
	for _, e := range p.blocks() {
		b := e.Value
		held[b.Affinity]++
		pl, ok := v.poolOf(e.Key)
		if !ok {
			fail("block %s is in no pool", e.Key)
			continue
		}
		if b.Pool != pl.Name {
			fail("block %s of pool %s is labelled %q", e.Key, pl.Name, b.Pool)
		}
		// free > cooling > full: a label may promise too much, never too little.
		rank := []block.Space{block.SpaceFull, block.SpaceCooling, block.SpaceFree}
		if want := v.label(b, pl).Space; slices.Index(rank, b.Space) < slices.Index(rank, want) {
			fail("block %s is labelled %s and is %s", e.Key, b.Space, want)
		}
		for a, s := range b.All() {
			if s.State == block.Allocated && p.strict && v.config.StrictAffinity && !b.Affinity.IsZero() && b.Affinity != block.Host(s.Active.Node) {
				fail("strictAffinity: %s is used by %s and of %v", a, s.Active.Node, b.Affinity)
			}
		}
	}
	for a, n := range held {
		if limit := v.config.MaxBlocksPerHost; limit > 0 && n > limit && !a.IsZero() && (!p.claimed || a != block.Host("node-b")) {
			fail("%v has %d blocks, the limit is %d", a, n, limit)
		}
	}
	return out
}

func (p *play) attachAs(c *Client, id, node string, n4, n6 int, given ...string) error {
	_, err := p.attach(c, with(request(pod(node, id, id), n4, n6), given...))
	return err
}

func (p *play) changePool(change func(*pool.Pool)) error {
	pools := p.mem.Store().Pools
	e, err := pools.Get(p.t.Context(), "v4")
	if err == nil {
		change(&e.Value)
		_, err = pools.Update(p.t.Context(), e)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return nil
}
