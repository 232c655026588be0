// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

const holder = "example.org/hold"

// hold gives an object a finalizer as another writer would, and returns what takes it
// away again.
func hold(t *testing.T, kind, name string) (free func()) {
	t.Helper()
	o := object(t, kind, name)
	o.SetFinalizers([]string{holder})
	write(t, kind, o)
	return func() {
		t.Helper()
		o := object(t, kind, name)
		o.SetFinalizers(nil)
		write(t, kind, o)
	}
}

// held wants an error of Delete that is a fault, so that nobody takes the object for
// gone, and says who holds it.
func held(t *testing.T, kind string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), holder) || !strings.Contains(err.Error(), kind) {
		t.Errorf("delete of a held %s: %v; want an error that names %s", kind, err, holder)
	}
	for _, sentinel := range []error{datastore.ErrNotFound, datastore.ErrConflict, datastore.ErrExists, datastore.ErrRefused} {
		if errors.Is(err, sentinel) {
			t.Errorf("delete of a held %s: %v is %v", kind, err, sentinel)
		}
	}
}

// stays holds an object, deletes it, and looks at it in every way before and after it
// is let go.
func stays[K comparable, V any](t *testing.T, table datastore.Table[K, V], kind, name string, k K, v V) {
	t.Helper()
	first := create(t, table, k, v)
	free := hold(t, kind, name)
	changes := pull(t, table)
	changes.want(t, datastore.Put, k)
	var none K
	changes.want(t, datastore.Synced, none)

	if err := table.Delete(t.Context(), first); !errors.Is(err, datastore.ErrConflict) {
		t.Errorf("%s: delete at a revision before the finalizer: %v; want %v", kind, err, datastore.ErrConflict)
	}
	for range 2 {
		e, err := table.Get(t.Context(), k)
		if err != nil || e.UID != first.UID {
			t.Fatalf("%s: get of a held object: UID %s, %v; want %s", kind, e.UID, err, first.UID)
		}
		held(t, kind, table.Delete(t.Context(), e))
		es, err := table.List(t.Context(), datastore.Query{})
		if err != nil || len(es) != 1 || es[0].UID != first.UID {
			t.Errorf("%s: list with a held object: %v, %v; want it", kind, es, err)
		}
		if _, err := table.Create(t.Context(), k, v); !errors.Is(err, datastore.ErrExists) {
			t.Errorf("%s: create over a held object: %v; want %v", kind, err, datastore.ErrExists)
		}
	}
	if o := object(t, kind, name); o.GetDeletionTimestamp() == nil || len(o.GetFinalizers()) != 1 {
		t.Errorf("%s: %v with finalizers %v; want it deleting and held", kind, o.GetDeletionTimestamp(), o.GetFinalizers())
	}
	changes.want(t, datastore.Put, k) // marked as deleted, not gone

	free()
	changes.want(t, datastore.Deleted, k)
	if _, err := table.Get(t.Context(), k); !errors.Is(err, datastore.ErrNotFound) {
		t.Errorf("%s: get after its release: %v; want %v", kind, err, datastore.ErrNotFound)
	}
}

// INV-10: an object that somebody else's finalizer holds is not reported as gone.
func TestHeldObjectStays(t *testing.T) {
	s, _ := open(t)
	st := s.Store()
	k := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: cidr}
	stays(t, st.Blocks, v1alpha1.KindBlock, v1alpha1.BlockName(cidr), cidr, newBlock(t, "node-a"))
	stays(t, st.Affinities, v1alpha1.KindAffinity, v1alpha1.AffinityName(k), k, datastore.Affinity{State: datastore.PendingDeletion})
	stays(t, st.Handles, v1alpha1.KindHandle, "h", "h", datastore.Handle{})
	p := pool.Pool{Name: "v4", Spec: pool.Spec{CIDR: netip.MustParsePrefix("10.64.0.0/16")}}
	stays(t, st.Pools, v1alpha1.KindPool, "v4", "v4", p)
	stays(t, st.Reservations, v1alpha1.KindReservation, "r", "r", pool.Reservation{Name: "r", CIDRs: []netip.Prefix{cidr}})
	stays(t, st.Config, v1alpha1.KindConfiguration, "default", "default", datastore.ConfigDefaults())
}

// A pool with our finalizer only is deleted as it should be.
func TestDeletedPoolWaitsForAdmission(t *testing.T) {
	s, _ := open(t)
	create(t, s.Store().Pools, "v4", pool.Pool{Name: "v4", Spec: pool.Spec{CIDR: netip.MustParsePrefix("10.64.0.0/16")}})
	e := admit(t, s, "v4")
	if err := s.Store().Pools.Delete(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	e, err := s.Store().Pools.Get(t.Context(), "v4")
	if err != nil || !e.Value.Deleting {
		t.Errorf("get: deleting %v, %v; want it there, deleting", e.Value.Deleting, err)
	}
}

// INV-1: what is given out of a block that is being deleted would vanish with it. It
// takes releases only.
func TestDeletingBlockGivesNothingOut(t *testing.T) {
	s, c := open(t)
	table, name := s.Store().Blocks, v1alpha1.BlockName(cidr)
	b, _ := newBlock(t, "node-a").Allocate(block.Request{N: 2, Handle: "h1", Type: block.Workload, Now: epoch})
	create(t, table, cidr, b)
	free := hold(t, v1alpha1.KindBlock, name)
	e, err := table.Get(t.Context(), cidr)
	if err != nil {
		t.Fatal(err)
	}
	held(t, v1alpha1.KindBlock, table.Delete(t.Context(), e))
	if e, err = table.Get(t.Context(), cidr); err != nil {
		t.Fatal(err)
	}
	more, _ := e.Value.Allocate(block.Request{N: 1, Handle: "h2", Type: block.Workload, Now: epoch})
	for what, v := range map[string]block.Block{
		"an allocation": more, "a change of affinity": e.Value.WithAffinity(block.Host("node-b"), epoch),
	} {
		c.take()
		next := e
		next.Value = v
		_, err := table.Update(t.Context(), next)
		if !errors.Is(err, datastore.ErrRefused) || !strings.Contains(err.Error(), holder) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v; want a refusal that names block and holder", what, err)
		}
		if made := c.take(); len(made) > 0 {
			t.Errorf("%s: calls %q; want none", what, made)
		}
	}
	e.Value, _ = e.Value.ReleaseHandle("h1", epoch)
	if e, err = table.Update(t.Context(), e); err != nil || e.Value.Counts().Allocated != 0 {
		t.Errorf("release: %d allocated, %v; want none", e.Value.Counts().Allocated, err)
	}
	free()
	if _, err := table.Get(t.Context(), cidr); !errors.Is(err, datastore.ErrNotFound) {
		t.Errorf("get of the block that was let go: %v; want %v", err, datastore.ErrNotFound)
	}
}

// An ADD passes a block by that is being deleted, and says so when there is no other;
// what the block has given is released.
func TestAddPassesADeletingBlockBy(t *testing.T) {
	s, _ := open(t)
	admittedPool(t, s, "10.0.0.0/29", 30)
	c := ipam.New(s.Store(), ipam.Options{Clock: s})
	attach := func(id string) (netip.Prefix, error) {
		got, err := c.Attach(t.Context(), request("node-a", id, 1))
		if err != nil {
			return netip.Prefix{}, err
		}
		return got.V4[0].Block, nil
	}
	first, err := attach("first")
	if err != nil {
		t.Fatal(err)
	}
	name := v1alpha1.BlockName(first)
	free := hold(t, v1alpha1.KindBlock, name)
	e, err := s.Store().Blocks.Get(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	held(t, v1alpha1.KindBlock, s.Store().Blocks.Delete(t.Context(), e))
	for i := range 4 {
		if b, err := attach(fmt.Sprint("more-", i)); err != nil || b == first {
			t.Errorf("ADD %d: block %v, %v; want the other block", i, b, err)
		}
	}
	if _, err := attach("none"); !errors.Is(err, ipam.ErrExhausted) || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("ADD with the block being deleted alone: %v", err)
	}
	detach(t, c, "first")
	free()
}
