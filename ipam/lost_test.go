// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/pool"
)

// The creation of an affinity is lost, made again, and withdrawn because the block was
// released; then the lost one lands. It counts for nothing: a claim is confirmed by a
// write that only hits what is there (INV-6, INV-7).
func TestFaultLateAffinityCountsForNothing(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", size(30))
	w.mustAttach(pod("node-a", "u0", "c0"), 1, 0)
	cidr := w.blocks()[0].Key
	c, f := w.process("a")
	f.Hook(once(func(op memstore.Op) bool { return op.Verb == memstore.List && op.Table == "affinities" },
		func(context.Context, memstore.Op) { w.releaseAffinity("node-a", cidr.String()) }))
	f.Plan(1, memstore.LateRequest)
	if _, err := w.attach(c, with(request(pod("node-a", "u1", "c1"), 0, 0), w.unclaimed("10.0.0.0/29", 30).Addr().String())); err != nil {
		t.Fatal(err)
	}
	f.Deliver()
	if a, there := w.affinity("node-a", cidr.String()); there && a.State == datastore.Confirmed {
		t.Errorf("the affinity is %+v and the block of %q", a, w.block(cidr.String()).Affinity)
	}
	w.verify()
}

// The creation of a block is lost and the block turns out to be another's; that one is
// released and deleted, and the lost one lands. What it brought is given back (INV-3).
func TestFaultLateBlockIsGivenBack(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	leave(w, "node-a", 1)
	c, f := w.process("b")
	f.StaleBy(8) // the lists do not have the block yet
	landed := false
	// Written so far: the pending affinity, the block (lost), the withdrawal.
	f.Hook(once(func(op memstore.Op) bool { return op.Write == 4 }, func(context.Context, memstore.Op) {
		w.releaseAffinity("node-a", "10.0.0.0/30")
		f.Deliver()
		landed = w.block("10.0.0.0/30").Affinity == block.Host("node-b")
	}))
	f.Plan(2, memstore.LateRequest)
	if _, err := w.attach(c, request(pod("node-b", "u1", "c1"), 1, 0)); err != nil {
		t.Error(err)
	}
	if !landed {
		t.Error("the lost creation has not landed")
	}
	w.verify()
}

// ClaimAffinity whose pool changes under way goes by the pool as it is then.
func TestClaimAffinityLooksAgainAtAChangedPool(t *testing.T) {
	edit := func(p *pool.Pool) { p.Spec.NATOutgoing = !p.Spec.NATOutgoing }
	for name, tt := range map[string]struct {
		change func(*pool.Pool)
		times  int // before as many creations of an affinity
		err    error
		claims int
	}{
		"edited":         {edit, 1, nil, 2},
		"edited twice":   {edit, 2, nil, 2},
		"always edited":  {edit, 100, ErrContention, 0},
		"disabled":       {func(p *pool.Pool) { p.Spec.Disabled = true }, 1, ErrNoPool, 0},
		"selects others": {func(p *pool.Pool) { p.Spec.NodeSelector = "zone=b" }, 1, ErrNoPool, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/29", size(30))
			c, f := w.process("a")
			n := 0
			f.Hook(func(ctx context.Context, op memstore.Op) error {
				if op.Verb != memstore.Create || op.Table != "affinities" || n == tt.times {
					return nil
				}
				n++
				e, err := w.mem.Store().Pools.Get(ctx, "v4")
				if err == nil {
					tt.change(&e.Value)
					_, err = w.mem.Store().Pools.Update(ctx, e)
				}
				return err
			})
			claimed, failed, err := c.ClaimAffinity(t.Context(), pool.Node{Name: "node-a"}, netip.MustParsePrefix("10.0.0.0/29"))
			if !errors.Is(err, tt.err) || len(claimed) != tt.claims || len(claimed)+len(failed) != 2 {
				t.Errorf("claimed %v, failed %v, %v; want %d claimed and %v", claimed, failed, err, tt.claims, tt.err)
			}
			if len(w.blocks()) != tt.claims {
				t.Errorf("blocks are %v", w.blocks())
			}
			w.claims()
			w.stray()
		})
	}
}

// A pool that a list of the past lacks is there (INV-10), whoever asks.
func TestAbsenceOfAPoolIsNotConcludedFromStaleLists(t *testing.T) {
	addr, cidr := netip.MustParseAddr("10.0.0.0"), netip.MustParsePrefix("10.0.0.0/30")
	o := pod("node-a", "u1", "c1")
	for name, run := range map[string]func(*Client) error{
		"ClaimAffinity": func(c *Client) error {
			_, _, err := c.ClaimAffinity(t.Context(), pool.Node{Name: "node-a"}, cidr)
			return err
		},
		"ReleasePoolAffinities": func(c *Client) error { return c.ReleasePoolAffinities(t.Context(), "v4") },
		"AssignmentAttributes":  func(c *Client) error { _, err := c.AssignmentAttributes(t.Context(), addr); return err },
		"SetOwner": func(c *Client) error {
			_, err := c.SetOwner(t.Context(), addr, block.OwnerUpdate{Active: &o}, block.OwnerPrecondition{Active: &o, Alternate: &block.Owner{}})
			return err
		},
		"Utilization": func(c *Client) error { _, err := c.Utilization(t.Context(), "v4"); return err },
		"Ready":       func(c *Client) error { return c.Ready(t.Context(), request(o, 1, 0).AutoAssignRequest) },
		"AssignIP": func(c *Client) error {
			_, err := c.AssignIP(t.Context(), AssignIPRequest{AutoAssignRequest: auto("node-a", "lb", 1, 0), Addr: addr.Next()})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/30", size(30))
			w.mustAttach(o, 1, 0)
			c, f := w.process("late")
			f.StaleBy(60)
			if err := run(c); err != nil {
				t.Error(err)
			}
		})
	}
}

// A block that a rival created and deleted while the host was creating it had a higher
// sequence: the block that is created then is above that (INV-15).
func TestSequenceOfABlockCreatedAfterARivals(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	cidr := netip.MustParsePrefix("10.0.0.0/30")
	ahead := epoch.Add(time.Hour)
	c, f := w.process("a")
	var rival blockEntry
	creates := 0
	f.Hook(func(ctx context.Context, op memstore.Op) error {
		switch {
		case op.Table != "blocks":
		case op.Verb == memstore.Create:
			if creates++; creates == 1 {
				b, err := block.New(cidr, block.Affinity{}, uint64(ahead.UnixNano()), ahead)
				w.create(nil, err)
				rival, err = w.mem.Store().Blocks.Create(ctx, cidr, b)
				w.create(nil, err)
			}
		case op.Verb == memstore.Update: // it has been read
			w.create(nil, w.mem.Store().Blocks.Delete(ctx, rival))
		}
		return nil
	})
	if _, err := w.attach(c, request(pod("node-a", "u1", "c1"), 1, 0)); err != nil {
		t.Fatal(err)
	}
	if got := w.block("10.0.0.0/30").Seq; creates < 2 || got <= uint64(ahead.UnixNano()) {
		t.Errorf("after %d creations the block has sequence %d, the one before had %d", creates, got, ahead.UnixNano())
	}
	w.verify()
	w.claims()
}
