// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"iter"
	"net/netip"
)

// BlocksOf yields the blocks of p that are in cidr, in address order. It yields
// nothing when cidr is outside p or smaller than a block. The number is the
// caller's to bound.
func BlocksOf(p Pool, cidr netip.Prefix) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		g, ok := gridOf(p)
		if !ok || !cidr.IsValid() || !cidr.Overlaps(p.Spec.CIDR) || cidr.Bits() > g.bits {
			return
		}
		area, _ := spanOf(cidr).intersect(g.addrs)
		for i, last := g.index(area.lo), g.index(area.hi); ; i = i.add(one) {
			if !yield(g.block(i)) || i == last {
				return
			}
		}
	}
}
