// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/pool"
)

// replacePool deletes the pool v4, whose claims are given up, and puts the pool "new" over
// its range with blocks of two addresses.
func (w *world) replacePool() {
	w.t.Helper()
	w.deletePool("v4")
	w.create(nil, w.c.ReleasePoolAffinities(w.t.Context(), "v4"))
	w.reconcile()
	w.pool("new", "10.0.0.0/29", size(31))
	w.reconcile()
}

func (w *world) fill(node string, n int) {
	w.t.Helper()
	for i := range n {
		id := node + "-" + string(rune('0'+i))
		w.mustAttach(pod(id, id, id), 1, 0)
	}
}

// ofSize returns the blocks of a prefix length.
func (w *world) ofSize(bits int) []blockEntry {
	return slices.DeleteFunc(w.blocks(), func(e blockEntry) bool { return e.Key.Bits() != bits })
}

// A claim is slow between its look at the pool and the creation of its block. By then
// its pending affinity was given up, the pool is gone, another has the range in blocks
// of another size, and somebody has taken of it (INV-1).
func TestFaultBlockIsCreatedAfterItsPool(t *testing.T) {
	for name, r := range map[string]AttachRequest{
		"claim":     request(pod("node-a", "u1", "c1"), 1, 0),
		"given":     with(request(pod("node-a", "u1", "c1"), 0, 0), "10.0.0.2"),
		"not owned": with(request(pod("node-a", "u1", "c1"), 0, 0), "10.0.0.2"), // the host is at its limit
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.admitLater()
			w.pool("v4", "10.0.0.0/29", size(30))
			w.reconcile()
			before := pod("node-a", "u0", "c0")
			if name == "not owned" {
				w.config(func(c *datastore.Config) { c.MaxBlocksPerHost = 1 })
				w.create(w.attach(w.c, with(request(before, 0, 0), "10.0.0.4")))
			}
			c, f := w.process("slow")
			f.Hook(once(func(op memstore.Op) bool { return op.Verb == memstore.Create && op.Table == "blocks" },
				func(context.Context, memstore.Op) {
					w.pass(claimLife + time.Second)
					w.mustDetach(before)
					w.replacePool()
					w.wantStatus(map[string]string{"v4": "", "new": pool.ReasonOK})
					w.fill("node-b", 8)
				}))
			if got, err := w.attach(c, r); err == nil {
				t.Errorf("it was given %v", got)
			}
			w.verify()
			if left := w.ofSize(30); len(left) > 0 {
				t.Errorf("blocks are left: %v", left)
			}
			w.claims()
			w.reconcile()
			w.wantStatus(map[string]string{"new": pool.ReasonOK})
		})
	}
}

// The same with a process that ends before it sees what it did: the next request of the
// host neither keeps the address nor takes another of that block, also when its lists
// still have the pool that is gone.
func TestFaultBlockOfAGonePoolIsNotUsed(t *testing.T) {
	for _, stale := range []int{0, 5, 10, 15, 18, 20, 21, 22, 23, 24, 25} {
		for _, again := range []string{"c1", "c2"} {
			t.Run(fmt.Sprintf("%s, lists from %d writes ago", again, stale), func(t *testing.T) {
				w := newWorld(t)
				w.admitLater()
				w.pool("v4", "10.0.0.0/29", size(30))
				w.reconcile()
				c, f := w.process("dies")
				f.Hook(once(func(op memstore.Op) bool { return op.Verb == memstore.Create && op.Table == "blocks" },
					func(context.Context, memstore.Op) {
						w.pass(claimLife + time.Second)
						w.replacePool()
						w.fill("node-b", 7)
					}))
				f.Plan(2, memstore.Crash)
				if _, err := c.Attach(t.Context(), request(pod("node-a", "u1", "c1"), 1, 0)); !errors.Is(err, memstore.ErrCrashed) {
					t.Fatal(err)
				}
				if n := len(w.ofSize(30)); n != 1 {
					t.Fatalf("%d blocks were created late", n)
				}
				c, f = w.process("next")
				f.StaleBy(stale)
				if got, err := w.attach(c, request(pod("node-a", "u1", again), 1, 0)); err != nil || len(w.ledger) != 8 {
					t.Errorf("one address is free and it is given %v, %v", got, err)
				}
				taken := map[netip.Addr]int{}
				for _, as := range w.ledger {
					for _, a := range as {
						if taken[a]++; taken[a] > 1 {
							t.Errorf("%s is given twice", a)
						}
					}
				}
				w.mustDetach(pod("node-a", "u1", "c1"))
				w.pass(time.Minute)
				_, _ = w.attach(w.c, request(pod("node-a", "u3", "c3"), 1, 0))
				if left := w.ofSize(30); len(left) > 0 {
					t.Errorf("blocks are left: %v", left)
				}
			})
		}
	}
}

// A claim that a request has just begun is left to it, and keeps the pool; one whose
// request has ended without completing it is given up.
func TestReleaseLeavesClaimsInTheMaking(t *testing.T) {
	key := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: netip.MustParsePrefix("10.0.0.0/30")}
	for name, tt := range map[string]struct {
		since time.Time
		gone  bool
	}{
		"just begun":           {epoch, false},
		"a clock ahead":        {epoch.Add(time.Minute), false},
		"old":                  {epoch.Add(-claimLife - 1), true},
		"of a clock far ahead": {epoch.Add(claimLife + 1), true},
		"not known":            {time.Time{}, true},
	} {
		for method, release := range map[string]func(*world) error{
			"ReleaseAffinity":       func(w *world) error { return w.c.ReleaseAffinity(t.Context(), key, false) },
			"ReleaseHostAffinities": func(w *world) error { return w.c.ReleaseHostAffinities(t.Context(), "node-a", false) },
			"ReleasePoolAffinities": func(w *world) error { return w.c.ReleasePoolAffinities(t.Context(), "v4") },
		} {
			t.Run(name+", "+method, func(t *testing.T) {
				w := newWorld(t)
				w.admitLater()
				w.pool("v4", "10.0.0.0/29", size(30))
				w.reconcile()
				w.create(w.mem.Store().Affinities.Create(t.Context(), key,
					datastore.Affinity{State: datastore.Pending, Pool: "v4", PendingSince: tt.since}))
				w.deletePool("v4")
				if err := release(w); err != nil {
					t.Error(err)
				}
				w.reconcile()
				if _, there := w.affinity("node-a", "10.0.0.0/30"); there == tt.gone {
					t.Errorf("the claim is there: %v", there)
				}
				if _, there := w.statusOf("v4"); there == tt.gone {
					t.Errorf("the pool is there: %v", there)
				}
			})
		}
	}
}

// What a claim that was slow and not given up created is its own: the pool that is being
// deleted stays with it.
func TestSlowClaimKeepsItsPool(t *testing.T) {
	w := newWorld(t)
	w.admitLater()
	w.pool("v4", "10.0.0.0/29", size(30))
	w.reconcile()
	c, f := w.process("slow")
	f.Hook(once(func(op memstore.Op) bool { return op.Verb == memstore.Create && op.Table == "blocks" },
		func(context.Context, memstore.Op) { w.replacePool() }))
	if _, err := w.attach(c, request(pod("node-a", "u1", "c1"), 1, 0)); err != nil {
		t.Error(err)
	}
	w.reconcile()
	w.wantStatus(map[string]string{"v4": pool.ReasonTerminating, "new": pool.ReasonCIDROverlap})
	w.verify()
	w.claims()
}

// A sandbox keeps its address when its pool's block size is changed, as long as nobody
// else can have it: the pool hands out nothing until the block is gone.
func TestRepeatedAddKeepsItsAddressInABlockOfTheOldSize(t *testing.T) {
	w := newWorld(t)
	w.admitLater()
	w.pool("v4", "10.0.0.0/29", size(30))
	w.reconcile()
	o := pod("node-a", "u1", "c1")
	had := w.mustAttach(o, 1, 0)
	w.editPool("v4", func(s *pool.Spec) { s.BlockSize = 31 })
	w.reconcile()
	w.wantStatus(map[string]string{"v4": pool.ReasonBlockSizeConflict})
	if got := w.mustAttach(o, 1, 0); !slices.Equal(got, had) {
		t.Errorf("it had %v and is given %v", had, got)
	}
	w.verify()
}
