// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"math/big"
	"net/netip"
)

// Unassignable is the addresses of a pool that automatic assignment never hands
// out: those reserved, and the gateway. It is the one definition that
// allocation, show and metrics share (INV-13). Its size and the cost of its
// methods depend on the number of reservations in the pool, never on the size of
// the pool (INV-16). It is a value and safe for concurrent reads; the zero value
// is empty.
type Unassignable struct {
	pool  netip.Prefix
	first bool // the first ordinal of each block is its gateway
	host  uint // address bits below a block's prefix
	spans []span
}

// NewUnassignable returns the unassignable addresses of p under the reservations
// rs, which may overlap, nest and reach beyond the pool.
func NewUnassignable(p Pool, rs []Reservation) Unassignable {
	cidr := p.Spec.CIDR.Masked()
	u := Unassignable{pool: cidr}
	if !cidr.IsValid() {
		return u
	}
	if g := p.Spec.Gateway; g.First {
		u.first, u.host = true, uint(cidr.Addr().BitLen()-p.Spec.BlockSize)
	} else if cidr.Contains(g.Addr) {
		n := numberOf(g.Addr)
		u.spans = append(u.spans, span{n, n})
	}
	for _, r := range rs {
		for _, c := range r.CIDRs {
			if !c.Overlaps(cidr) {
				continue
			}
			if s, ok := spanOf(c).intersect(spanOf(cidr)); ok {
				u.spans = append(u.spans, s)
			}
		}
	}
	u.spans = merge(u.spans)
	return u
}

// Contains reports whether a must not be handed out. It is false for addresses
// outside the pool.
func (u Unassignable) Contains(a netip.Addr) bool {
	if !u.pool.Contains(a) {
		return false
	}
	n := numberOf(a)
	if u.first && n.and(ones(u.host)) == (u128{}) {
		return true
	}
	i := search(u.spans, n)
	return i < len(u.spans) && !n.less(u.spans[i].lo)
}

// Count returns how many unassignable addresses of the pool are in within.
func (u Unassignable) Count(within netip.Prefix) *big.Int {
	total := new(big.Int)
	if !within.Overlaps(u.pool) {
		return total
	}
	area, ok := spanOf(within).intersect(spanOf(u.pool))
	if !ok {
		return total
	}
	if u.first {
		total.Add(total, multiples(area, u.host))
	}
	for _, s := range u.spans[search(u.spans, area.lo):] {
		part, ok := s.intersect(area)
		if !ok {
			break
		}
		total.Add(total, part.size())
		if u.first { // gateways inside a reservation were counted above
			total.Sub(total, multiples(part, u.host))
		}
	}
	return total
}

// Covers reports whether every address of block is unassignable, so that
// claiming it would be in vain.
func (u Unassignable) Covers(block netip.Prefix) bool {
	return block.IsValid() && u.Count(block).Cmp(spanOf(block).size()) == 0
}

// multiples counts the multiples of 2^n in s.
func multiples(s span, n uint) *big.Int {
	lo := s.lo.shr(n)
	if s.lo.and(ones(n)) != (u128{}) {
		lo = lo.add(one)
	}
	hi := s.hi.shr(n)
	if hi.less(lo) {
		return new(big.Int)
	}
	return span{lo, hi}.size()
}
