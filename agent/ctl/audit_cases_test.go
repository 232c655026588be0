// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"errors"
	"maps"
	"net/netip"
	"testing"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

var unmasked = pool.Reservation{Name: "r", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.99.0.1/24")}}

const blockA = "block 10.64.0.64/29"

var auditCases = []struct {
	name  string
	plant func(t *testing.T, s *Snapshot)
	want  []finding
}{
	{name: "sound", plant: func(*testing.T, *Snapshot) {}},
	{name: "empty store", plant: func(_ *testing.T, s *Snapshot) { *s = Snapshot{} }},
	{
		name: "object that does not decode",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Unreadable = append(s.Unreadable, Unreadable{"block 10-64-0-72-29", errors.New("cut short")})
		},
		want: []finding{{UnreadableObject, "block 10-64-0-72-29", "cut short"}},
	},
	{
		name: "INV-2 line that does not parse",
		plant: func(t *testing.T, s *Snapshot) {
			s.Blocks[0] = stored(t, wire(func(w *block.Wire) { w.Slots[0] = "1 haunted x" }))
		},
		want: []finding{{UnreadableLine, blockA, `line "1 haunted x": slot line: 3 tokens; want ordinal, state, handle, sequence`}},
	},
	{
		name: "INV-4 ordinal in no state",
		plant: func(t *testing.T, s *Snapshot) {
			s.Blocks[0] = stored(t, wire(func(w *block.Wire) { w.Queue = "0,2-3,5-6" }))
		},
		want: []finding{{UnreadableLine, blockA, "ordinal 7 is neither free nor in a line"}},
	},
	{
		name: "INV-4 value that breaks its own rules",
		plant: func(_ *testing.T, s *Snapshot) {
			b := s.Blocks[0]
			b.Seq = 1015
			s.Blocks[0] = b
		},
		want: []finding{{BlockInvalid, blockA, "block 10.64.0.64/29: ordinal 1 has sequence 1020 above the block's 1015 (INV-15)"}},
	},
	{
		name: "format of a newer version",
		plant: func(t *testing.T, s *Snapshot) {
			s.Blocks[0] = stored(t, wire(func(w *block.Wire) { w.Format = 7 }))
		},
		want: []finding{{
			NewerFormat, blockA,
			"block 10.64.0.64/29 has format 7, this version writes up to 1: block format is newer than this version can write (upgrade allod on this host)",
		}},
	},
	{
		name: "allocated without a handle",
		plant: func(t *testing.T, s *Snapshot) {
			s.Blocks[0] = stored(t, wire(func(w *block.Wire) { w.Slots[0] = "1 allocated - 1020 type=workload" }))
		},
		want: []finding{{UnknownOwner, blockA, "address 10.64.0.65 is allocated without a handle"}},
	},
	{
		name: "INV-1 address in two blocks, case C8",
		plant: func(t *testing.T, s *Snapshot) {
			inner := stored(t, wire(func(w *block.Wire) {
				w.CIDR, w.Affinity, w.ClaimedAt, w.Sequence = "10.64.0.64/30", "", "", "2020"
				w.Queue, w.Slots = "0,2-3", []string{lineOther}
			}))
			s.Blocks = append(s.Blocks, inner)
			s.Pools = pool.Admit(s.Pools, []netip.Prefix{inner.CIDR})
		},
		want: []finding{
			{PoolNotAllocatable, "pool default-v4", "BlockSizeConflict: block 10.64.0.64/30 has another size than spec.blockSize 29 (blocks of other sizes: 1); set spec.blockSize to 30, or release them"},
			{BlockOutsidePool, "block 10.64.0.64/30", "pool default-v4 is 10.64.0.0/16 in blocks of /29"},
			{OverlappingBlocks, "block 10.64.0.64/30", "it lies in block 10.64.0.64/29 of pool default-v4; its own pool is default-v4"},
			{DuplicateAddress, "address 10.64.0.65", "allocated to pod shop/web-0 in block 10.64.0.64/29 and to pod shop/web-1 in block 10.64.0.64/30"},
		},
	},
	{
		name: "one block stored twice",
		plant: func(t *testing.T, s *Snapshot) {
			s.Blocks = append(s.Blocks, stored(t, wire(nil)))
		},
		want: []finding{
			{OverlappingBlocks, blockA, "it lies in block 10.64.0.64/29 of pool default-v4; its own pool is default-v4"},
			{DuplicateAddress, "address 10.64.0.65", "allocated to pod shop/web-0 in block 10.64.0.64/29 and to pod shop/web-0 in block 10.64.0.64/29"},
		},
	},
	{
		name: "INV-1 gateway that a pod has",
		plant: func(_ *testing.T, s *Snapshot) {
			p := s.Pools[0]
			p.Spec.Gateway = pool.Gateway{Addr: netip.MustParseAddr("10.64.0.65")}
			s.Pools[0] = p
		},
		want: []finding{{GatewayInUse, "address 10.64.0.65", "it is the gateway of pool default-v4 and allocated to pod shop/web-0, handle net.3f9c"}},
	},
	{
		name:  "pool of a block is gone",
		plant: func(_ *testing.T, s *Snapshot) { s.Pools = nil },
		want:  []finding{{PoolMissing, blockA, `its pool "default-v4" does not exist; 1 of its addresses is allocated`}},
	},
	{
		name: "block outside its pool",
		plant: func(_ *testing.T, s *Snapshot) {
			p := testPool()
			p.Spec.CIDR = netip.MustParsePrefix("10.65.0.0/16")
			s.Pools = pool.Admit([]pool.Pool{p}, nil)
		},
		want: []finding{{BlockOutsidePool, blockA, "pool default-v4 is 10.65.0.0/16 in blocks of /29"}},
	},
	{
		name: "labels that disagree with the content",
		plant: func(_ *testing.T, s *Snapshot) {
			l := maps.Clone(s.Blocks[0].Labels)
			delete(l, v1alpha1.NodeLabel("node-a"))
			l[v1alpha1.LabelEmpty] = "true"
			l[v1alpha1.LabelSpace] = "full"
			l["somebody.example/else"] = "kept"
			s.Blocks[0].Labels = l
		},
		want: []finding{{
			LabelsDisagree, blockA,
			`ipam.allod.io/empty is "true", want "false"; ipam.allod.io/space is "full", want "free"; ` +
				v1alpha1.NodeLabel("node-a") + " is missing, want \"\"",
		}},
	},
	{
		name: "label of a node that has nothing here",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Blocks[0].Labels = maps.Clone(s.Blocks[0].Labels)
			s.Blocks[0].Labels[v1alpha1.NodeLabel("node-z")] = ""
		},
		want: []finding{{LabelsDisagree, blockA, v1alpha1.NodeLabel("node-z") + " is there without reason"}},
	},
	{
		name: "INV-13 space label that knows a reservation which is gone",
		plant: func(t *testing.T, s *Snapshot) {
			all := pool.Reservation{Name: "r", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.64.0.64/29")}}
			s.Blocks[0] = stored(t, wire(nil), all)
		},
		want: []finding{{LabelsDisagree, blockA, `ipam.allod.io/space is "full", want "free"`}},
	},
	{
		name: "space label that promises too much is no problem",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Reservations = []pool.Reservation{{Name: "r", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.64.0.64/29")}}}
		},
	},
	{
		name:  "INV-6 block names an owner that has no affinity",
		plant: func(_ *testing.T, s *Snapshot) { s.Affinities = nil },
		want:  []finding{{AffinityMissing, blockA, "it names host:node-a, which has no affinity for it"}},
	},
	{
		name:  "INV-6 affinity is given up while its block names it",
		plant: func(_ *testing.T, s *Snapshot) { s.Affinities[0].State = datastore.PendingDeletion },
		want:  []finding{{AffinityReleasing, blockA, "it names host:node-a, whose affinity is pendingDeletion"}},
	},
	{
		name:  "claim not finished",
		plant: func(_ *testing.T, s *Snapshot) { s.Affinities[0].State = datastore.Pending },
		want:  []finding{{AffinityPending, "affinity 10.64.0.64/29 of host:node-a", "it is pending although its block names it"}},
	},
	{
		name: "claim without a block yet",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Affinities = append(s.Affinities, claim("node-b", "10.64.0.72/29", datastore.Pending, 0))
		},
		want: []finding{{AffinityPending, "affinity 10.64.0.72/29 of host:node-b", "it is pending and its block does not exist yet"}},
	},
	{
		name: "block of a confirmed affinity is gone",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Affinities = append(s.Affinities, claim("node-b", "10.64.0.72/29", datastore.Confirmed, 5))
		},
		want: []finding{{BlockMissing, "affinity 10.64.0.72/29 of host:node-b", "it is confirmed and its block does not exist"}},
	},
	{
		name: "release cut short after the block went",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Affinities = append(s.Affinities, claim("node-b", "10.64.0.72/29", datastore.PendingDeletion, 5))
		},
		want: []finding{{AffinityStale, "affinity 10.64.0.72/29 of host:node-b", "it is pendingDeletion and its block is gone"}},
	},
	{
		name: "INV-15 affinity above its block",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Affinities[0].BlockSeq = 4000
		},
		want: []finding{{AffinityAhead, "affinity 10.64.0.64/29 of host:node-a", "it was claimed at sequence 4000, the block is at 1020"}},
	},
	{
		name:  "affinity names another pool",
		plant: func(_ *testing.T, s *Snapshot) { s.Affinities[0].Pool = "other" },
		want:  []finding{{AffinityPool, "affinity 10.64.0.64/29 of host:node-a", `it names pool "other", the block pool "default-v4"`}},
	},
	{
		name: "block taken over, old affinity left",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Affinities = append(s.Affinities, claim("node-b", "10.64.0.64/29", datastore.Confirmed, 900))
		},
		want: []finding{{AffinityStale, "affinity 10.64.0.64/29 of host:node-b", "it is confirmed, the block names host:node-a"}},
	},
	{
		name: "case D9 two affinities of one block both route",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Affinities = append(s.Affinities, claim("node-b", "10.64.0.64/29", datastore.Confirmed, 1010))
		},
		want: []finding{{
			AffinityAmbiguous, "affinity 10.64.0.64/29 of host:node-b",
			"it is confirmed at sequence 1010, the block names host:node-a, confirmed at 1000",
		}},
	},
	{
		name: "block given up, affinity left",
		plant: func(t *testing.T, s *Snapshot) {
			s.Blocks[0] = stored(t, wire(func(w *block.Wire) { w.Affinity, w.ClaimedAt = "", "" }))
		},
		want: []finding{{AffinityStale, "affinity 10.64.0.64/29 of host:node-a", "it is confirmed, the block names nobody"}},
	},
	{
		name: "case D10 overlapping pools",
		plant: func(_ *testing.T, s *Snapshot) {
			late := testPool()
			late.Name = "late"
			late.Spec.CIDR = netip.MustParsePrefix("10.64.128.0/17")
			s.Pools = pool.Admit(append(s.Pools, late), nil)
		},
		want: []finding{{
			PoolNotAllocatable, "pool late",
			"CIDROverlap: 10.64.128.0/17 overlaps pool default-v4 (10.64.0.0/16), which goes first; delete one of the two",
		}},
	},
	{
		name: "disabled pool is no problem",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Pools[0].Spec.Disabled = true
			s.Pools = pool.Admit(s.Pools, nil)
		},
	},
	{
		name:  "INV-13 stored admission is not what Admit decides",
		plant: func(_ *testing.T, s *Snapshot) { s.Pools[0].Spec.Disabled = true; s.Pools[0].Generation = 2 },
		want:  []finding{{PoolStatusOutdated, "pool default-v4", "status is OK for generation 1; it should be Disabled for generation 2"}},
	},
	{
		name:  "pool that nobody has looked at",
		plant: func(_ *testing.T, s *Snapshot) { s.Pools[0].Status = pool.Status{} },
		want:  []finding{{PoolStatusOutdated, "pool default-v4", "nobody has looked at it yet; its status should be OK"}},
	},
	{
		name:  "pool whose status was removed",
		plant: func(_ *testing.T, s *Snapshot) { s.Pools[0].Status = pool.Status{Finalizer: true} },
		want: []finding{{
			PoolStatusOutdated, "pool default-v4",
			"its status was removed, or its admission was cut short; its status should be OK",
		}},
	},
	{
		name:  "pool whose finalizer was removed",
		plant: func(_ *testing.T, s *Snapshot) { s.Pools[0].Status.Finalizer = false },
		want:  []finding{{PoolStatusOutdated, "pool default-v4", "its finalizer ipam.allod.io/pool is missing"}},
	},
	{
		name: "pool in use without a finalizer, which its admission does not put back",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Pools[0].Spec.Disabled, s.Pools[0].Status = true, pool.Status{}
			s.Pools = pool.Admit(s.Pools, nil)
		},
		want: []finding{{PoolUnprotected, "pool default-v4", "its finalizer ipam.allod.io/pool is missing and blocks of it exist"}},
	},
	{
		name:  "deletion that nobody carries out",
		plant: func(_ *testing.T, s *Snapshot) { s.Pools[0].Deleting, s.Pools[0].Generation = true, 2 },
		want:  []finding{{PoolTerminating, "pool default-v4", "status is OK for generation 1; it should be Terminating for generation 2"}},
	},
	{
		name: "deletion under way is no problem",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Pools[0].Deleting = true
			s.Pools = pool.Admit(s.Pools, nil)
		},
	},
	{
		name: "invalid pool",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Pools[0].Spec.AssignmentMode = "Sometimes"
			s.Pools = pool.Admit(s.Pools, nil)
		},
		want: []finding{
			{PoolInvalid, "pool default-v4", `spec.assignmentMode: unknown mode "Sometimes"; use Automatic or Manual`},
			{PoolNotAllocatable, "pool default-v4", `Invalid: spec.assignmentMode: unknown mode "Sometimes"; use Automatic or Manual`},
		},
	},
	{
		name: "invalid reservation",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Reservations = []pool.Reservation{unmasked}
		},
		want: []finding{{ReservationInvalid, "reservation r", unmasked.Validate().Error()}},
	},
	{
		name: "configuration that breaks its rules",
		plant: func(_ *testing.T, s *Snapshot) {
			s.Config = &datastore.Config{AutoAllocateBlocks: true, MaxBlocksPerHost: -1}
		},
		want: []finding{{ConfigurationFaulty, "configuration default", "spec.maxBlocksPerHost: -1 is negative; 0 means 20"}},
	},
}
