// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"net/netip"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/pool"
)

// admitLater gives w a store that decides no admission by itself, as an API server.
func (w *world) admitLater() {
	w.mem = memstore.New(memstore.Options{Clock: w.clock, AdmitLater: true})
	w.c = New(w.mem.Store(), Options{Clock: w.clock})
}

func (w *world) reconcile() {
	w.t.Helper()
	if _, err := w.c.ReconcilePools(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// statusOf returns the stored status of a pool; none if it is gone.
func (w *world) statusOf(name string) (pool.Status, bool) {
	w.t.Helper()
	e, err := w.mem.Store().Pools.Get(w.t.Context(), name)
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		w.t.Fatal(err)
	}
	return e.Value.Status, err == nil
}

func (w *world) deletePool(name string) {
	w.t.Helper()
	e, err := w.mem.Store().Pools.Get(w.t.Context(), name)
	if err == nil {
		err = w.mem.Store().Pools.Delete(w.t.Context(), e)
	}
	w.create(nil, err)
}

// wantStatus compares the reasons of pools; "" is a pool that is gone.
func (w *world) wantStatus(reasons map[string]string) {
	w.t.Helper()
	for name, want := range reasons {
		s, there := w.statusOf(name)
		switch {
		case there != (want != ""):
			w.t.Errorf("pool %s is there: %v", name, there)
		case there && (s.Reason != want || s.Allocatable != (want == pool.ReasonOK)):
			w.t.Errorf("pool %s is %+v, want %s", name, s, want)
		case s.Allocatable && !s.Finalizer:
			w.t.Errorf("pool %s hands out without its finalizer", name)
		}
	}
}

func (w *world) space(cidr string) block.Space { return w.block(cidr).Space }

func poolScenarios() []scenario {
	reconcile := func(w *world, c *Client) error {
		_, err := c.ReconcilePools(w.t.Context())
		return err
	}
	relabel := func(w *world, c *Client) error {
		_, err := c.RelabelBlocks(w.t.Context(), []netip.Prefix{netip.MustParsePrefix("10.0.0.0/28")})
		return err
	}
	two := func(w *world) {
		w.admitLater()
		w.pool("v4", "10.0.0.0/28", size(30))
		w.pool("v6", "fd00::/123", size(125))
		w.pass(1e9)
		w.pool("late", "10.0.0.0/24", size(30))
	}
	labelled := func(w *world) {
		w.admitLater()
		w.pool("v4", "10.0.0.0/28", size(30))
		w.reconcile()
		w.mustAttach(pod("node-a", "u1", "c1"), 5, 0) // two blocks
		w.reserve("all", "10.0.0.0/24")               // nothing is left to hand out of the second
	}
	full := func(w *world) { // or cooling, after everything was given back
		for _, e := range w.blocks() {
			if e.Value.Space == block.SpaceFree {
				w.t.Errorf("block %v is labelled %s", e.Key, e.Value.Space)
			}
		}
	}
	return []scenario{
		{method: "ReconcilePools", name: "case D10: three new, two overlap", setup: two, run: reconcile, after: func(w *world) {
			w.wantStatus(map[string]string{"v4": pool.ReasonOK, "v6": pool.ReasonOK, "late": pool.ReasonCIDROverlap})
		}},
		{method: "ReconcilePools", name: "decided already", setup: func(w *world) { two(w); w.reconcile() }, run: reconcile, reads: true},
		{method: "ReconcilePools", name: "a deleted pool goes, the one in its way is admitted", setup: func(w *world) {
			two(w)
			w.reconcile()
			w.deletePool("v4")
		}, run: reconcile, after: func(w *world) {
			w.wantStatus(map[string]string{"v4": "", "late": pool.ReasonOK})
		}},
		{method: "ReconcilePools", name: "a deleted pool in use stays", setup: func(w *world) {
			two(w)
			w.reconcile()
			w.mustAttach(pod("node-a", "u1", "c1"), 1, 0)
			w.deletePool("v4")
		}, run: reconcile, after: func(w *world) {
			w.wantStatus(map[string]string{"v4": pool.ReasonTerminating, "late": pool.ReasonCIDROverlap})
		}},
		{method: "RelabelBlocks", name: "two blocks", setup: labelled, run: relabel, after: full},
		{method: "RelabelBlocks", name: "as they should be", setup: func(w *world) {
			labelled(w)
			w.create(nil, relabel(w, w.c))
		}, run: relabel, reads: true, after: full},
	}
}
