// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"math/big"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func anyU128() *rapid.Generator[u128] {
	edge := rapid.SampledFrom([]uint64{0, 1, 1 << 31, 1<<32 - 1, 1 << 63, 1<<64 - 1})
	word := rapid.OneOf(edge, rapid.Uint64())
	return rapid.Custom(func(t *rapid.T) u128 { return u128{word.Draw(t, "hi"), word.Draw(t, "lo")} })
}

// TestNumbersAgainstBig compares every operation with math/big modulo 2^128.
func TestNumbersAgainstBig(t *testing.T) {
	modulus := new(big.Int).Lsh(big.NewInt(1), 128)
	rapid.Check(t, func(t *rapid.T) {
		a, b, n := anyU128().Draw(t, "a"), anyU128().Draw(t, "b"), rapid.UintRange(0, 128).Draw(t, "n")
		x, y := a.big(), b.big()
		for _, c := range []struct {
			op   string
			got  u128
			want *big.Int
		}{
			{"add", a.add(b), new(big.Int).Add(x, y)},
			{"sub", a.sub(b), new(big.Int).Sub(x, y)},
			{"and", a.and(b), new(big.Int).And(x, y)},
			{"or", a.or(b), new(big.Int).Or(x, y)},
			{"shl", a.shl(n), new(big.Int).Lsh(x, n)},
			{"shr", a.shr(n), new(big.Int).Rsh(x, n)},
			{"ones", ones(n), new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), n), big.NewInt(1))},
		} {
			if want := c.want.Mod(c.want, modulus); c.got.big().Cmp(want) != 0 {
				t.Errorf("%s(%v, %v, %d) = %v; want %v", c.op, x, y, n, c.got.big(), want)
			}
		}
		if got, want := a.compare(b), x.Cmp(y); got != want {
			t.Errorf("compare(%v, %v) = %d; want %d", x, y, got, want)
		}
	})
}

func TestNumberOfRoundTrips(t *testing.T) {
	for _, s := range []string{"0.0.0.0", "10.1.2.3", "255.255.255.255", "::", "fd00::1:2", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"} {
		a := netip.MustParseAddr(s)
		if got := numberOf(a).addr(FamilyOf(a)); got != a {
			t.Errorf("%v came back as %v", a, got)
		}
	}
}

func TestSpanOf(t *testing.T) {
	for _, c := range []struct{ name, cidr, lo, hi, size string }{
		{"one IPv4 address", "10.0.0.7/32", "10.0.0.7", "10.0.0.7", "1"},
		{"host bits are ignored", "10.0.0.7/24", "10.0.0.0", "10.0.0.255", "256"},
		{"case C1: top of IPv4", "255.255.255.0/24", "255.255.255.0", "255.255.255.255", "256"},
		{"all of IPv4", "0.0.0.0/0", "0.0.0.0", "255.255.255.255", "4294967296"},
		{"case C3: IPv6 /48", "fd00::/48", "fd00::", "fd00::ffff:ffff:ffff:ffff:ffff", "1208925819614629174706176"},
		{"case C1: all of IPv6", "::/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "340282366920938463463374607431768211456"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := netip.MustParsePrefix(c.cidr)
			s := spanOf(p)
			f := FamilyOf(p.Addr())
			if s.lo.addr(f).String() != c.lo || s.hi.addr(f).String() != c.hi || s.size().String() != c.size {
				t.Errorf("%v to %v, %v addresses; want %s to %s, %s", s.lo.addr(f), s.hi.addr(f), s.size(), c.lo, c.hi, c.size)
			}
		})
	}
}

// TestSpansAgainstMap checks merge, gaps, search and rotate over a space small
// enough to enumerate.
func TestSpansAgainstMap(t *testing.T) {
	const last = 31
	rapid.Check(t, func(t *rapid.T) {
		var spans []span
		in := map[uint64]bool{}
		for range rapid.IntRange(0, 6).Draw(t, "spans") {
			lo := rapid.Uint64Range(0, last).Draw(t, "lo")
			hi := rapid.Uint64Range(lo, last).Draw(t, "hi")
			spans = append(spans, span{u128{lo: lo}, u128{lo: hi}})
			for n := lo; n <= hi; n++ {
				in[n] = true
			}
		}
		merged := merge(spans)
		for i, s := range merged {
			if s.hi.less(s.lo) || i > 0 && s.lo.sub(merged[i-1].hi).lo < 2 {
				t.Fatalf("merged to %v: not sorted and apart", merged)
			}
		}
		start := rapid.Uint64Range(0, last).Draw(t, "start")
		var got []uint64
		for _, s := range rotate(gaps(merged, u128{lo: last}), u128{lo: start}) {
			for n := s.lo.lo; n <= s.hi.lo; n++ {
				got = append(got, n)
			}
		}
		var want []uint64
		for i := range uint64(last + 1) {
			if n := (start + i) % (last + 1); !in[n] {
				want = append(want, n)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("from %d: got %v; want %v", start, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("from %d: got %v; want %v", start, got, want)
			}
		}
	})
}

func TestGapsAtTheEndOfTheSpace(t *testing.T) { // case C1
	top := ones(128)
	if g := gaps([]span{{u128{}, top}}, top); len(g) != 0 {
		t.Errorf("gaps of a full space: %v", g)
	}
	if m := merge([]span{{u128{}, top}, {top, top}, {one, one}}); len(m) != 1 || m[0] != (span{u128{}, top}) {
		t.Errorf("merged to %v; want the whole space", m)
	}
}
