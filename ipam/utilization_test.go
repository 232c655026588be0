// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

func counts(u pool.Usage) string {
	return fmt.Sprintf("%v = %v in use + %v cooling + %v reserved + %v available",
		u.Capacity, u.Allocated, u.Cooling, u.Reserved, u.Available)
}

func (u Utilization) rows() []string {
	var out []string
	for _, p := range u.Pools {
		out = append(out, p.Name+" "+counts(p.Usage))
		for _, b := range p.Blocks {
			out = append(out, b.CIDR.String()+" "+b.Affinity.String()+" "+counts(b.Usage))
		}
	}
	for _, b := range u.Orphans {
		out = append(out, "orphan "+b.CIDR.String()+" "+b.Affinity.String()+" "+counts(b.Usage))
	}
	return out
}

// orphan stores a block with one address in use that no pool contains.
func (w *world) orphan(cidr string) {
	w.t.Helper()
	p := netip.MustParsePrefix(cidr)
	b, err := block.New(p, block.Host("node-z"), 1, epoch)
	w.create(nil, err)
	b, _ = b.Allocate(block.Request{N: 1, Handle: "lb-1", Type: block.LoadBalancer, Now: epoch})
	w.create(w.mem.Store().Blocks.Create(w.t.Context(), p, b.Relabel("gone", nil)))
	w.ledger[block.Attachment{}] = append(w.ledger[block.Attachment{}], p.Addr())
}

// INV-13: the figures are those of pool.UsageOf, for pools and blocks; orphans of both
// families are reported and have nothing available.
func TestUtilization(t *testing.T) {
	w := newWorld(t)
	w.pool("big", "fd00::/48", func(s *pool.Spec) { s.Gateway.First = true })
	w.pool("v4", "10.0.0.0/28", size(29))
	w.reserve("r", "10.0.0.6/31", "10.0.0.12/30", "10.0.0.0/32")
	w.config(func(c *datastore.Config) { c.IPCooldown = time.Minute })
	old, late := pod("node-a", "u1", "c1"), pod("node-a", "u2", "c2")
	for _, o := range []block.Owner{old, late} {
		if _, err := w.attach(w.c, with(request(o, 0, 0), map[string]string{"c1": "10.0.0.1", "c2": "10.0.0.2"}[o.ContainerID])); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.attach(w.c, with(request(pod("node-a", "u3", "c3"), 0, 0), "10.0.0.0")); err != nil { // reserved, by name
		t.Fatal(err)
	}
	w.mustDetach(old)
	w.pass(time.Minute) // its cooldown has passed, though nobody has collected it
	w.mustDetach(late)
	w.orphan("192.0.2.0/30")
	w.orphan("2001:db8::/126")

	got, err := w.c.Utilization(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"big 1208925819614629174706176 = 0 in use + 0 cooling + 18889465931478580854784 reserved + 1190036353683150593851392 available",
		"v4 16 = 1 in use + 1 cooling + 6 reserved + 8 available",
		"10.0.0.0/29 host:node-a 8 = 1 in use + 1 cooling + 2 reserved + 4 available",
		"orphan 192.0.2.0/30 host:node-z 4 = 1 in use + 0 cooling + 3 reserved + 0 available",
		"orphan 2001:db8::/126 host:node-z 4 = 1 in use + 0 cooling + 3 reserved + 0 available",
	}
	if rows := got.rows(); !slices.Equal(rows, want) {
		t.Errorf("got  %q\nwant %q", rows, want)
	}
	for _, names := range [][]string{{"v4"}, {"10.0.0.0/28"}, {"v4", "10.0.0.0/28"}} {
		if got, err := w.c.Utilization(t.Context(), names...); err != nil || !slices.Equal(got.rows(), want[1:3]) {
			t.Errorf("%v: %q, %v", names, got.rows(), err)
		}
	}
	if _, err := w.c.Utilization(t.Context(), "v4", "10.0.0.0/29"); !errors.Is(err, ErrNoPool) {
		t.Errorf("a CIDR of no pool: %v", err)
	}
}

// The gateway "first" of a /48 costs nothing to count (INV-16); an overlapping pool
// that hands out nothing counts for nothing.
func TestNumReservedIPsInCIDR(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/24", func(s *pool.Spec) { s.BlockSize, s.Gateway.Addr = 26, netip.MustParseAddr("10.0.0.1") })
	w.pool("a", "10.0.0.0/25", func(s *pool.Spec) { s.BlockSize, s.Gateway.Addr = 26, netip.MustParseAddr("10.0.0.2") }) // overlaps
	w.pool("v6", "fd00::/48", func(s *pool.Spec) { s.BlockSize, s.Gateway.First = 122, true })
	w.reserve("r", "10.0.0.0/30", "10.0.0.2/31", "10.0.0.128/25", "10.0.1.0/31", "fd00::/122")
	for cidr, want := range map[string]string{
		"10.0.0.0/24":   "132", // the gateway is reserved besides
		"10.0.0.0/8":    "134",
		"10.0.0.4/30":   "0",
		"10.0.0.129/32": "1",
		"fd00::/48":     "18889465931478580854847",
		"fd00::40/122":  "1",
		"::/0":          "18889465931478580854847",
		"192.0.2.0/24":  "0",
	} {
		got, err := w.c.NumReservedIPsInCIDR(t.Context(), netip.MustParsePrefix(cidr))
		if err != nil || got.String() != want {
			t.Errorf("%s: %v, %v; want %s", cidr, got, err, want)
		}
	}
	if _, err := w.c.NumReservedIPsInCIDR(t.Context(), netip.Prefix{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("no CIDR: %v", err)
	}
}
