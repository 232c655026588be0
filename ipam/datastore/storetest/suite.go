// SPDX-License-Identifier: Apache-2.0

// Package storetest is the conformance suite of datastore: what every store must
// do, as tests. A store that passes can stand below the library. The package
// reaches a store through its tables only.
package storetest

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// Open returns an empty store that lives as long as the test.
type Open func(t *testing.T) datastore.Store

type options struct{ admission, verbatim bool }

// Option says what a store does otherwise.
type Option func(*options)

// WithoutAdmission is for stores that leave pool admission and the labels of
// blocks after a change of pools and reservations to somebody else.
func WithoutAdmission() Option { return func(o *options) { o.admission = false } }

// Reencoding is for stores that write JSON anew: of a field that this version does
// not know they keep the value, not the text, nor its place among others.
func Reencoding() Option { return func(o *options) { o.verbatim = false } }

// Run runs the suite. Each test opens a store of its own.
func Run(t *testing.T, open func(t *testing.T) datastore.Store, opts ...Option) {
	o := options{admission: true, verbatim: true}
	for _, opt := range opts {
		opt(&o)
	}
	t.Run("Blocks", func(t *testing.T) { conform(t, open, blockFixture()) })
	t.Run("Affinities", func(t *testing.T) { conform(t, open, affinityFixture()) })
	t.Run("Handles", func(t *testing.T) { conform(t, open, handleFixture()) })
	t.Run("Pools", func(t *testing.T) { conform(t, open, poolFixture()) })
	t.Run("Reservations", func(t *testing.T) { conform(t, open, reservationFixture()) })
	t.Run("Config", func(t *testing.T) { conform(t, open, configFixture()) })
	for name, test := range map[string]func(*testing.T, Open){
		"Fields":        fields,
		"BlockQueries":  blockQueries,
		"ClaimQueries":  claimQueries,
		"Unknown":       func(t *testing.T, open Open) { unknown(t, open, o.verbatim) },
		"NewerFormat":   newerFormat,
		"Names":         names,
		"LostUpdate":    lostUpdate,
		"OneCreatorWin": oneCreatorWins,
		"Refused":       refused,
		"PoolMetadata":  poolMetadata,
	} {
		t.Run(name, func(t *testing.T) { test(t, open) })
	}
	if o.admission {
		t.Run("Admission", func(t *testing.T) { admission(t, open) })
		t.Run("Relabel", func(t *testing.T) { relabel(t, open) })
		t.Run("PoolDelete", func(t *testing.T) { poolDelete(t, open) })
	}
}

// object is a key with two values that differ.
type object[K comparable, V any] struct {
	key        K
	one, other V
}

// fixture is what the tests that every table passes have to know of one.
type fixture[K comparable, V any] struct {
	of      func(datastore.Store) datastore.Table[K, V]
	objects []object[K, V] // in the order that List returns
	view    func(V) any    // what a writer gave, in a comparable form
}

func (f fixture[K, V]) same(t *testing.T, what string, want, got V) {
	t.Helper()
	if d := diff(f.view(want), f.view(got)); d != "" {
		t.Errorf("%s: not what was written (-want +got):\n%s", what, d)
	}
}

func diff(want, got any) string {
	return cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty())
}

// blockView is everything of a block: its stored form and its labels.
type blockView struct {
	Wire   block.Wire
	Labels block.Labels
}

func viewBlock(b block.Block) any { return blockView{Wire: block.Encode(b), Labels: b.Labels()} }

func cidr(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// epoch is the time in the values; the suite reads no clock.
var epoch = time.Date(2026, 12, 1, 10, 0, 0, 123456789, time.UTC)

func mustBlock(w block.Wire) block.Block {
	b, err := block.Decode(w)
	if err != nil {
		panic(err) // the suite's own text
	}
	return b
}

// blockSeq is the sequence of every block here: it never falls (INV-15).
const blockSeq = 9

// emptyBlock is a block of node with nothing in it.
func emptyBlock(c, node, pool string) block.Block {
	b, err := block.New(cidr(c), block.Host(node), blockSeq, epoch)
	if err != nil {
		panic(err) // the suite's own text
	}
	return b.Relabel(pool, nil)
}

func blockFixture() fixture[netip.Prefix, block.Block] {
	used := mustBlock(block.Wire{
		Format: 1, CIDR: "10.64.0.8/29", Affinity: "host:node-a", ClaimedAt: "2026-12-01T10:00:00Z", Sequence: "9", Queue: "7,0-3,5",
		Slots: []string{
			"4 cooling - 8 type=workload released=2026-12-01T10:03:11Z last=net.77 net=net pod=shop/web-9 uid=u9 cid=77 if=eth0 node=node-a",
			"6 allocated net.3f 9 type=workload since=2026-12-01T10:02:00Z net=net pod=shop/web-0 uid=u0 cid=3f if=eth0 node=node-b",
		},
	}).Relabel("v4", nil)
	return fixture[netip.Prefix, block.Block]{
		of:   func(s datastore.Store) datastore.Table[netip.Prefix, block.Block] { return s.Blocks },
		view: viewBlock,
		objects: []object[netip.Prefix, block.Block]{
			{cidr("10.64.0.8/29"), emptyBlock("10.64.0.8/29", "node-a", "v4"), used},
			// By name, 10-64-0-16-29 would come first.
			{cidr("10.64.0.16/29"), emptyBlock("10.64.0.16/29", "node-a", "v4"), emptyBlock("10.64.0.16/29", "", "v4")},
			{cidr("fd00::40/122"), emptyBlock("fd00::40/122", "node-b", "v6"), emptyBlock("fd00::40/122", "node-c", "v6")},
		},
	}
}

func affinityFixture() fixture[datastore.AffinityKey, datastore.Affinity] {
	key := func(o block.Affinity, c string) datastore.AffinityKey {
		return datastore.AffinityKey{Owner: o, CIDR: cidr(c)}
	}
	one := datastore.Affinity{State: datastore.Pending, Pool: "v4"}
	other := datastore.Affinity{State: datastore.Confirmed, Pool: "v4", BlockSeq: 1<<64 - 1}
	return fixture[datastore.AffinityKey, datastore.Affinity]{
		of: func(s datastore.Store) datastore.Table[datastore.AffinityKey, datastore.Affinity] {
			return s.Affinities
		},
		view: func(a datastore.Affinity) any { return a },
		objects: []object[datastore.AffinityKey, datastore.Affinity]{
			{key(block.Host("node-a"), "10.64.0.8/29"), one, other},
			{key(block.Host("node-a"), "10.64.0.16/29"), one, other},
			{key(block.Host("node-b"), "10.64.0.0/29"), one, other},
			{key(block.Affinity{Type: block.VirtualAffinity, Name: "load-balancer"}, "10.64.0.0/29"), one, other},
		},
	}
}

func handleFixture() fixture[block.HandleID, datastore.Handle] {
	one := datastore.Handle{Addrs: []netip.Addr{netip.MustParseAddr("10.64.0.9"), netip.MustParseAddr("fd00::41")}}
	other := datastore.Handle{Addrs: []netip.Addr{netip.MustParseAddr("10.64.0.10")}, Releasing: true}
	return fixture[block.HandleID, datastore.Handle]{
		of:   func(s datastore.Store) datastore.Table[block.HandleID, datastore.Handle] { return s.Handles },
		view: func(h datastore.Handle) any { return h },
		objects: []object[block.HandleID, datastore.Handle]{
			{"lb-1", one, other}, {"lb-2", one, other}, {"net.shop-vm-0a1b2c3d", one, datastore.Handle{}},
		},
	}
}

// spec is a pool's with its defaults filled in.
func spec(s pool.Spec) pool.Spec { return s.WithDefaults() }

// givenPool is what an operator gives of a pool; the rest is the store's.
func givenPool(p pool.Pool) any {
	return struct {
		Name string
		Spec pool.Spec
	}{p.Name, p.Spec}
}

func poolFixture() fixture[string, pool.Pool] {
	v4 := pool.Spec{CIDR: cidr("10.64.0.0/16"), BlockSize: 29}
	v6 := pool.Spec{CIDR: cidr("fd00::/64"), BlockSize: 122}
	with := func(name string, s pool.Spec, change func(*pool.Spec)) pool.Pool {
		s.AllowedUses = slices.Clone(s.AllowedUses)
		change(&s)
		return pool.Pool{Name: name, Spec: spec(s)}
	}
	same := func(*pool.Spec) {}
	return fixture[string, pool.Pool]{
		of:   func(s datastore.Store) datastore.Table[string, pool.Pool] { return s.Pools },
		view: givenPool,
		objects: []object[string, pool.Pool]{
			{"v4", with("v4", v4, same), with("v4", v4, func(s *pool.Spec) { s.NodeSelector = "rack == a" })},
			{"v6", with("v6", v6, same), with("v6", v6, func(s *pool.Spec) { s.Disabled = true })},
		},
	}
}

func reservationFixture() fixture[string, pool.Reservation] {
	one := func(name string) pool.Reservation {
		return pool.Reservation{Name: name, CIDRs: []netip.Prefix{cidr("10.64.0.0/28"), cidr("10.64.0.0/30"), cidr("fd00::/128")}}
	}
	other := func(name string) pool.Reservation {
		return pool.Reservation{Name: name, CIDRs: []netip.Prefix{cidr("10.64.1.1/32")}}
	}
	return fixture[string, pool.Reservation]{
		of:      func(s datastore.Store) datastore.Table[string, pool.Reservation] { return s.Reservations },
		view:    func(r pool.Reservation) any { return r },
		objects: []object[string, pool.Reservation]{{"a", one("a"), other("a")}, {"b", one("b"), other("b")}},
	}
}

func configFixture() fixture[string, datastore.Config] {
	return fixture[string, datastore.Config]{
		of:   func(s datastore.Store) datastore.Table[string, datastore.Config] { return s.Config },
		view: func(c datastore.Config) any { return c },
		objects: []object[string, datastore.Config]{{
			datastore.DefaultConfig, datastore.ConfigDefaults(),
			datastore.Config{StrictAffinity: true, MaxBlocksPerHost: 3, IPCooldown: time.Minute, LeakGracePeriod: 90 * time.Second},
		}},
	}
}
