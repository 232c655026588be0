// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"math/big"
	"net/netip"
	"testing"

	"go4.org/netipx"
	"pgregory.net/rapid"
)

func cidr(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func cidrs(ss ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range ss {
		out = append(out, cidr(s))
	}
	return out
}

func reserve(ss ...string) []Reservation { return []Reservation{{Name: "r", CIDRs: cidrs(ss...)}} }

// small returns a pool with no more than range, block size and gateway ("",
// "first" or an address).
func small(c string, blockSize int, gateway string) Pool {
	p := Pool{Name: "p", Spec: Spec{CIDR: cidr(c), BlockSize: blockSize}}
	switch gateway {
	case "":
	case "first":
		p.Spec.Gateway.First = true
	default:
		p.Spec.Gateway.Addr = netip.MustParseAddr(gateway)
	}
	return p
}

func TestUnassignableCount(t *testing.T) {
	for _, c := range []struct {
		name     string
		pool     Pool
		reserved []Reservation
		within   string // empty: the pool
		want     string
	}{
		{"nothing", small("10.0.0.0/24", 26, ""), nil, "", "0"},
		{"case C5: a /32 pool has no reserved address", small("10.0.0.9/32", 32, ""), nil, "", "0"},
		{"case C5: a /127 pool has no reserved address", small("fd00::/127", 127, ""), nil, "", "0"},
		{"fixed gateway", small("10.0.0.0/24", 26, "10.0.0.1"), nil, "", "1"},
		{"fixed gateway is in one block", small("10.0.0.0/24", 26, "10.0.0.1"), nil, "10.0.0.64/26", "0"},
		{"fixed gateway inside a reservation", small("10.0.0.0/24", 26, "10.0.0.1"), reserve("10.0.0.0/30"), "", "4"},
		{"first: one a block", small("10.0.0.0/24", 26, "first"), nil, "", "4"},
		{"first: the gateway of one block", small("10.0.0.0/24", 26, "first"), nil, "10.0.0.64/26", "1"},
		{"first: less than a block, without the gateway", small("10.0.0.0/24", 26, "first"), nil, "10.0.0.96/27", "0"},
		{"first inside a reservation counts once", small("10.0.0.0/24", 26, "first"), reserve("10.0.0.64/30"), "", "7"},
		{"first beside a reservation", small("10.0.0.0/24", 26, "first"), reserve("10.0.0.65/32"), "", "5"},
		{"nested and overlapping reservations", small("10.0.0.0/24", 26, ""), reserve("10.0.0.0/25", "10.0.0.0/28", "10.0.0.64/26", "10.0.0.5/32"), "", "128"},
		{"case C4: adjacent reservations, exact at both ends", small("10.0.0.0/24", 26, ""), reserve("10.0.0.63/32", "10.0.0.64/32"), "10.0.0.0/26", "1"},
		{"reservation wider than the pool", small("10.0.0.0/24", 26, "first"), reserve("10.0.0.0/8"), "", "256"},
		{"reservation elsewhere", small("10.0.0.0/24", 26, ""), reserve("10.0.1.0/24", "fd00::/64"), "", "0"},
		{"within is wider than the pool", small("10.0.0.0/24", 26, "first"), nil, "0.0.0.0/0", "4"},
		{"within is elsewhere", small("10.0.0.0/24", 26, "first"), nil, "10.0.1.0/24", "0"},
		{"within is of the other family", small("10.0.0.0/24", 26, "first"), nil, "::/0", "0"},
		{"case C3: first in a /8", small("10.0.0.0/8", 26, "first"), nil, "", "262144"},
		{"case C3: first in a /48", small("fd00::/48", 122, "first"), nil, "", "18889465931478580854784"},
		{"case C3: half a /48", small("fd00::/48", 122, ""), reserve("fd00::/49"), "", "604462909807314587353088"},
		{"case C3: half a /48 and first", small("fd00::/48", 122, "first"), reserve("fd00::/49"), "", "613907642773053877780480"},
		{"case C1: last addresses of IPv4", small("255.255.255.0/24", 26, "first"), reserve("255.255.255.255/32"), "", "5"},
		{"case C1: first addresses of IPv4", small("0.0.0.0/24", 26, "first"), reserve("0.0.0.0/32"), "", "4"},
		{"case C1: last addresses of IPv6", small("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120", 122, "first"), reserve("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127"), "", "6"},
		{"case C1: the whole of IPv6", small("::/0", 128, ""), reserve("::/0"), "", "340282366920938463463374607431768211456"},
	} {
		t.Run(c.name, func(t *testing.T) {
			within := c.pool.Spec.CIDR
			if c.within != "" {
				within = cidr(c.within)
			}
			if got := NewUnassignable(c.pool, c.reserved).Count(within).String(); got != c.want {
				t.Errorf("Count(%v) = %s; want %s", within, got, c.want)
			}
		})
	}
}

func TestUnassignableCovers(t *testing.T) {
	for _, c := range []struct {
		name     string
		pool     Pool
		reserved []Reservation
		block    string
		want     bool
	}{
		{"nothing reserved", small("10.0.0.0/24", 26, ""), nil, "10.0.0.0/26", false},
		{"all but the last", small("10.0.0.0/24", 30, ""), reserve("10.0.0.0/31", "10.0.0.2/32"), "10.0.0.0/30", false},
		{"exactly the block", small("10.0.0.0/24", 26, ""), reserve("10.0.0.64/26"), "10.0.0.64/26", true},
		{"in two halves", small("10.0.0.0/24", 26, ""), reserve("10.0.0.64/27", "10.0.0.96/27"), "10.0.0.64/26", true},
		{"the gateway takes the rest", small("10.0.0.0/24", 30, "first"), reserve("10.0.0.5/32", "10.0.0.6/31"), "10.0.0.4/30", true},
		{"the gateway takes another", small("10.0.0.0/24", 30, "first"), reserve("10.0.0.4/31", "10.0.0.6/32"), "10.0.0.4/30", false},
		{"a fixed gateway takes the rest", small("10.0.0.0/24", 30, "10.0.0.7"), reserve("10.0.0.4/31", "10.0.0.6/32"), "10.0.0.4/30", true},
		{"outside the pool", small("10.0.0.0/24", 26, ""), reserve("10.0.0.0/8"), "10.0.1.0/26", false},
		{"no block", small("10.0.0.0/24", 26, ""), nil, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var block netip.Prefix
			if c.block != "" {
				block = cidr(c.block)
			}
			if got := NewUnassignable(c.pool, c.reserved).Covers(block); got != c.want {
				t.Errorf("Covers(%v) = %v; want %v", block, got, c.want)
			}
		})
	}
}

// TestUnassignableAgainstMap holds INV-13's arithmetic against enumeration (cases
// C1, C4, C5): Contains, Count and Covers for the pool, each block and any CIDR.
func TestUnassignableAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPool(t)
		rs := drawReservations(t, p)
		u, want := NewUnassignable(p, rs), unassignableOf(p, rs)
		for a, un := range want {
			if u.Contains(a) != un {
				t.Fatalf("Contains(%v) = %v; want %v", a, u.Contains(a), un)
			}
		}
		areas := append(blocksOf(p), p.Spec.CIDR, drawPrefix(t, p.Spec.CIDR.Addr().String(), 8))
		for _, area := range areas {
			n, all := int64(0), true
			for _, a := range addressesOf(area) {
				if want[a] {
					n++
				} else {
					all = false
				}
			}
			if got := u.Count(area); got.Cmp(big.NewInt(n)) != 0 {
				t.Fatalf("Count(%v) = %v; want %d", area, got, n)
			}
			if got := u.Covers(area); got != all {
				t.Fatalf("Covers(%v) = %v; want %v", area, got, all)
			}
		}
	})
}

// TestUnassignableAgainstIPSet compares with another implementation of address
// sets where enumeration cannot reach: pools of any size.
func TestUnassignableAgainstIPSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]string{"10.0.0.0", "fd00::"}).Draw(t, "family")
		long := netip.MustParseAddr(base).BitLen()
		anyPrefix := func(label string, minBits int) netip.Prefix {
			b := netip.MustParseAddr(base).AsSlice()
			copy(b[1:], rapid.SliceOfN(rapid.Byte(), len(b)-1, len(b)-1).Draw(t, label))
			a, _ := netip.AddrFromSlice(b)
			return netip.PrefixFrom(a, rapid.IntRange(minBits, long).Draw(t, label+" bits")).Masked()
		}
		p := Pool{Spec: Spec{CIDR: anyPrefix("pool", 8), BlockSize: long}}
		var set netipx.IPSetBuilder
		var r Reservation
		for range rapid.IntRange(0, 6).Draw(t, "reservations") {
			c := anyPrefix("reserved", 8)
			if rapid.Bool().Draw(t, "inside") && c.Bits() >= p.Spec.CIDR.Bits() {
				c = graft(p.Spec.CIDR, c)
			}
			r.CIDRs = append(r.CIDRs, c)
			set.AddPrefix(c)
		}
		var area netipx.IPSetBuilder
		area.AddPrefix(p.Spec.CIDR)
		inPool, err := area.IPSet()
		if err != nil {
			t.Fatal(err)
		}
		set.Intersect(inPool)
		want, err := set.IPSet()
		if err != nil {
			t.Fatal(err)
		}
		n := new(big.Int)
		for _, c := range want.Prefixes() {
			n.Add(n, new(big.Int).Lsh(big.NewInt(1), uint(c.Addr().BitLen()-c.Bits())))
		}
		u := NewUnassignable(p, []Reservation{r})
		if got := u.Count(p.Spec.CIDR); got.Cmp(n) != 0 {
			t.Fatalf("pool %v, reserved %v: counted %v; want %v", p.Spec.CIDR, r.CIDRs, got, n)
		}
		for _, x := range want.Ranges() {
			for _, a := range []netip.Addr{x.From(), x.To(), x.From().Prev(), x.To().Next()} {
				if got := u.Contains(a); got != want.Contains(a) {
					t.Fatalf("pool %v, reserved %v: Contains(%v) = %v", p.Spec.CIDR, r.CIDRs, a, got)
				}
			}
		}
	})
}

// graft returns c moved into pool: its first bits are the pool's.
func graft(pool, c netip.Prefix) netip.Prefix {
	p, b := pool.Addr().AsSlice(), c.Addr().AsSlice()
	for i := range pool.Bits() {
		bit := byte(0x80 >> (i % 8))
		b[i/8] = b[i/8]&^bit | p[i/8]&bit
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, c.Bits()).Masked()
}

func TestUnassignableZero(t *testing.T) {
	for _, u := range []Unassignable{{}, NewUnassignable(Pool{}, reserve("10.0.0.0/8"))} {
		if u.Contains(netip.MustParseAddr("10.0.0.1")) || u.Count(cidr("10.0.0.0/8")).Sign() != 0 || u.Covers(cidr("10.0.0.0/26")) {
			t.Errorf("%+v holds something", u)
		}
	}
}

func BenchmarkCount(b *testing.B) {
	var r Reservation
	for i := range 1000 {
		r.CIDRs = append(r.CIDRs, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 4), byte(i << 4), 0}), 28))
	}
	u := NewUnassignable(small("10.0.0.0/8", 26, "first"), []Reservation{r})
	for b.Loop() {
		u.Count(cidr("10.3.0.0/26"))
	}
}
