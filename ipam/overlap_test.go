// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore/memstore"
)

// Case D10: a pool that overlaps an admitted one, has another block size and a name
// that sorts first changes nothing for the addresses that were given out.
func TestOverlappingPoolIsNotAskedForBlocks(t *testing.T) {
	w := newWorld(t)
	w.pool("z", "10.0.0.0/24", size(28))
	o := pod("node-a", "u1", "c1")
	addr := w.mustAttach(o, 1, 0)[0]
	w.pool("a", "10.0.0.0/23", size(30)) // not admitted

	got, err := w.c.AssignmentAttributes(t.Context(), addr)
	if err != nil || got.Active != o {
		t.Errorf("attributes of %s: %+v, %v", addr, got, err)
	}
	cidr := netip.PrefixFrom(addr, 28).Masked().String()
	w.releaseAffinity("node-a", cidr)
	if b := w.block(cidr); b.Pool != "z" {
		t.Errorf("the block is labelled with pool %q", b.Pool)
	}
	out, err := w.c.ReleaseIPs(t.Context(), []Release{{Release: block.Release{Addr: addr}}})
	if err != nil || out.Outcomes[0] != block.Released {
		t.Errorf("release %s: %+v, %v", addr, out, err)
	}
}

// A block that is deleted between being seen empty and being claimed is created
// again; its sequences go on (INV-15).
func TestReclaimOfADeletedBlock(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	leave(w, "node-b", 1)
	before := w.block("10.0.0.0/30").Seq
	w.clock.SetTime(epoch.Add(-time.Hour)) // this host's clock is behind
	c, faults := w.process("p")
	faults.Hook(once(func(op memstore.Op) bool { return op.Verb == memstore.Update && op.Table == "blocks" },
		func(context.Context, memstore.Op) {
			w.create(nil, w.c.ReleaseHostAffinities(t.Context(), "node-b", false))
		}))
	o := pod("node-a", "u1", "c1")
	if _, err := w.attach(c, request(o, 1, 0)); err != nil {
		t.Fatal(err)
	}
	if after := w.block("10.0.0.0/30").Seq; after <= before {
		t.Errorf("sequence %d after %d", after, before)
	}
	w.verify()
	w.claims()
}
