// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// fields: every exported field of every type comes back. The samples of a type
// must between them set every field to something else than its zero value; a new
// field without a sample fails here.
func fields(t *testing.T, open Open) {
	s := open(t)
	full := fullBlock()
	if d := diff(1, len(full.Problems())); d != "" {
		t.Errorf("problems of the sample block: %q; want that of its one bad line", full.Problems())
	}
	kept(t, s.Blocks, viewBlock, map[netip.Prefix][]block.Block{full.CIDR: {full}}, "Deleting") // the store's
	var slots []block.Slot
	for a, want := range full.All() {
		got, ok := get(t, s.Blocks, full.CIDR).Value.Slot(a)
		if d := diff(want, got); !ok || d != "" {
			t.Errorf("slot %s (-want +got):\n%s", a, d)
		}
		slots = append(slots, want)
	}
	covered(t, slots)

	k := datastore.AffinityKey{Owner: block.Affinity{Type: block.VirtualAffinity, Name: "lb"}, CIDR: full.CIDR}
	kept(t, s.Affinities, func(a datastore.Affinity) any { return a }, map[datastore.AffinityKey][]datastore.Affinity{
		k: {{State: datastore.PendingDeletion, Pool: "v4", BlockSeq: 1<<63 + 1, PendingSince: time.Date(2026, 12, 1, 10, 0, 0, 1, time.UTC)}},
	})
	covered(t, []datastore.AffinityKey{k})
	kept(t, s.Handles, func(h datastore.Handle) any { return h }, map[block.HandleID][]datastore.Handle{
		"h": {{Addrs: []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.1")}, Releasing: true}},
	})
	kept(t, s.Reservations, func(r pool.Reservation) any { return r }, map[string][]pool.Reservation{
		"r": {{Name: "r", CIDRs: []netip.Prefix{cidr("10.0.0.0/8"), cidr("10.0.0.0/9")}}},
	})
	defaults := datastore.ConfigDefaults()
	kept(t, s.Config, func(c datastore.Config) any { return c }, map[string][]datastore.Config{
		datastore.DefaultConfig: {
			defaults,
			// Against each default: what is not written would come back as it.
			{StrictAffinity: true, MaxBlocksPerHost: 1000, IPCooldown: 20 * time.Minute, LeakGracePeriod: 0},
			{AutoAllocateBlocks: true, LeakGracePeriod: 1500 * time.Millisecond},
		},
	})
	kept(t, s.Pools, givenPool, map[string][]pool.Pool{"p": poolSamples()},
		"UID", "Generation", "Created", "Deleting", "Status") // the store's: see poolMetadata
}

// kept writes the samples of each key one after the other, and deletes the last.
func kept[K comparable, V any](t *testing.T, table datastore.Table[K, V], view func(V) any, samples map[K][]V, exempt ...string) {
	t.Helper()
	var all []V
	for k, vs := range samples {
		e := create(t, table, k, vs[0])
		for i, v := range vs {
			if i > 0 {
				e = update(t, table, e, v)
			}
			for what, got := range map[string]V{"write": e.Value, "get": get(t, table, k).Value} {
				if d := diff(view(v), view(got)); d != "" {
					t.Errorf("%T %v: %s (-want +got):\n%s", v, k, what, d)
				}
			}
		}
		all = append(all, vs...)
	}
	covered(t, all, exempt...)
}

// covered fails for each exported field that no sample sets.
func covered[V any](t *testing.T, samples []V, exempt ...string) {
	t.Helper()
	var vs []reflect.Value
	for _, s := range samples {
		vs = append(vs, reflect.ValueOf(s))
	}
	for path, set := range setFields(vs, "") {
		if !set && !slices.Contains(exempt, path) {
			t.Errorf("%T: no sample sets %s: add one, so that losing the field shows", samples[0], path)
		}
	}
}

// setFields returns each exported field by path, and whether any of vs sets it.
// Types of other modules are taken as one.
func setFields(vs []reflect.Value, path string) map[string]bool {
	out := map[string]bool{}
	typ := vs[0].Type()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if !f.IsExported() {
			continue
		}
		var inner []reflect.Value
		set := false
		for _, v := range vs {
			inner = append(inner, v.Field(i))
			set = set || !v.Field(i).IsZero()
		}
		name := f.Name
		if path != "" {
			name = path + "." + f.Name
		}
		out[name] = set
		if ours := f.Type == reflect.TypeFor[block.Owner]() || f.Type == reflect.TypeFor[block.Affinity]() ||
			f.Type == reflect.TypeFor[pool.Spec]() || f.Type == reflect.TypeFor[pool.Gateway](); ours {
			for p, s := range setFields(inner, name) {
				out[p] = s
			}
		}
	}
	return out
}

// fullBlock has a slot of each sort, with every field of a slot set in one of them.
func fullBlock() block.Block {
	owner := func(prefix string) string {
		return prefix + "net=net " + prefix + "pod=shop/db-0 " + prefix + "uid=u1 " + prefix + "cid=c1 " + prefix + "if=eth0 " +
			prefix + "node=node-a " + prefix + "vm=db " + prefix + "vmi=i1 " + prefix + "nodeuid=nu1"
	}
	return mustBlock(block.Wire{
		Format: 1, CIDR: "10.9.0.0/29", Affinity: "host:node-a", ClaimedAt: "2026-12-01T10:00:00.000000001Z",
		Sequence: "4611686018427387904", Queue: "7,0-3",
		Slots: []string{
			"4 allocated net.h1 4611686018427387904 type=vm since=2026-12-01T10:02:00.123456789Z " + owner("") + " " + owner("alt-") + " colour=green",
			"5 cooling - 12 type=workload released=2026-12-01T10:03:11.5Z last=net.h0 " + owner(""),
			"6 not a line",
		},
	}).Relabel("v4", nil)
}

func poolSamples() []pool.Pool {
	base := pool.Spec{CIDR: cidr("10.20.0.0/16"), BlockSize: 28}
	var out []pool.Pool
	for _, change := range []func(*pool.Spec){
		func(*pool.Spec) {},
		func(s *pool.Spec) { s.Gateway = pool.Gateway{First: true} },
		func(s *pool.Spec) { s.Gateway = pool.Gateway{Addr: netip.MustParseAddr("10.20.0.1")} },
		func(s *pool.Spec) { s.NodeSelector, s.NamespaceSelector = "rack in (a, b)", "team=x" },
		func(s *pool.Spec) { s.AllowedUses = []pool.Use{pool.UseLoadBalancer} },
		func(s *pool.Spec) { s.AssignmentMode, s.Disabled = pool.Manual, true },
		func(s *pool.Spec) { s.IPIPMode, s.NATOutgoing = pool.CrossSubnet, true },
		func(s *pool.Spec) { s.VXLANMode = pool.Always },
	} {
		s := base
		change(&s)
		out = append(out, pool.Pool{Name: "p", Spec: spec(s)})
	}
	return out
}
