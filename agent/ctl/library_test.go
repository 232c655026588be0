// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kv"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/pool"
)

// Whatever the library does, check finds nothing wrong with it after any step,
// and show counts what check counts (INV-4, INV-13).
func TestAuditOfLibrarysWork(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, rt)
		rt.Repeat(map[string]func(*rapid.T){
			"attach": w.attach,
			"detach": w.detach,
			"time": func(rt *rapid.T) {
				w.clock.SetTime(w.clock.Now().Add(time.Duration(rapid.IntRange(1, 90).Draw(rt, "seconds")) * time.Second))
			},
			"config":  w.configure,
			"release": w.releaseAffinity,
			"reserve": w.reserve,
			"":        w.check,
		})
	})
}

type world struct {
	t      *testing.T
	db     kv.DB
	store  datastore.Store
	client *ipam.Client
	clock  *testingclock.FakePassiveClock
	live   []block.Attachment
	nodes  map[block.Attachment]string
	next   int
}

func newWorld(t *testing.T, rt *rapid.T) *world {
	c := testingclock.NewFakePassiveClock(time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC))
	db := memstore.New(memstore.Options{})
	w := &world{t: t, db: db, clock: c, nodes: map[block.Attachment]string{}}
	w.store = kv.New(db, kv.Options{Clock: c})
	w.client = ipam.New(w.store, ipam.Options{Clock: c})
	for _, p := range []pool.Pool{
		{Name: "v4", Spec: pool.Spec{CIDR: netip.MustParsePrefix("10.64.0.0/28"), BlockSize: 30, Gateway: pool.Gateway{First: true}}.WithDefaults()},
		{Name: "v6", Spec: pool.Spec{CIDR: netip.MustParsePrefix("fd00::/124"), BlockSize: 127}.WithDefaults()},
	} {
		if _, err := w.store.Pools.Create(t.Context(), p.Name, p); err != nil {
			rt.Fatal(err)
		}
	}
	return w
}

func (w *world) attach(rt *rapid.T) {
	node := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "node")
	w.next++
	a := block.Attachment{Network: "net", ContainerID: fmt.Sprint("c", w.next), IfName: "eth0"}
	r := ipam.AttachRequest{AutoAssignRequest: ipam.AutoAssignRequest{
		Num4: rapid.IntRange(0, 2).Draw(rt, "num4"), Num6: rapid.IntRange(0, 1).Draw(rt, "num6"),
		Host: pool.Node{Name: node}, Use: pool.UseWorkload,
		Owner: block.Owner{
			Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName, Node: node,
			Namespace: "shop", Pod: fmt.Sprint("p", w.next), PodUID: fmt.Sprint("u", w.next),
		},
	}}
	if r.Num4+r.Num6 == 0 {
		r.Num4 = 1
	}
	switch _, err := w.client.Attach(w.t.Context(), r); {
	case err == nil:
		w.live = append(w.live, a)
		w.nodes[a] = node
	case !errors.Is(err, ipam.ErrExhausted):
		rt.Fatal(err)
	}
}

func (w *world) detach(rt *rapid.T) {
	if len(w.live) == 0 {
		rt.Skip("nothing attached")
	}
	i := rapid.IntRange(0, len(w.live)-1).Draw(rt, "which")
	a := w.live[i]
	if _, err := w.client.Detach(w.t.Context(), ipam.DetachRequest{Attachment: a, Node: w.nodes[a]}); err != nil {
		rt.Fatal(err)
	}
	w.live = append(w.live[:i], w.live[i+1:]...)
}

func (w *world) configure(rt *rapid.T) {
	c := datastore.ConfigDefaults()
	c.StrictAffinity = rapid.Bool().Draw(rt, "strict")
	c.IPCooldown = time.Duration(rapid.IntRange(0, 60).Draw(rt, "cooldown")) * time.Second
	if err := w.client.SetConfig(w.t.Context(), c); err != nil {
		rt.Fatal(err)
	}
}

func (w *world) releaseAffinity(rt *rapid.T) {
	all, err := w.store.Affinities.List(w.t.Context(), datastore.Query{})
	if err != nil {
		rt.Fatal(err)
	}
	if len(all) == 0 {
		rt.Skip("no affinity")
	}
	e := rapid.SampledFrom(all).Draw(rt, "affinity")
	if err := w.client.ReleaseAffinity(w.t.Context(), e.Key, rapid.Bool().Draw(rt, "mustBeEmpty")); err != nil && !errors.Is(err, ipam.ErrBlockNotEmpty) {
		rt.Fatal(err)
	}
}

func (w *world) reserve(rt *rapid.T) {
	r := pool.Reservation{Name: "r", CIDRs: []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 64, 0, byte(rapid.IntRange(0, 15).Draw(rt, "first"))}), 31).Masked(),
	}}
	if _, err := put(w.t.Context(), w.store.Reservations, r.Name, replace(r)); err != nil {
		rt.Fatal(err)
	}
}

func (w *world) check(rt *rapid.T) {
	var s Snapshot
	err := w.db.View(w.t.Context(), func(tx kv.Tx) error { s = decodeSnapshot(tx); return nil })
	if err != nil {
		rt.Fatal(err)
	}
	r := Audit(s)
	for _, p := range r.Problems {
		if p.Severity == SeverityProblem {
			rt.Errorf("%s %s: %s", p.Code, p.Object, p.What)
		}
	}
	var allocated, cooling int64
	for _, p := range s.poolRows() {
		sum := new(big.Int)
		for _, n := range []string{p.Allocated, p.Cooling, p.Reserved, p.Available} {
			sum.Add(sum, number(n))
		}
		if sum.String() != p.Capacity {
			rt.Errorf("pool %s: capacity %s, the parts sum up to %s", p.Name, p.Capacity, sum)
		}
		allocated += number(p.Allocated).Int64()
		cooling += number(p.Cooling).Int64()
	}
	if int(allocated) != r.Summary.Allocated || int(cooling) != r.Summary.Cooling {
		rt.Errorf("show counts %d allocated, %d cooling; check %d, %d", allocated, cooling, r.Summary.Allocated, r.Summary.Cooling)
	}
	if rows := s.addressRows(); len(rows) != r.Summary.Allocated+r.Summary.Cooling {
		rt.Errorf("show lists %d addresses, check counts %d", len(rows), r.Summary.Allocated+r.Summary.Cooling)
	}
	if lost := s.poolless(); len(lost) > 0 {
		rt.Errorf("blocks without pool: %v", lost)
	}
}

func number(s string) *big.Int {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		panic("not a number: " + s)
	}
	return n
}
