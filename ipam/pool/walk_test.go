// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"net/netip"
	"testing"
)

func TestWalkVisitsEveryBlock(t *testing.T) {
	p := Pool{Spec: Spec{CIDR: netip.MustParsePrefix("10.0.0.0/24"), BlockSize: 26}}
	n := 0
	for range Walk(p, "node-a", nil, Unassignable{}) {
		n++
	}
	if n != 4 {
		t.Errorf("walked %d blocks; want 4", n)
	}
}
