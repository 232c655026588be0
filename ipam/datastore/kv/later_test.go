// SPDX-License-Identifier: Apache-2.0

package kv_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/pool"
)

// With AdmitLater the tables decide as little as an API server's: nothing of a pool but
// its generation, no label, and a pool with a finalizer goes only without it.
func TestAdmitLater(t *testing.T) {
	s := memstore.New(memstore.Options{AdmitLater: true}).Store()
	e, err := s.Pools.Create(t.Context(), "v4", pool.Pool{Spec: pool.Spec{CIDR: cidr("10.0.0.0/24"), BlockSize: 30}})
	if err != nil || e.Value.Status != (pool.Status{}) || e.Value.Generation != 1 {
		t.Fatalf("create: %+v, %v", e.Value, err)
	}
	old := e
	e.Value.Status = pool.Status{Finalizer: true, Allocatable: true, Reason: pool.ReasonOK, ObservedGeneration: 1}
	if e, err = s.PoolStatus(t.Context(), e); err != nil || !e.Value.Status.Allocatable || !e.Value.Status.Finalizer || e.Value.Generation != 1 {
		t.Fatalf("status: %+v, %v", e.Value, err)
	}
	if _, err := s.PoolStatus(t.Context(), old); !errors.Is(err, datastore.ErrConflict) {
		t.Errorf("status by an old revision: %v", err)
	}
	e.Value.Spec.Disabled, e.Value.Status = true, pool.Status{}
	if e, err = s.Pools.Update(t.Context(), e); err != nil || !e.Value.Status.Allocatable || e.Value.Generation != 2 {
		t.Fatalf("update: %+v, %v; want generation 2, the status as it was", e.Value, err)
	}
	b, err := s.Blocks.Create(t.Context(), cidr("10.0.0.0/30"), emptyBlock(t, "10.0.0.0/30"))
	if err == nil {
		_, err = s.Reservations.Create(t.Context(), "r", pool.Reservation{CIDRs: []netip.Prefix{cidr("10.0.0.0/24")}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if b, err = s.Blocks.Get(t.Context(), b.Key); err != nil || b.Value.Space != block.SpaceFree {
		t.Errorf("label %s, %v", b.Value.Space, err)
	}
	for range 2 { // the second time it is deleting already
		if err := s.Pools.Delete(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if e, err = s.Pools.Get(t.Context(), "v4"); err != nil || !e.Value.Deleting {
			t.Fatalf("after delete: %+v, %v", e.Value, err)
		}
	}
	e.Value.Status.Finalizer = false
	if _, err := s.PoolStatus(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pools.Get(t.Context(), "v4"); !errors.Is(err, datastore.ErrNotFound) {
		t.Errorf("without a finalizer: %v", err)
	}
}
