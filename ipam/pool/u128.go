// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"encoding/binary"
	"math/big"
	"math/bits"
	"net/netip"
	"slices"
	"sort"
)

// u128 is an unsigned number as wide as an IPv6 address. An IPv4 address is its
// low 32 bits. Arithmetic wraps.
type u128 struct{ hi, lo uint64 }

var one = u128{lo: 1}

func numberOf(a netip.Addr) u128 {
	if a.Is4() {
		b := a.As4()
		return u128{lo: uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return u128{hi: binary.BigEndian.Uint64(b[:8]), lo: binary.BigEndian.Uint64(b[8:])}
}

func (u u128) addr(f Family) netip.Addr {
	if f == V4 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(u.lo))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], u.hi)
	binary.BigEndian.PutUint64(b[8:], u.lo)
	return netip.AddrFrom16(b)
}

func (u u128) add(v u128) u128 {
	lo, carry := bits.Add64(u.lo, v.lo, 0)
	hi, _ := bits.Add64(u.hi, v.hi, carry)
	return u128{hi, lo}
}

func (u u128) sub(v u128) u128 {
	lo, borrow := bits.Sub64(u.lo, v.lo, 0)
	hi, _ := bits.Sub64(u.hi, v.hi, borrow)
	return u128{hi, lo}
}

func (u u128) and(v u128) u128 { return u128{u.hi & v.hi, u.lo & v.lo} }

func (u u128) or(v u128) u128 { return u128{u.hi | v.hi, u.lo | v.lo} }

// shl and shr shift by 0 to 128 bits. Go's shifts by 64 and more give zero, and
// a negative amount, turned unsigned, is such a shift.
func (u u128) shl(n uint) u128 {
	return u128{u.hi<<n | u.lo>>(64-n) | u.lo<<(n-64), u.lo << n}
}

func (u u128) shr(n uint) u128 {
	return u128{u.hi >> n, u.lo>>n | u.hi<<(64-n) | u.hi>>(n-64)}
}

// ones returns the number whose low n bits are set, n from 0 to 128.
func ones(n uint) u128 { return one.shl(n).sub(one) }

func (u u128) compare(v u128) int {
	if c := cmp.Compare(u.hi, v.hi); c != 0 {
		return c
	}
	return cmp.Compare(u.lo, v.lo)
}

func (u u128) less(v u128) bool { return u.compare(v) < 0 }

func (u u128) big() *big.Int {
	n := new(big.Int).SetUint64(u.hi)
	return n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(u.lo))
}

// span is the numbers from lo to hi, both included; lo <= hi. It has no empty
// value, so that the whole 128-bit space is a span too.
type span struct{ lo, hi u128 }

// spanOf returns the addresses of a CIDR.
func spanOf(p netip.Prefix) span {
	lo := numberOf(p.Masked().Addr())
	return span{lo, lo.or(ones(uint(p.Addr().BitLen() - p.Bits())))}
}

// size is a *big.Int because the whole space has 2^128 numbers.
func (s span) size() *big.Int {
	n := s.hi.sub(s.lo).big()
	return n.Add(n, big.NewInt(1))
}

// intersect returns what s and t have in common. ok is false when that is nothing.
func (s span) intersect(t span) (both span, ok bool) {
	if s.lo.less(t.lo) {
		s.lo = t.lo
	}
	if t.hi.less(s.hi) {
		s.hi = t.hi
	}
	return s, !s.hi.less(s.lo)
}

// merge sorts spans and joins those that overlap or touch. It works in place.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return a.lo.compare(b.lo) })
	out := spans[:0]
	for _, s := range spans {
		if n := len(out); n > 0 && (!out[n-1].hi.less(s.lo) || out[n-1].hi.add(one) == s.lo) {
			if out[n-1].hi.less(s.hi) {
				out[n-1].hi = s.hi
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// gaps returns what is left of the numbers 0 to last without the merged spans.
func gaps(merged []span, last u128) []span {
	out := make([]span, 0, len(merged)+1)
	next := u128{}
	for _, s := range merged {
		if next.less(s.lo) {
			out = append(out, span{next, s.lo.sub(one)})
		}
		if !s.hi.less(last) {
			return out
		}
		next = s.hi.add(one)
	}
	return append(out, span{next, last})
}

// search returns the index of the first merged span that does not end before n.
func search(merged []span, n u128) int {
	return sort.Search(len(merged), func(i int) bool { return !merged[i].hi.less(n) })
}
