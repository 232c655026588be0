// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"net/netip"
)

// Walk yields the blocks of p that host may try to claim: those that overlap
// nothing in taken and have an address that u leaves assignable, each exactly
// once. It starts at a position derived from the host's name, so that hosts
// spread over the pool, and wraps. u must be made from p.
//
// Walk jumps over taken and reserved ranges: its cost depends on their number
// and on the blocks consumed, never on the size of the pool (INV-16). taken is
// read before Walk returns, and the sequence can be ranged over again.
func Walk(p Pool, host string, taken []netip.Prefix, u Unassignable) iter.Seq[netip.Prefix] {
	g, ok := gridOf(p)
	if !ok {
		return func(func(netip.Prefix) bool) {}
	}
	var blocked []span
	for _, t := range taken {
		if t.Overlaps(p.Spec.CIDR) {
			if s, ok := spanOf(t).intersect(g.addrs); ok {
				blocked = append(blocked, span{g.index(s.lo), g.index(s.hi)})
			}
		}
	}
	blocked = merge(append(blocked, g.covered(u)...))
	free := rotate(gaps(blocked, g.last), g.start(host))
	return func(yield func(netip.Prefix) bool) {
		for _, s := range free {
			for i := s.lo; ; i = i.add(one) {
				if !yield(g.block(i)) {
					return
				}
				if i == s.hi {
					break
				}
			}
		}
	}
}

// grid numbers the blocks of a pool from 0 to last.
type grid struct {
	addrs span   // the pool's addresses
	last  u128   // 2^n - 1
	host  uint   // address bits below a block's prefix
	bits  int    // a block's prefix length
	fam   Family // of the pool
}

// gridOf returns the numbering of p's blocks. ok is false when p has none, which
// [Pool.Validate] refuses.
func gridOf(p Pool) (g grid, ok bool) {
	c, bits := p.Spec.CIDR, p.Spec.BlockSize
	if !c.IsValid() || bits < c.Bits() || bits > c.Addr().BitLen() {
		return grid{}, false
	}
	return grid{
		addrs: spanOf(c),
		last:  ones(uint(bits - c.Bits())),
		host:  uint(c.Addr().BitLen() - bits),
		bits:  bits,
		fam:   p.Family(),
	}, true
}

// index returns the number of the block that the address n is in.
func (g grid) index(n u128) u128 { return n.sub(g.addrs.lo).shr(g.host) }

func (g grid) block(i u128) netip.Prefix {
	return netip.PrefixFrom(g.addrs.lo.add(i.shl(g.host)).addr(g.fam), g.bits)
}

// start is where a host begins: its name's hash, cut to the numbers of blocks,
// which is a power of two.
func (g grid) start(host string) u128 {
	h := sha256.Sum256([]byte(host))
	return u128{binary.BigEndian.Uint64(h[:8]), binary.BigEndian.Uint64(h[8:16])}.and(g.last)
}

// covered returns the blocks that u covers wholly.
func (g grid) covered(u Unassignable) []span {
	if u.first && g.host == 0 {
		return []span{{u128{}, g.last}} // nothing but gateways
	}
	var out []span
	inBlock := ones(g.host)
	for _, r := range u.spans {
		s, ok := r.intersect(g.addrs)
		if !ok {
			continue
		}
		lo, hi := g.index(s.lo), g.index(s.hi)
		switch off := s.lo.and(inBlock); {
		case off == (u128{}):
		case off == one && u.first: // the gateway covers what is missing
		default:
			lo = lo.add(one)
		}
		if s.hi.and(inBlock) != inBlock {
			if hi == (u128{}) {
				continue
			}
			hi = hi.sub(one)
		}
		if !hi.less(lo) {
			out = append(out, span{lo, hi})
		}
	}
	return out
}

// rotate returns the same numbers as the merged spans, beginning at start.
func rotate(merged []span, start u128) []span {
	i := search(merged, start)
	if i == len(merged) {
		return merged
	}
	out := make([]span, 0, len(merged)+1)
	out = append(append(out, merged[i:]...), merged[:i]...)
	if s := merged[i]; s.lo.less(start) {
		out[0].lo = start
		out = append(out, span{s.lo, start.sub(one)})
	}
	return out
}
