// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
)

// held is a store in which somebody holds every block, which is being deleted from some
// write on: as in kubestore, what raises a block's sequence is refused then.
type held struct {
	datastore.Table[netip.Prefix, block.Block]
	marked *bool
}

var errHeld = errors.New("a finalizer holds it")

func (h held) mark(e blockEntry) blockEntry {
	e.Value.Deleting = *h.marked
	return e
}

func (h held) Get(ctx context.Context, k netip.Prefix) (blockEntry, error) {
	e, err := h.Table.Get(ctx, k)
	return h.mark(e), err
}

func (h held) List(ctx context.Context, q datastore.Query) ([]blockEntry, error) {
	es, err := h.Table.List(ctx, q)
	for i := range es {
		es[i] = h.mark(es[i])
	}
	return es, err
}

func (h held) Update(ctx context.Context, e blockEntry) (blockEntry, error) {
	if *h.marked {
		if now, err := h.Table.Get(ctx, e.Key); err == nil && e.Value.Seq > now.Value.Seq {
			return blockEntry{}, datastore.Refused(errHeld)
		}
	}
	e.Value.Deleting = false
	e, err := h.Table.Update(ctx, e)
	return h.mark(e), err
}

func (h held) Delete(context.Context, blockEntry) error { return errHeld }

func (w *world) holding(name string, marked *bool) (*Client, *memstore.Faults) {
	s, f := w.mem.Client(name)
	s.Blocks = held{s.Blocks, marked}
	return New(s, Options{Clock: w.clock}), f
}

// A write of unknown outcome to a block that is marked as deleted meanwhile: what it
// brought is given back, and nothing is written that would be refused.
func TestFaultFenceOfABlockThatIsBeingDeleted(t *testing.T) {
	for name, tt := range map[string]struct {
		fault memstore.Fault
		again bool // the pod's sandbox is a new one: a take-over
	}{
		"it was applied":     {memstore.LostReply, false},
		"it was not":         {memstore.LostRequest, false},
		"take-over, applied": {memstore.LostReply, true},
		"take-over, not":     {memstore.LostRequest, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/30", size(30))
			w.mustAttach(pod("node-a", "u0", "c0"), 1, 0)
			marked := false
			c, f := w.holding("a", &marked)
			for k := 1; k <= maxFaults; k++ {
				f.Plan(k, tt.fault)
			}
			f.PlanRead(6, memstore.ErrUnreachable) // the first after the write; the fence reads again
			f.Hook(func(_ context.Context, op memstore.Op) error {
				marked = marked || op.Table == "blocks" && op.Verb == memstore.Get
				return nil
			})
			o := pod("node-a", "u1", "c1")
			if tt.again {
				o = pod("node-a", "u0", "c1")
			}
			_, err := w.attach(c, request(o, 1, 0))
			if err == nil || errors.Is(err, errHeld) {
				t.Errorf("attach: %v", err)
			}
			if tt.again && tt.fault == memstore.LostReply { // the slot is the new sandbox's, and goes with its DEL
				w.ledger = map[block.Attachment][]netip.Addr{}
				if err := w.detach(c, o); err != nil {
					t.Error(err)
				}
			}
			w.verify()
		})
	}
}

// Claims on blocks that are being deleted are released when they are gone: until then the
// error says why, and the others are released all the same (case R14).
func TestReleaseOfABlockThatIsBeingDeleted(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", size(30))
	w.mustAttach(pod("node-a", "u0", "c0"), 1, 0)
	marked := true
	c, _ := w.holding("a", &marked)
	key := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: w.blocks()[0].Key}
	for name, release := range map[string]func() error{
		"ReleaseAffinity":       func() error { return c.ReleaseAffinity(t.Context(), key, false) },
		"ReleaseHostAffinities": func() error { return c.ReleaseHostAffinities(t.Context(), "node-a", false) },
		"ReleasePoolAffinities": func() error { return c.ReleasePoolAffinities(t.Context(), "v4") },
	} {
		if err := release(); !errors.Is(err, ErrBlockHeld) || errors.Is(err, errHeld) || errors.Is(err, datastore.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, there := w.affinity("node-a", key.CIDR.String()); !there {
		t.Error("the claim of a block that names its owner is gone")
	}
	w.releaseAffinity("node-a", key.CIDR.String())
	w.mustDetach(pod("node-a", "u0", "c0"))
	if got, err := c.CollectBlocks(t.Context(), nil, 0); err != nil || len(got.Deleted) > 0 {
		t.Errorf("collect: %+v, %v; want that it is left to those who hold it", got, err)
	}
}
