// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore/memstore"
)

// SetOwner demands both owners, or the sequence that stands for both (INV-8, INV-15;
// case D18).
func TestSetOwner(t *testing.T) {
	source, target := pod("node-a", "u1", "c1"), pod("node-b", "u2", "c2")
	other, none := pod("node-c", "u3", "c3"), block.Owner{}
	empty, handle := block.HandleID(""), block.HandleID("net.vm")
	type update = block.OwnerUpdate
	type before = block.OwnerPrecondition
	tests := []struct {
		name string
		addr string
		u    update
		p    before
		want error
	}{
		{"add the target of a migration", "10.0.0.0", update{Alternate: &target}, before{Active: &source, Alternate: &none}, nil},
		{"promote it", "10.0.0.1", update{Active: &target, Alternate: &none}, before{Active: &source, Alternate: &target}, nil},
		{"clear both", "10.0.0.1", update{Active: &none, Alternate: &none}, before{Active: &source, Alternate: &target}, nil},
		{"another handle", "10.0.0.0", update{Handle: &handle}, before{Active: &source, Alternate: &none, Handle: SandboxHandle("net", "c1")}, nil},
		{"the active owner differs", "10.0.0.0", update{Active: &target}, before{Active: &other, Alternate: &none}, ErrStale},
		{"the alternate owner differs", "10.0.0.1", update{Active: &target}, before{Active: &source, Alternate: &none}, ErrStale},
		{"the handle differs", "10.0.0.0", update{Active: &target}, before{Active: &source, Alternate: &none, Handle: "x"}, ErrStale},
		{"the sequence differs", "10.0.0.0", update{Active: &target}, before{Seq: 7}, ErrStale},
		{"free address", "10.0.0.3", update{Active: &target}, before{Seq: 7}, ErrStale},
		{"block that does not exist", "10.0.0.5", update{Active: &target}, before{Seq: 7}, ErrStale},
		{"no pool", "192.0.2.1", update{Active: &target}, before{Seq: 7}, ErrNotInPool},
		{"nothing to change", "10.0.0.0", update{}, before{Seq: 7}, ErrInvalid},
		{"no handle left", "10.0.0.0", update{Handle: &empty}, before{Seq: 7}, ErrInvalid},
		{"only one owner is known", "10.0.0.0", update{Active: &target}, before{Active: &source}, ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/29", size(30))
			if _, err := w.attach(w.c, with(request(source, 0, 0), "10.0.0.0", "10.0.0.1")); err != nil {
				t.Fatal(err)
			}
			w.create(w.c.SetOwner(t.Context(), netip.MustParseAddr("10.0.0.1"), update{Alternate: &target}, before{Active: &source, Alternate: &none}))
			addr := netip.MustParseAddr(tt.addr)
			was, _ := w.block("10.0.0.0/30").Slot(addr)
			got, err := w.c.SetOwner(t.Context(), addr, tt.u, tt.p)
			is, _ := w.block("10.0.0.0/30").Slot(addr)
			switch {
			case !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil):
				t.Fatalf("%v, want %v", err, tt.want)
			case err != nil && is != was:
				t.Errorf("refused, and changed to %+v", is)
			case err == nil && (got.Seq <= was.Seq || is.Seq != got.Seq || got.BlockUID == ""):
				t.Errorf("sequence %d, told %+v, after %d (INV-15)", is.Seq, got, was.Seq)
			case err == nil && !isAsked(is, tt.u, before{}):
				t.Errorf("the owners are %+v", is)
			}
		})
	}
}

// A rival that changes another address of the block costs a retry, one that changes
// this one is told of.
func TestSetOwnerAgainstARival(t *testing.T) {
	source, target, rival := pod("node-a", "u1", "c1"), pod("node-b", "u2", "c2"), pod("node-c", "u3", "c3")
	for name, stale := range map[string]bool{"another address": false, "this address": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/30", size(30))
			w.mustAttach(source, 2, 0)
			addr := w.ledger[source.Attachment()][0]
			p := block.OwnerPrecondition{Active: &source, Alternate: &block.Owner{}}
			hit := addr
			if !stale {
				hit = w.ledger[source.Attachment()][1]
			}
			c, faults := w.process("p")
			faults.Hook(once(func(op memstore.Op) bool { return op.Verb == memstore.Update },
				func(ctx context.Context, _ memstore.Op) {
					w.create(w.c.SetOwner(ctx, hit, block.OwnerUpdate{Active: &rival}, p))
				}))
			_, err := c.SetOwner(t.Context(), addr, block.OwnerUpdate{Active: &target}, p)
			if errors.Is(err, ErrStale) != stale || (err != nil) != stale {
				t.Errorf("%v", err)
			}
		})
	}
}
