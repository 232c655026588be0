// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// take returns the first n blocks of a walk.
func take(n int, p Pool, host string, taken []netip.Prefix, rs []Reservation) []netip.Prefix {
	var out []netip.Prefix
	for b := range Walk(p, host, taken, NewUnassignable(p, rs)) {
		out = append(out, b)
		if len(out) == n {
			break
		}
	}
	return out
}

func TestWalk(t *testing.T) {
	for _, c := range []struct {
		name     string
		pool     Pool
		taken    []netip.Prefix
		reserved []Reservation
		want     []netip.Prefix // in any order: where it starts is the host's
	}{
		{"every block", small("10.0.0.0/24", 26, ""), nil, nil, cidrs("10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26", "10.0.0.192/26")},
		{"case C5: one block of one address", small("10.0.0.7/32", 32, ""), nil, nil, cidrs("10.0.0.7/32")},
		{"case C5: /31", small("10.0.0.6/31", 31, ""), nil, nil, cidrs("10.0.0.6/31")},
		{"case C5: /127", small("fd00::6/127", 128, ""), nil, nil, cidrs("fd00::6/128", "fd00::7/128")},
		{"not those taken", small("10.0.0.0/24", 26, ""), cidrs("10.0.0.0/26", "10.0.0.192/26"), nil, cidrs("10.0.0.64/26", "10.0.0.128/26")},
		{"all taken", small("10.0.0.0/24", 26, ""), cidrs("10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26", "10.0.0.192/26"), nil, nil},
		{"case C8: blocks of other sizes take what they overlap", small("10.0.0.0/24", 26, ""), cidrs("10.0.0.64/28", "10.0.0.128/25"), nil, cidrs("10.0.0.0/26")},
		{"a block wider than the pool takes it all", small("10.0.0.0/26", 26, ""), cidrs("10.0.0.0/24"), nil, nil},
		{"taken elsewhere", small("10.0.0.0/26", 26, ""), cidrs("10.0.0.64/26", "fd00::/122"), nil, cidrs("10.0.0.0/26")},
		{"INV-13: not those wholly reserved", small("10.0.0.0/24", 26, ""), nil, reserve("10.0.0.0/25"), cidrs("10.0.0.128/26", "10.0.0.192/26")},
		{"those reserved in part", small("10.0.0.0/25", 26, ""), nil, reserve("10.0.0.0/27", "10.0.0.32/28"), cidrs("10.0.0.0/26", "10.0.0.64/26")},
		{"not those with a gateway and the rest reserved", small("10.0.0.0/29", 30, "first"), nil, reserve("10.0.0.1/32", "10.0.0.2/31"), cidrs("10.0.0.4/30")},
		{"gateways only", small("10.0.0.0/30", 32, "first"), nil, nil, nil},
		{"case C1: top of the address space", small("255.255.255.0/24", 25, ""), cidrs("255.255.255.128/25"), nil, cidrs("255.255.255.0/25")},
		{"case C2: a block size that does not fit", small("10.0.0.0/24", 20, ""), nil, nil, nil},
		{"no pool", Pool{}, nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := take(100, c.pool, "node-a", c.taken, c.reserved)
			less := cmpopts.SortSlices(func(a, b netip.Prefix) int { return a.Compare(b) })
			if d := cmp.Diff(c.want, got, less, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
				t.Errorf("blocks (-want +got):\n%s", d)
			}
		})
	}
}

// TestWalkAgainstMap: each block that is not taken and not wholly unassignable is
// visited exactly once, in address order but for the one wrap, beginning at the
// same place whatever is taken.
func TestWalkAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPool(t)
		rs := drawReservations(t, p)
		host := rapid.SampledFrom([]string{"node-a", "node-b", "node-c", ""}).Draw(t, "host")
		var taken []netip.Prefix
		for range rapid.IntRange(0, 5).Draw(t, "taken") {
			taken = append(taken, drawPrefix(t, p.Spec.CIDR.Addr().String(), 5))
		}
		everyBlock := slices.Collect(Walk(p, host, nil, Unassignable{}))
		if len(everyBlock) != len(blocksOf(p)) {
			t.Fatalf("%d blocks in an empty pool; want %d", len(everyBlock), len(blocksOf(p)))
		}
		un := unassignableOf(p, rs)
		var want []netip.Prefix
		for _, b := range wrapped(blocksOf(p), everyBlock[0]) {
			useful := slices.ContainsFunc(addressesOf(b), func(a netip.Addr) bool { return !un[a] })
			isTaken := slices.ContainsFunc(addressesOf(b), func(a netip.Addr) bool {
				return slices.ContainsFunc(taken, func(c netip.Prefix) bool { return c.Contains(a) })
			})
			if useful && !isTaken {
				want = append(want, b)
			}
		}
		walk := Walk(p, host, taken, NewUnassignable(p, rs))
		got := slices.Collect(walk)
		if !slices.Equal(got, want) {
			t.Fatalf("got %v; want %v", got, want)
		}
		if again := slices.Collect(walk); !slices.Equal(again, want) {
			t.Fatalf("ranged over again: %v; want %v", again, want)
		}
	})
}

// wrapped returns the same blocks beginning with first.
func wrapped(blocks []netip.Prefix, first netip.Prefix) []netip.Prefix {
	i := slices.Index(blocks, first)
	return slices.Concat(blocks[i:], blocks[:i])
}

func TestWalkSpreadsHosts(t *testing.T) {
	for _, p := range []Pool{small("10.0.0.0/8", 26, ""), small("fd00::/48", 122, "")} {
		starts := map[netip.Prefix]bool{}
		for i := range 1000 {
			b := take(1, p, fmt.Sprintf("node-%d", i), nil, nil)
			starts[b[0]] = true
			if again := take(1, p, fmt.Sprintf("node-%d", i), nil, nil); again[0] != b[0] {
				t.Fatalf("%v: node-%d starts at %v, then at %v", p.Spec.CIDR, i, b, again)
			}
		}
		if len(starts) < 990 { // of 262,144 places, 2 in 1,000 collide by chance
			t.Errorf("%v: 1000 hosts start at %d places", p.Spec.CIDR, len(starts))
		}
	}
}

// TestWalkCostsNothing (INV-16, case C3): the work for the first blocks is the
// same in a /48 that is half reserved as in a pool of four blocks.
func TestWalkCostsNothing(t *testing.T) {
	cost := func(p Pool, taken []netip.Prefix, rs []Reservation) float64 {
		u := NewUnassignable(p, rs)
		return testing.AllocsPerRun(10, func() {
			n := 0
			for range Walk(p, "node-a", taken, u) {
				if n++; n == 2 {
					break
				}
			}
		})
	}
	least := cost(small("10.0.0.0/24", 26, ""), cidrs("10.0.0.0/26"), reserve("10.0.0.64/26"))
	for _, c := range []struct {
		name  string
		pool  Pool
		taken []netip.Prefix
		rs    []Reservation
	}{
		{"/8, half reserved, a quarter taken", small("10.0.0.0/8", 26, "first"), cidrs("10.128.0.0/10"), reserve("10.0.0.0/9")},
		{"/48, half reserved, a quarter taken", small("fd00::/48", 122, "first"), cidrs("fd00::/50"), reserve("fd00:0:0:8000::/49")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := cost(c.pool, c.taken, c.rs); got > least+1 {
				t.Errorf("%v allocations; a small pool costs %v", got, least)
			}
			first := take(1, c.pool, "node-a", c.taken, c.rs)[0]
			for _, r := range append(c.taken, c.rs[0].CIDRs...) {
				if r.Overlaps(first) {
					t.Errorf("the first block is %v, inside %v", first, r)
				}
			}
		})
	}
	t.Run("/48, all but the last block reserved", func(t *testing.T) {
		var r Reservation // the path from the root to the last block, one sibling a level
		last := cidr("fd00::ffff:ffff:ffff:ffff:ffc0/122")
		for n := 122; n > 48; n-- {
			r.CIDRs = append(r.CIDRs, sibling(last, n))
		}
		got := take(2, small("fd00::/48", 122, ""), "node-a", nil, []Reservation{r})
		if !slices.Equal(got, []netip.Prefix{last}) {
			t.Errorf("walked %v; want %v alone", got, last)
		}
	})
}

// sibling returns the other half of the CIDR of n-1 bits around c.
func sibling(c netip.Prefix, n int) netip.Prefix {
	b := c.Addr().AsSlice()
	b[(n-1)/8] ^= 0x80 >> ((n - 1) % 8)
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, n).Masked()
}

func BenchmarkWalk5000Taken(b *testing.B) {
	p := small("10.0.0.0/8", 26, "first")
	taken := take(5000, p, "node-b", nil, nil)
	u := NewUnassignable(p, nil)
	for b.Loop() {
		for range Walk(p, "node-a", taken, u) {
			break
		}
	}
}
