// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/pool"
)

// An address in use does not become a gateway, and what has become one while an ADD
// was on its way is not handed out (INV-1, INV-13).
func TestGatewayIsNobodysAddress(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", size(29))
	set := func(g pool.Gateway) error {
		e, err := w.mem.Store().Pools.Get(t.Context(), "v4")
		if err == nil {
			e.Value.Spec.Gateway = g
			_, err = w.mem.Store().Pools.Update(t.Context(), e)
		}
		return err
	}
	a := w.mustAttach(pod("node-a", "u1", "c1"), 1, 0)[0]
	for _, g := range []pool.Gateway{{Addr: a}, {First: true}} {
		if err := set(g); err == nil || !strings.Contains(err.Error(), "pod shop/pod-u1") {
			t.Errorf("gateway %+v, whose address is in use: %v", g, err)
		}
	}
	next := netip.MustParseAddr("10.0.0.1") // the one that the ADD below has chosen
	c, faults := w.process("p")
	faults.Hook(once(func(op memstore.Op) bool { return op.Write == 1 }, func(context.Context, memstore.Op) {
		if err := set(pool.Gateway{Addr: next}); err != nil {
			t.Error(err)
		}
	}))
	got, err := w.attach(c, request(pod("node-a", "u2", "c2"), 1, 0))
	if err == nil && got[0] == next || err != nil && !errors.Is(err, ErrContention) {
		t.Errorf("got %v, %v while %s became the gateway", got, err, next)
	}
	w.verify()
}
