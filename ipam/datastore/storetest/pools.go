// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// poolMetadata: what the store gives a pool, whatever its writer put there.
func poolMetadata(t *testing.T, open Open) {
	table := open(t).Pools
	p := poolFixture().objects[0].one
	p.UID, p.Generation, p.Created = "mine", 77, time.Unix(1, 0)
	p.Status = pool.Status{Finalizer: true, Allocatable: true, Reason: "Mine", Message: "mine", ObservedGeneration: 77}
	e := create(t, table, p.Name, p)
	v := e.Value
	if v.UID != e.UID || v.Generation != 1 || v.Created.Equal(p.Created) || v.Created.IsZero() || v.Deleting || v.Status.Reason == "Mine" {
		t.Errorf("created pool: %+v; want the store's UID %s, generation 1, a time of creation and status", v, e.UID)
	}
	again := update(t, table, e, e.Value)
	if again.Value.Generation != 1 {
		t.Errorf("generation %d after an update that changed nothing; want 1", again.Value.Generation)
	}
	changed := again.Value
	changed.Spec.NATOutgoing = true
	changed.UID, changed.Created = "mine", time.Unix(1, 0)
	next := update(t, table, again, changed)
	if next.Value.Generation != 2 || next.Value.UID != e.UID || !next.Value.Created.Equal(v.Created) {
		t.Errorf("changed pool: %+v; want generation 2, UID %s, created %v", next.Value, e.UID, v.Created)
	}
	changed.Spec.CIDR = cidr("10.99.0.0/16")
	moved := next
	moved.Value = changed
	_, err := table.Update(t.Context(), moved)
	if !errors.Is(err, datastore.ErrRefused) || !strings.Contains(err.Error(), "spec.cidr") {
		t.Errorf("a pool with another CIDR: %v; want it refused, naming spec.cidr", err)
	}
	invalid := next
	invalid.Value.Spec.BlockSize = 3
	_, err = table.Update(t.Context(), invalid)
	if !errors.Is(err, datastore.ErrRefused) || !strings.Contains(err.Error(), "spec.blockSize") {
		t.Errorf("a pool of blockSize 3: %v; want it refused, naming spec.blockSize", err)
	}
	unchanged(t, table, poolFixture(), next)
}

// admission is decided in the transaction of the change: whoever reads next sees
// it (case D10, C8).
func admission(t *testing.T, open Open) {
	s := open(t)
	status := func(name string, allocatable bool, reason string) datastore.Entry[string, pool.Pool] {
		t.Helper()
		e := get(t, s.Pools, name)
		if st := e.Value.Status; st.Allocatable != allocatable || st.Reason != reason || st.ObservedGeneration != e.Value.Generation {
			t.Errorf("pool %s: %+v at generation %d; want allocatable %v, %s", name, st, e.Value.Generation, allocatable, reason)
		}
		return e
	}
	mk := func(name, c string, size int) {
		t.Helper()
		p := pool.Pool{Name: name, Spec: pool.Spec{CIDR: cidr(c), BlockSize: size}}
		e := create(t, s.Pools, name, p)
		if now := get(t, s.Pools, name); now.Rev != e.Rev || now.Value.Status != e.Value.Status {
			t.Errorf("pool %s: created with %+v, read as %+v", name, e.Value.Status, now.Value.Status)
		}
	}
	mk("z-first", "10.0.0.0/16", 28)
	first := status("z-first", true, pool.ReasonOK)
	if !first.Value.Status.Finalizer {
		t.Error("an admitted pool has no finalizer")
	}
	mk("a-second", "10.0.128.0/17", 28)
	second := status("a-second", false, pool.ReasonCIDROverlap)
	if now := status("z-first", true, pool.ReasonOK); now.Rev != first.Rev {
		t.Error("a pool whose status did not change was written (INV-16)")
	}
	mk("aside", "10.1.0.0/16", 28)
	status("aside", true, pool.ReasonOK)

	remove(t, s.Pools, status("z-first", true, pool.ReasonOK))
	if now := status("a-second", true, pool.ReasonOK); now.Value.Generation != second.Value.Generation {
		t.Error("admission made a new generation")
	}
	p := status("aside", true, pool.ReasonOK)
	v := p.Value
	v.Spec.Disabled = true
	update(t, s.Pools, p, v)
	status("aside", false, pool.ReasonDisabled)

	// Blocks and claims of another size, pending ones too.
	b := emptyBlock("10.2.0.0/29", "node-a", "")
	create(t, s.Blocks, b.CIDR, b)
	k := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: cidr("10.2.0.8/29")}
	claim := create(t, s.Affinities, k, datastore.Affinity{State: datastore.Pending})
	mk("sized", "10.2.0.0/16", 28)
	status("sized", false, pool.ReasonBlockSizeConflict)
	remove(t, s.Blocks, get(t, s.Blocks, b.CIDR)) // labelled with its pool since
	status("sized", false, pool.ReasonBlockSizeConflict)
	remove(t, s.Affinities, claim)
	status("sized", true, pool.ReasonOK)
	create(t, s.Affinities, k, datastore.Affinity{State: datastore.Pending})
	status("sized", false, pool.ReasonBlockSizeConflict)
}

// relabel: the blocks whose space label a change of pools or reservations makes
// untrue are written with it, and no others (INV-13, INV-16).
func relabel(t *testing.T, open Open) {
	s := open(t)
	create(t, s.Pools, "v4", pool.Pool{Name: "v4", Spec: pool.Spec{CIDR: cidr("10.0.0.0/24"), BlockSize: 30}})
	create(t, s.Pools, "other", pool.Pool{Name: "other", Spec: pool.Spec{CIDR: cidr("10.1.0.0/24"), BlockSize: 30}})
	last := map[string]datastore.Rev{}
	for _, b := range []block.Block{
		emptyBlock("10.0.0.0/30", "node-a", "v4"), emptyBlock("10.0.0.4/30", "node-a", "v4"),
		mustBlock(block.Wire{
			CIDR: "10.0.0.8/30", Affinity: "host:node-a", Sequence: "5", Queue: "0,2,3",
			Slots: []string{"1 cooling - 5 type=workload released=2026-12-01T10:00:00Z last=h"},
		}).Relabel("v4", nil),
		emptyBlock("10.1.0.0/30", "node-a", "other"),
	} {
		last[b.CIDR.String()] = create(t, s.Blocks, b.CIDR, b).Rev
	}
	// expect gives the blocks that are labelled otherwise than free; those named in
	// written, and no others, have another revision than before.
	expect := func(what string, want map[string]block.Space, written ...string) {
		t.Helper()
		for c, rev := range last {
			e := get(t, s.Blocks, cidr(c))
			space, ok := want[c]
			if !ok {
				space = block.SpaceFree
			}
			if e.Value.Space != space {
				t.Errorf("%s: block %s is labelled %s; want %s", what, c, e.Value.Space, space)
			}
			if err := e.Value.Check(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			moved := false
			for _, w := range written {
				moved = moved || w == c
			}
			if (e.Rev != rev) != moved {
				t.Errorf("%s: block %s written: %v; want %v (INV-16)", what, c, e.Rev != rev, moved)
			}
			last[c] = e.Rev
		}
	}
	expect("at first", nil)
	r := create(t, s.Reservations, "r", pool.Reservation{Name: "r", CIDRs: []netip.Prefix{cidr("10.0.0.0/29")}})
	both := map[string]block.Space{"10.0.0.0/30": block.SpaceFull, "10.0.0.4/30": block.SpaceFull}
	expect("reservation of two blocks", both, "10.0.0.0/30", "10.0.0.4/30")
	es, err := s.Blocks.List(t.Context(), datastore.Query{Pool: "v4", Space: []block.Space{block.SpaceFree}})
	if err != nil || len(es) != 1 {
		t.Errorf("free blocks: %d, %v; want 1", len(es), err)
	}
	r = update(t, s.Reservations, r, pool.Reservation{Name: "r", CIDRs: []netip.Prefix{
		cidr("10.0.0.4/30"), cidr("10.0.0.8/32"), cidr("10.0.0.10/31"), cidr("192.0.2.0/24"),
	}})
	expect("reservation moved", map[string]block.Space{"10.0.0.4/30": block.SpaceFull, "10.0.0.8/30": block.SpaceCooling},
		"10.0.0.0/30", "10.0.0.8/30")
	remove(t, s.Reservations, r)
	expect("reservation gone", nil, "10.0.0.4/30", "10.0.0.8/30")

	create(t, s.Reservations, "near", pool.Reservation{Name: "near", CIDRs: []netip.Prefix{cidr("10.0.0.1/32"), cidr("10.0.0.2/31")}})
	expect("all but the base reserved", nil)
	p := get(t, s.Pools, "v4")
	v := p.Value
	v.Spec.Gateway = pool.Gateway{First: true}
	p = update(t, s.Pools, p, v)
	expect("gateway at the base", map[string]block.Space{"10.0.0.0/30": block.SpaceFull}, "10.0.0.0/30")
	v.Spec.Gateway = pool.Gateway{Addr: netip.MustParseAddr("10.0.0.200")}
	v.Spec.NATOutgoing = true
	update(t, s.Pools, p, v)
	expect("gateway elsewhere", nil, "10.0.0.0/30")
}

func poolDelete(t *testing.T, open Open) {
	s := open(t)
	p := create(t, s.Pools, "v4", pool.Pool{Name: "v4", Spec: pool.Spec{CIDR: cidr("10.0.0.0/24"), BlockSize: 30}})
	b := create(t, s.Blocks, cidr("10.0.0.0/30"), emptyBlock("10.0.0.0/30", "node-a", "v4"))
	k := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: cidr("10.0.0.4/30")}
	a := create(t, s.Affinities, k, datastore.Affinity{State: datastore.Pending, Pool: "v4"})
	inUse := func(what string) {
		t.Helper()
		err := s.Pools.Delete(t.Context(), p)
		wantErr(t, what, err, errOther)
		if err != nil && !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s: %v; want to be told that it is in use", what, err)
		}
		unchanged(t, s.Pools, poolFixture(), p)
	}
	inUse("delete of a pool with a block and a claim")
	remove(t, s.Blocks, b)
	inUse("delete of a pool with a pending claim")
	remove(t, s.Affinities, a)
	remove(t, s.Pools, p)
	_, err := s.Pools.Get(t.Context(), "v4")
	wantErr(t, "get of a deleted pool", err, datastore.ErrNotFound)
}
