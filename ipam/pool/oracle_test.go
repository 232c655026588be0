// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"net/netip"

	"pgregory.net/rapid"
)

// The oracles of this package enumerate every address of a small pool. They
// share no code with what they judge.

// addressesOf lists a CIDR of at most 256 addresses.
func addressesOf(c netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for a := c.Masked().Addr(); a.IsValid() && c.Contains(a); a = a.Next() {
		out = append(out, a)
	}
	return out
}

// blocksOf lists the blocks of a small pool.
func blocksOf(p Pool) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range addressesOf(p.Spec.CIDR) {
		if b := netip.PrefixFrom(a, p.Spec.BlockSize); b.Masked() == b {
			out = append(out, b)
		}
	}
	return out
}

// unassignableOf lists what must not be handed out of a small pool.
func unassignableOf(p Pool, rs []Reservation) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, a := range addressesOf(p.Spec.CIDR) {
		first := p.Spec.Gateway.First && netip.PrefixFrom(a, p.Spec.BlockSize).Masked().Addr() == a
		out[a] = first || p.Spec.Gateway.Addr == a
		for _, r := range rs {
			for _, c := range r.CIDRs {
				out[a] = out[a] || c.Contains(a)
			}
		}
	}
	return out
}

// corners are where small pools are drawn: ends of the address space included
// (case C1), although no pool validates there.
var corners = []string{"10.9.8.0", "0.0.0.0", "255.255.255.0", "fd00:1::", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00"}

// drawPrefix returns a CIDR around one of the 256 addresses at a corner, with at
// most hostBits address bits below its prefix.
func drawPrefix(t *rapid.T, corner string, hostBits int) netip.Prefix {
	base := netip.MustParseAddr(corner)
	b := base.AsSlice()
	b[len(b)-1] = rapid.Byte().Draw(t, "last byte")
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, base.BitLen()-rapid.IntRange(0, hostBits).Draw(t, "host bits")).Masked()
}

// drawPool returns a pool of at most 256 addresses, with any gateway.
func drawPool(t *rapid.T) Pool {
	c := drawPrefix(t, rapid.SampledFrom(corners).Draw(t, "corner"), 8)
	p := Pool{Name: "p", Spec: Spec{
		CIDR:      c,
		BlockSize: rapid.IntRange(c.Bits(), c.Addr().BitLen()).Draw(t, "block size"),
	}}
	switch rapid.IntRange(0, 2).Draw(t, "gateway") {
	case 1:
		p.Spec.Gateway.First = true
	case 2:
		p.Spec.Gateway.Addr = rapid.SampledFrom(addressesOf(c)).Draw(t, "gateway address")
	}
	return p
}

// drawReservations returns reservations near p: nested, overlapping, beyond its
// ends, sometimes all of it, sometimes of the other family.
func drawReservations(t *rapid.T, p Pool) []Reservation {
	var out []Reservation
	for i := range rapid.IntRange(0, 4).Draw(t, "reservations") {
		r := Reservation{Name: fmt.Sprint("r", i)}
		for range rapid.IntRange(0, 3).Draw(t, "CIDRs") {
			corner := p.Spec.CIDR.Addr().String()
			if rapid.IntRange(0, 9).Draw(t, "elsewhere") == 0 {
				corner = rapid.SampledFrom(corners).Draw(t, "corner")
			}
			c := drawPrefix(t, corner, 4)
			if rapid.IntRange(0, 9).Draw(t, "wide") == 0 {
				c = drawPrefix(t, corner, c.Addr().BitLen())
			}
			r.CIDRs = append(r.CIDRs, c)
		}
		out = append(out, r)
	}
	return out
}

// drawSome returns some of the addresses.
func drawSome(t *rapid.T, from []netip.Addr, label string) []netip.Addr {
	return rapid.SliceOfN(rapid.SampledFrom(from), 0, 20).Draw(t, label)
}
