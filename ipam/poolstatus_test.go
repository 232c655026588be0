// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// A claim that is only pending keeps a deleted pool (design, pool admission): whoever
// wrote it may be about to create the block.
func TestReconcilePoolsWaitsForPendingClaims(t *testing.T) {
	w := newWorld(t)
	w.admitLater()
	w.pool("v4", "10.0.0.0/28", size(30))
	w.reconcile()
	key := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: netip.MustParsePrefix("10.0.0.0/30")}
	e, err := w.mem.Store().Affinities.Create(t.Context(), key, datastore.Affinity{State: datastore.Pending, Pool: "v4"})
	w.create(nil, err)
	w.deletePool("v4")
	w.reconcile()
	w.wantStatus(map[string]string{"v4": pool.ReasonTerminating})
	w.create(nil, w.mem.Store().Affinities.Delete(t.Context(), e))
	w.reconcile()
	w.wantStatus(map[string]string{"v4": ""})
}

// Between the lists of ReconcilePools and its writes a rival acts.
func TestReconcilePoolsAgainstRivals(t *testing.T) {
	for name, tt := range map[string]struct {
		rival func(w *world)
		want  map[string]string
	}{
		"the pool is changed": {func(w *world) {
			w.editPool("v4", func(s *pool.Spec) { s.Disabled = true })
		}, map[string]string{"v4": pool.ReasonDisabled}},
		"the pool is deleted": {func(w *world) { w.deletePool("v4") }, map[string]string{"v4": ""}},
		"another is there by now, and late": {func(w *world) {
			w.pool("a", "10.0.0.0/24", size(30))
		}, map[string]string{"a": pool.ReasonCIDROverlap, "v4": pool.ReasonOK}},
		"another of the same age is admitted by now: the name decides": {func(w *world) {
			w.pool("a", "10.0.0.0/24", size(30))
			w.reconcile()
		}, map[string]string{"a": pool.ReasonOK, "v4": pool.ReasonCIDROverlap}},
		"it is re-created": {func(w *world) {
			w.deletePool("v4")
			w.pool("v4", "10.1.0.0/28", size(30))
		}, map[string]string{"v4": pool.ReasonOK}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.admitLater()
			w.pool("v4", "10.0.0.0/28", size(30))
			s := w.mem.Store()
			store, acted := s.PoolStatus, false
			s.PoolStatus = func(ctx context.Context, e poolEntry) (poolEntry, error) {
				if !acted {
					acted = true
					tt.rival(w)
				}
				return store(ctx, e)
			}
			got, err := New(s, Options{Clock: w.clock}).ReconcilePools(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			w.wantStatus(tt.want)
			stored, err := w.mem.Store().Pools.List(t.Context(), datastore.Query{})
			w.create(nil, err)
			if len(got) != len(stored) {
				t.Errorf("it returns %d pools, %d are stored", len(got), len(stored))
			}
			w.reconcile() // it is at rest
			w.wantStatus(tt.want)
		})
	}
}

func (w *world) editPool(name string, set func(*pool.Spec)) {
	w.t.Helper()
	e, err := w.mem.Store().Pools.Get(w.t.Context(), name)
	w.create(nil, err)
	set(&e.Value.Spec)
	w.create(w.mem.Store().Pools.Update(w.t.Context(), e))
}

// Case R14: one pool that cannot be written keeps no other.
func TestReconcilePoolsTriesAll(t *testing.T) {
	w := newWorld(t)
	w.admitLater()
	for i, name := range []string{"a", "b", "c"} {
		w.pool(name, netip.AddrFrom4([4]byte{10, byte(i), 0, 0}).String()+"/24", nil)
	}
	s := w.mem.Store()
	store, broken := s.PoolStatus, datastore.Refused(errors.New("admission webhook"))
	s.PoolStatus = func(ctx context.Context, e poolEntry) (poolEntry, error) {
		if e.Key == "b" {
			return poolEntry{}, broken
		}
		return store(ctx, e)
	}
	if _, err := New(s, Options{Clock: w.clock}).ReconcilePools(t.Context()); !errors.Is(err, datastore.ErrRefused) {
		t.Errorf("error %v", err)
	}
	w.wantStatus(map[string]string{"a": pool.ReasonOK, "c": pool.ReasonOK})
}

// On a store that admits with each write there is nothing to do.
func TestReconcilePoolsOfEmbeddedStore(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(30))
	c, faults := w.process("p")
	got, err := c.ReconcilePools(t.Context())
	if err != nil || len(got) != 1 || !got[0].Status.Allocatable || faults.Writes() != 0 {
		t.Errorf("%+v, %v after %d writes", got, err, faults.Writes())
	}
}

// Labels follow a reservation that came, one that went, and a gateway; blocks outside
// the ranges are not touched.
func TestRelabelBlocks(t *testing.T) {
	w := newWorld(t)
	w.admitLater()
	w.pool("v4", "10.0.0.0/28", size(31))
	w.reconcile()
	w.mustAttach(pod("node-a", "u1", "c1"), 1, 0)
	in := w.blocks()[0].Key
	free := in.Addr()
	if _, taken := w.block(in.String()).Slot(free); taken {
		free = free.Next()
	}
	relabel := func(want block.Space, wrote int, within ...string) {
		t.Helper()
		var cidrs []netip.Prefix
		for _, s := range within {
			cidrs = append(cidrs, netip.MustParsePrefix(s))
		}
		got, err := w.c.RelabelBlocks(t.Context(), cidrs)
		if err != nil || len(got) != wrote || w.space(in.String()) != want {
			t.Errorf("wrote %v, %v, label %s; want %d and %s", got, err, w.space(in.String()), wrote, want)
		}
	}
	relabel(block.SpaceFree, 0)
	w.reserve("r", free.String()+"/32")
	relabel(block.SpaceFree, 0, "10.1.0.0/16")
	relabel(block.SpaceFull, 1, free.String()+"/32")
	e, err := w.mem.Store().Reservations.Get(t.Context(), "r")
	w.create(nil, err)
	w.create(nil, w.mem.Store().Reservations.Delete(t.Context(), e))
	relabel(block.SpaceFree, 1, "10.0.0.0/8")
	if got := w.blocks(); !slices.ContainsFunc(got, func(e blockEntry) bool { return e.Value.Counts().Allocated == 1 }) {
		t.Error("the allocation is gone")
	}
	w.editPool("v4", func(s *pool.Spec) { s.Gateway.Addr = free })
	relabel(block.SpaceFull, 1, "10.0.0.0/28")
}

// The lists of blocks and claims are read once when nobody interferes: with many blocks
// they are what costs.
func TestReconcilePoolsReads(t *testing.T) {
	w := newWorld(t)
	w.admitLater()
	w.pool("a", "10.0.0.0/24", nil)
	w.pool("b", "10.0.0.0/16", nil)
	counted, blocks := w.mem.Store(), 0
	counted.Blocks = countLists{counted.Blocks, &blocks}
	c := New(counted, Options{Clock: w.clock})
	for range 2 {
		if _, err := c.ReconcilePools(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if blocks != 2 {
		t.Errorf("blocks were listed %d times, want once a call", blocks)
	}
}

type countLists struct {
	datastore.Table[netip.Prefix, block.Block]
	n *int
}

func (c countLists) List(ctx context.Context, q datastore.Query) ([]blockEntry, error) {
	*c.n++
	return c.Table.List(ctx, q)
}

// partial is a store in which an object cannot be read.
type partial[K comparable, V any] struct{ datastore.Table[K, V] }

var errUnreadable = errors.New("one cannot be read")

func (p partial[K, V]) List(ctx context.Context, q datastore.Query) ([]datastore.Entry[K, V], error) {
	if q.Strict {
		return nil, errUnreadable
	}
	return p.Table.List(ctx, q)
}

// INV-14: what cannot be read may be what stands in the way of a grant, or what a deleted
// pool waits for.
func TestReconcilePoolsDecidesNothingOnPartialLists(t *testing.T) {
	for name, spoil := range map[string]func(*datastore.Store){
		"a block": func(s *datastore.Store) { s.Blocks = partial[netip.Prefix, block.Block]{s.Blocks} },
		"a claim": func(s *datastore.Store) {
			s.Affinities = partial[datastore.AffinityKey, datastore.Affinity]{s.Affinities}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.admitLater()
			w.pool("goes", "10.0.0.0/28", size(30))
			w.reconcile()
			w.deletePool("goes")
			w.pool("new", "10.1.0.0/28", size(30))
			s := w.mem.Store()
			spoil(&s)
			if _, err := New(s, Options{Clock: w.clock}).ReconcilePools(t.Context()); !errors.Is(err, errUnreadable) {
				t.Errorf("error %v", err)
			}
			if s, there := w.statusOf("goes"); !there || !s.Finalizer {
				t.Errorf("the pool is there: %v, %+v", there, s)
			}
			if s, _ := w.statusOf("new"); s.Allocatable {
				t.Errorf("the new pool hands out")
			}
		})
	}
}

// INV-2: an empty block stays while a claim cannot be read: it may be for that block.
func TestUnusedBlockStaysWhileAClaimCannotBeRead(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(30))
	owner := pod("node-a", "u", "c")
	w.mustAttach(owner, 1, 0)
	w.create(nil, w.detach(w.c, owner))
	s := w.mem.Store()
	s.Affinities = partial[datastore.AffinityKey, datastore.Affinity]{s.Affinities}
	if err := New(s, Options{Clock: w.clock}).ReleaseHostAffinities(t.Context(), "node-a", true); !errors.Is(err, errUnreadable) {
		t.Errorf("error %v", err)
	}
	if n := len(w.blocks()); n != 1 {
		t.Errorf("%d blocks are left, want 1", n)
	}
	if err := w.c.ReleaseHostAffinities(t.Context(), "node-a", true); err != nil {
		t.Error(err)
	}
}

// A block that is labelled with a pool that is gone is of the pool that contains it: it
// keeps that, is released with it, and is found when its labels are to be made.
func TestBlockOfAPoolThatIsGone(t *testing.T) {
	stranded := func(t *testing.T) (*world, string) {
		w := newWorld(t)
		w.admitLater()
		w.pool("v4", "10.0.0.0/29", size(30))
		w.reconcile()
		w.mustAttach(pod("node-a", "u1", "c1"), 1, 0)
		w.deletePool("v4")
		w.letGo("v4") // by hand
		w.pool("new", "10.0.0.0/29", size(30))
		w.reconcile()
		w.wantStatus(map[string]string{"new": pool.ReasonOK})
		return w, w.blocks()[0].Key.String()
	}
	t.Run("it keeps the pool", func(t *testing.T) {
		w, _ := stranded(t)
		w.deletePool("new")
		w.reconcile()
		w.wantStatus(map[string]string{"new": pool.ReasonTerminating})
		w.mustDetach(pod("node-a", "u1", "c1"))
		w.create(nil, w.c.ReleasePoolAffinities(t.Context(), "new"))
		if left := w.blocks(); len(left) > 0 {
			t.Errorf("blocks are left: %v", left)
		}
		w.reconcile()
		w.wantStatus(map[string]string{"new": ""})
	})
	t.Run("its labels are made", func(t *testing.T) {
		w, cidr := stranded(t)
		w.reserve("r", "10.0.0.0/29")
		got, err := w.c.RelabelBlocks(t.Context(), []netip.Prefix{netip.MustParsePrefix("10.0.0.0/29")})
		if b := w.block(cidr); err != nil || len(got) != 1 || b.Pool != "new" || b.Space != block.SpaceFull {
			t.Errorf("wrote %v, %v: labels %+v", got, err, b.Labels())
		}
	})
}
