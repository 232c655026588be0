// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
)

// ticking is a process in whose calls time passes; before is called ahead of each
// write with its number.
func (w *world) ticking(before func(f *memstore.Faults, write int)) (*Client, *memstore.Faults) {
	c, f := w.process("ticking")
	f.Hook(func(_ context.Context, op memstore.Op) error {
		w.pass(time.Millisecond)
		if before != nil && op.Write > 0 {
			before(f, op.Write)
		}
		return nil
	})
	return c, f
}

// A lost write that lands while its repetition is on its way is recognised: the
// repetition was planned later and has other sequences (INV-7).
func TestFaultLateWriteLandsDuringItsRetry(t *testing.T) {
	a := pod("node-a", "u1", "c1")
	for _, tc := range []struct {
		name  string
		setup func(*world)
		run   func(*world, *Client) error
	}{
		{"attach", func(*world) {}, attachRun(request(a, 1, 0))},
		{"given", func(*world) {}, attachRun(with(request(a, 0, 0), "10.0.0.3"))},
		{"take-over", func(w *world) {
			w.mustAttach(pod("node-a", "u1", "old"), 1, 0)
			w.ledger = map[block.Attachment][]netip.Addr{pod("", "", "c0").Attachment(): w.ledger[pod("", "", "c0").Attachment()]}
		}, attachRun(request(a, 1, 0))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/30", size(30))
			w.mustAttach(pod("node-a", "u0", "c0"), 1, 0)
			tc.setup(w)
			c, f := w.ticking(func(f *memstore.Faults, write int) {
				if write == 2 {
					f.Deliver()
				}
			})
			f.Plan(1, memstore.LateRequest)
			if err := tc.run(w, c); err != nil {
				t.Errorf("the first request landed: %v", err)
			}
			w.verify()
		})
	}
}

// Whichever of several lost writes lands, the clean-up gives its address back.
func TestFaultFenceKnowsEveryAttempt(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	w.mustAttach(pod("node-a", "u0", "c0"), 1, 0)
	c, f := w.ticking(func(f *memstore.Faults, write int) {
		if write == 4 {
			t.Fatal("there was no unknown outcome")
		}
	})
	for k := 1; k <= 3; k++ {
		f.Plan(k, memstore.LateRequest)
	}
	f.Hook(func(_ context.Context, op memstore.Op) error {
		w.pass(time.Millisecond)
		if op.Verb == memstore.Get && f.Writes() == 3 { // the fence reads the block
			f.Deliver()
		}
		return nil
	})
	if _, err := w.attach(c, request(pod("node-a", "u1", "c1"), 1, 0)); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
	w.verify()
}

// A host below its limit may claim the block of a given address (cases D17, E1).
func TestAssignIPCountsItsOwnBlockOnce(t *testing.T) {
	unowned := func(w *world) {
		w.mustAttach(pod("node-c", "c0", "c0"), 1, 0)
		w.releaseAffinity("node-c", w.blocks()[0].Key.String())
	}
	for _, tc := range []struct {
		name   string
		strict bool
		setup  func(*world)
	}{
		{"block without owner", false, unowned},
		{"block without owner, strict", true, func(w *world) {
			unowned(w)
			w.mustDetach(pod("node-c", "c0", "c0"))
		}},
		{"claim that was cut short, strict", true, func(w *world) {
			key := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: netip.MustParsePrefix("10.0.0.0/30")}
			w.create(w.mem.Store().Affinities.Create(w.t.Context(), key, datastore.Affinity{State: datastore.Pending, Pool: "v4"}))
		}},
		{"claim that was cut short", false, func(w *world) {
			key := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: netip.MustParsePrefix("10.0.0.0/30")}
			w.create(w.mem.Store().Affinities.Create(w.t.Context(), key, datastore.Affinity{State: datastore.Pending, Pool: "v4"}))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/30", size(30))
			w.config(func(c *datastore.Config) { c.MaxBlocksPerHost, c.StrictAffinity = 1, tc.strict })
			tc.setup(w)
			if _, err := w.attach(w.c, with(request(pod("node-a", "u1", "c1"), 0, 0), "10.0.0.3")); err != nil {
				t.Error(err)
			}
			if a := w.block("10.0.0.0/30").Affinity; a != block.Host("node-a") {
				t.Errorf("the block is of %q", a)
			}
			w.verify()
			w.claims()
		})
	}
}

// Exhaustion is not concluded from a list of the past (INV-10).
func TestExhaustionIsNotConcludedFromStaleLists(t *testing.T) {
	for _, strict := range []bool{false, true} {
		w := newWorld(t)
		w.pool("v4", "10.0.0.0/30", size(30))
		w.config(func(c *datastore.Config) { c.StrictAffinity = strict })
		leave(w, "node-b", 1)
		w.releaseAffinity("node-b", "10.0.0.0/30")
		if n := len(w.blocks()); n != 0 {
			t.Fatalf("%d blocks", n)
		}
		c, f := w.process("a")
		f.StaleBy(3)
		if _, err := w.attach(c, request(pod("node-a", "u1", "c1"), 1, 0)); err != nil {
			t.Errorf("strict %v: %v", strict, err)
		}
	}
}

// A pool that is not in a stale list is not absent (INV-10, INV-14).
func TestNoPoolIsNotConcludedFromStaleLists(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	c, f := w.process("a")
	f.StaleBy(1)
	if _, err := w.attach(c, request(pod("node-a", "u1", "c1"), 1, 0)); err != nil {
		t.Error(err)
	}
}

// An attachment's own address is not given back because a stale list lacks its pool.
func TestRepeatedAddKeepsItsAddressOnStaleLists(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	o := pod("node-a", "u1", "c1")
	had := w.mustAttach(o, 1, 0)
	c, f := w.process("a")
	f.StaleBy(4)
	got, err := c.Attach(t.Context(), request(o, 1, 0))
	if s, ok := w.block("10.0.0.0/30").Slot(had[0]); !ok || s.State != block.Allocated {
		t.Errorf("the address was released; the ADD says %v, %v", got, err)
	}
}

// A pending affinity counts as absent (INV-6): the host that wrote it may be gone.
func TestPendingAffinityOfAnotherHostKeepsNobodyOut(t *testing.T) {
	for _, strict := range []bool{false, true} {
		w := newWorld(t)
		w.pool("v4", "10.0.0.0/30", size(30))
		w.config(func(c *datastore.Config) { c.StrictAffinity = strict })
		key := datastore.AffinityKey{Owner: block.Host("node-b"), CIDR: netip.MustParsePrefix("10.0.0.0/30")}
		w.create(w.mem.Store().Affinities.Create(t.Context(), key, datastore.Affinity{State: datastore.Pending, Pool: "v4"}))
		if _, err := w.attach(w.c, request(pod("node-a", "u1", "c1"), 1, 0)); err != nil {
			t.Errorf("strict %v: %v", strict, err)
		}
	}
}

// What an ADD that failed took is given back, also when only the clean-up of its
// claim had an unknown outcome.
func TestFaultLostWithdrawalLeaksNothing(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(30))
	w.config(func(c *datastore.Config) { c.MaxBlocksPerHost = 1 })
	w.mustAttach(pod("node-a", "u0", "c0"), 1, 0)
	addr := w.unclaimed("10.0.0.0/28", 30).Addr().Next().String()
	c, f := w.process("first")
	f.Plan(3, memstore.LostRequest) // pending affinity, block, then its withdrawal
	_, err := w.attach(c, with(request(pod("node-a", "u1", "c1"), 0, 0), addr))
	t.Log(err)
	w.verify()
	w.mustAttach(pod("node-a", "u2", "c2"), 1, 0) // repairs
	if _, left := w.affinity("node-a", w.blocks()[0].Key.String()); left != (w.blocks()[0].Value.Affinity == block.Host("node-a")) {
		t.Error("the affinity is still there")
	}
}

// A claim that ends with its request's context leaves no affinity (case R8).
func TestFaultWithdrawalHasItsOwnDeadline(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	ctx, cancel := context.WithCancel(t.Context())
	c, f := w.process("first")
	f.Hook(once(func(op memstore.Op) bool { return op.Verb == memstore.Get && op.Table == "pools" },
		func(context.Context, memstore.Op) { cancel() }))
	if _, err := c.Attach(ctx, request(pod("node-a", "u1", "c1"), 1, 0)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, left := w.affinity("node-a", "10.0.0.0/30"); left {
		t.Error("the pending affinity is left")
	}
}

// AssignIP is idempotent whether the caller filled in the owner's node or not.
func TestAssignIPRepeatedWithoutNodeInOwner(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	w.mustAttach(pod("node-b", "u0", "c0"), 1, 0)
	r := AssignIPRequest{AutoAssignRequest: auto("node-a", "lb-1", 1, 0), Addr: netip.MustParseAddr("10.0.0.3")}
	r.Owner.Node = ""
	for range 2 {
		if _, err := w.c.AssignIP(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
}

// A late DEL that meets a take-over says that it released nothing (INV-8).
func TestDetachReportsOnlyWhatItReleased(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	old, next := pod("node-a", "u1", "c1"), pod("node-a", "u1", "c2")
	w.mustAttach(old, 1, 0)
	w.ledger = map[block.Attachment][]netip.Addr{}
	c, f := w.process("del")
	f.Hook(once(func(op memstore.Op) bool { return op.Write == 1 }, func(context.Context, memstore.Op) { w.mustAttach(next, 1, 0) }))
	got, err := c.Detach(t.Context(), DetachRequest{Attachment: old.Attachment(), Node: "node-a"})
	if err != nil || len(got) > 0 {
		t.Errorf("it says that it released %v, %v; %v has it", got, err, next.ContainerID)
	}
	w.verify()
}

// A re-created block starts above every affinity known for its CIDR, whoever's and
// whatever its host's clock (INV-15).
func TestSequenceOfRecreatedBlock(t *testing.T) {
	cidr := netip.MustParsePrefix("10.0.0.0/30")
	ahead := uint64(epoch.Add(time.Hour).UnixNano())
	for _, tc := range []struct {
		name string
		own  bool
		r    AttachRequest
		plan func(*memstore.Faults)
	}{
		{"rebuilt", true, request(pod("node-a", "u1", "c1"), 1, 0), nil},
		{"given", false, with(request(pod("node-a", "u1", "c1"), 0, 0), "10.0.0.3"), nil},
		{"fenced", true, request(pod("node-a", "u1", "c1"), 1, 0), func(f *memstore.Faults) {
			for k := 1; k <= 3; k++ {
				f.Plan(k, memstore.LostRequest)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/30", size(30))
			store := w.mem.Store().Affinities
			mine := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: cidr}
			others := datastore.AffinityKey{Owner: block.Host("node-b"), CIDR: cidr}
			seq := uint64(1)
			if tc.plan != nil {
				seq = ahead
			} else {
				w.create(store.Create(t.Context(), others, datastore.Affinity{State: datastore.Confirmed, Pool: "v4", BlockSeq: ahead}))
			}
			if tc.own {
				w.create(store.Create(t.Context(), mine, datastore.Affinity{State: datastore.Confirmed, Pool: "v4", BlockSeq: seq}))
			}
			c, f := w.process("a")
			if tc.plan != nil {
				tc.plan(f)
			}
			_, err := w.attach(c, tc.r)
			if got := w.block("10.0.0.0/30").Seq; got <= ahead {
				t.Errorf("the block has sequence %d, an affinity %d (ADD: %v)", got, ahead, err)
			}
		})
	}
}

// A block with lines that cannot be read is not empty (INV-2).
func TestReclaimLeavesUnreadableLines(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	leave(w, "node-b", 1)
	e, err := w.mem.Store().Blocks.Get(t.Context(), netip.MustParsePrefix("10.0.0.0/30"))
	if err != nil {
		t.Fatal(err)
	}
	wire := block.Encode(e.Value)
	wire.Slots = append(wire.Slots, "77 allocated somebody 1 type=workload")
	labels := e.Value.Labels()
	if e.Value, err = block.Decode(wire); err != nil {
		t.Fatal(err)
	}
	e.Value.Pool, e.Value.Space = labels.Pool, labels.Space
	if e.Value.Empty() {
		t.Fatal("it is empty")
	}
	w.create(w.mem.Store().Blocks.Update(t.Context(), e))
	_, _ = w.attach(w.c, request(pod("node-a", "u1", "c1"), 1, 0))
	if a := w.block("10.0.0.0/30").Affinity; a != block.Host("node-b") {
		t.Errorf("the block is of %q now", a)
	}
}

// One request's failure does not take the claim of another request of the host.
func TestFaultWithdrawalLeavesTheClaimOfAnotherRequest(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	c, f := w.process("first")
	f.Hook(once(func(op memstore.Op) bool { return op.Verb == memstore.Create && op.Table == "affinities" },
		func(context.Context, memstore.Op) {
			w.create(w.attach(w.c, with(request(pod("node-a", "u1", "c1"), 0, 0), "10.0.0.1")))
		}))
	if _, err := w.attach(c, with(request(pod("node-a", "u2", "c2"), 0, 0), "10.0.0.1")); !errors.Is(err, ErrAddressInUse) {
		t.Error(err)
	}
	w.verify()
	w.claims()
}

// The work in pools of a /8 and a /48 follows the reservations, not the addresses
// (INV-16).
func TestAssignInHugePoolsWithManyReservations(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/8", nil)
	w.pool("v6", "fd00::/48", nil)
	var cidrs []string
	a := netip.MustParseAddr("10.0.0.0")
	for range 1000 {
		cidrs = append(cidrs, netip.PrefixFrom(a, 25).String())
		for range 2 {
			p := netip.PrefixFrom(a, 25)
			a = netip.AddrFrom4([4]byte{10, p.Addr().As4()[1], p.Addr().As4()[2], 128})
			if p.Addr().As4()[3] == 128 {
				a = netip.AddrFrom4([4]byte{10, p.Addr().As4()[1] + (p.Addr().As4()[2]+1)>>7>>1, p.Addr().As4()[2] + 1, 0})
			}
		}
	}
	for i, c := range cidrs[:200] {
		w.reserve("r"+strings.Repeat("x", i), c)
	}
	n := testing.AllocsPerRun(1, func() { w.mustAttach(pod("node-a", "u1", "c1"), 1, 1) })
	t.Logf("%.0f allocations", n)
	if n > 50000 {
		t.Errorf("%.0f allocations", n)
	}
}

// An address that no pool contains keeps no other from being released (cases R14, D15).
func TestReleaseIPsIsolatesAnUnknownAddress(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	o := pod("node-a", "u1", "c1")
	had := w.mustAttach(o, 1, 0)
	got, err := w.c.ReleaseIPs(t.Context(), []Release{
		{Release: block.Release{Addr: netip.MustParseAddr("192.0.2.1")}}, {Release: block.Release{Addr: had[0]}},
	})
	if !errors.Is(err, ErrNotInPool) || got.Outcomes[1] != block.Released || len(got.Retry) != 1 {
		t.Errorf("outcomes %v, retry %v, %v", got.Outcomes, got.Retry, err)
	}
	w.ledger = map[block.Attachment][]netip.Addr{}
	w.verify()
}
