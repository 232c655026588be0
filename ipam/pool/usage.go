// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"math/big"
	"net/netip"
	"slices"
)

// Usage counts the addresses of a CIDR. Each address is counted in exactly one of
// the last four, so Capacity is their sum.
type Usage struct {
	Capacity  *big.Int
	Allocated *big.Int
	Cooling   *big.Int
	Reserved  *big.Int // unassignable, and neither allocated nor cooling
	Available *big.Int // what automatic assignment can still hand out
}

// UsageOf counts the addresses of within, a pool or a block of the pool that u is
// of. Addresses outside within and repeated ones do not count; an address in both
// lists is allocated. A reserved address that was assigned all the same (before
// the reservation, or by name) counts as allocated.
func UsageOf(within netip.Prefix, u Unassignable, allocated, cooling []netip.Addr) Usage {
	if !within.IsValid() {
		return Usage{new(big.Int), new(big.Int), new(big.Int), new(big.Int), new(big.Int)}
	}
	inUse := distinct(within, allocated)
	cold := distinct(within, cooling)
	cold = slices.DeleteFunc(cold, func(a netip.Addr) bool {
		_, both := slices.BinarySearchFunc(inUse, a, netip.Addr.Compare)
		return both
	})
	reserved := u.Count(within)
	for _, list := range [][]netip.Addr{inUse, cold} {
		n := 0
		for _, a := range list {
			if u.Contains(a) {
				n++
			}
		}
		reserved.Sub(reserved, big.NewInt(int64(n)))
	}
	t := Usage{
		Capacity:  spanOf(within).size(),
		Allocated: big.NewInt(int64(len(inUse))),
		Cooling:   big.NewInt(int64(len(cold))),
		Reserved:  reserved,
	}
	rest := new(big.Int).Sub(t.Capacity, t.Allocated)
	t.Available = rest.Sub(rest, t.Cooling).Sub(rest, t.Reserved)
	return t
}

// distinct returns the addresses of list that are in within, sorted, each once.
func distinct(within netip.Prefix, list []netip.Addr) []netip.Addr {
	out := make([]netip.Addr, 0, len(list))
	for _, a := range list {
		if within.Contains(a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
