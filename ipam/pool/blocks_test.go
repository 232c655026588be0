// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

func TestBlocksOf(t *testing.T) {
	p := Pool{Spec: Spec{CIDR: netip.MustParsePrefix("255.255.255.0/24"), BlockSize: 26}}
	top := Pool{Spec: Spec{CIDR: netip.MustParsePrefix("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120"), BlockSize: 122}}
	tests := []struct {
		p    Pool
		cidr string
		want string
	}{
		{p, "255.255.255.128/25", "[255.255.255.128/26 255.255.255.192/26]"}, // case C1: the last one there is
		{p, "255.255.255.64/26", "[255.255.255.64/26]"},
		{p, "255.255.255.0/27", "[]"},
		{p, "10.0.0.0/24", "[]"},
		{p, "fd00::/64", "[]"},
		{p, "255.255.0.0/16", "[255.255.255.0/26 255.255.255.64/26 255.255.255.128/26 255.255.255.192/26]"},
		{top, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff80/121", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff80/122 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffc0/122]"},
		{Pool{}, "10.0.0.0/24", "[]"},
	}
	for _, tt := range tests {
		if got := fmt.Sprint(slices.Collect(BlocksOf(tt.p, netip.MustParsePrefix(tt.cidr)))); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.cidr, got, tt.want)
		}
	}
	for b := range BlocksOf(p, p.Spec.CIDR) { // a caller that stops
		if b != netip.MustParsePrefix("255.255.255.0/26") {
			t.Errorf("first %s", b)
		}
		break
	}
}
