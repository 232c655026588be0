// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
)

// coldBlocks leaves n nodes with a block each, in which one address is in use and one
// is cooling since now, under a cooldown of a minute.
func coldBlocks(w *world, n int) {
	w.pool("v4", "10.0.0.0/24", size(30))
	w.config(func(c *datastore.Config) { c.IPCooldown = time.Minute })
	for i := range n {
		node := fmt.Sprint("node-", i)
		w.mustAttach(pod(node, "u"+node, "c"+node), 1, 0)
		old := pod(node, "old"+node, "old"+node)
		w.mustAttach(old, 1, 0)
		w.mustDetach(old)
	}
}

// Nothing is written before its time; then one write a block, at most as many as
// asked for, and the rest is left for the next call.
func TestCollectBlocksBounded(t *testing.T) {
	w := newWorld(t)
	coldBlocks(w, 5)
	w.pass(59 * time.Second)
	c, faults := w.process("p")
	if got, err := c.CollectBlocks(t.Context(), nil, 2); err != nil || got.Freed != 0 || faults.Writes() != 0 {
		t.Fatalf("before its time: %+v, %v, %d writes", got, err, faults.Writes())
	}
	w.pass(time.Second)
	for call, want := range []Collected{{Freed: 2, Left: 3}, {Freed: 2, Left: 1}, {Freed: 1}, {}} {
		writes := faults.Writes()
		got, err := c.CollectBlocks(t.Context(), nil, 2)
		if err != nil || got.Freed != want.Freed || got.Left != want.Left || len(got.Blocks) != want.Freed || len(got.Deleted) != 0 {
			t.Errorf("call %d: %+v, %v", call, got, err)
		}
		if n := faults.Writes() - writes; n != want.Freed {
			t.Errorf("call %d: %d writes", call, n)
		}
	}
	w.verify()
}

// The caller may know which blocks are due; one that is gone is none.
func TestCollectBlocksNamed(t *testing.T) {
	w := newWorld(t)
	coldBlocks(w, 2)
	w.pass(time.Minute)
	one := w.blocks()[1].Key
	c, faults := w.process("p")
	got, err := c.CollectBlocks(t.Context(), []netip.Prefix{one, netip.MustParsePrefix("10.9.9.0/30")}, 0)
	if err != nil || got.Freed != 1 || len(got.Blocks) != 1 || got.Blocks[0] != one || faults.Writes() != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, op := range faults.Ops() {
		if op.Table == "blocks" && op.Verb == memstore.List {
			t.Error("it lists blocks")
		}
	}
	if got, err := c.CollectBlocks(t.Context(), []netip.Prefix{}, 0); err != nil || got.Freed != 0 {
		t.Errorf("an empty list is not all: %+v, %v", got, err)
	}
}

// Case R14: one block that cannot be written does not keep the others.
func TestCollectBlocksTriesAll(t *testing.T) {
	w := newWorld(t)
	coldBlocks(w, 3)
	w.pass(time.Minute)
	bad := w.blocks()[0].Key.String()
	c, faults := w.process("p")
	faults.Hook(func(_ context.Context, op memstore.Op) error {
		if op.Write > 0 && op.Key == bad {
			return errors.New("forbidden")
		}
		return nil
	})
	got, err := c.CollectBlocks(t.Context(), nil, 0)
	if got.Freed != 2 || err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Case C10: a release stamped by a clock a year ahead delays an address by one
// cooldown, also in a block that nobody writes to; a second ahead is nobody's error.
func TestCollectBlocksLowersTheFuture(t *testing.T) {
	for ahead, writes := range map[time.Duration]int{time.Second: 0, 365 * 24 * time.Hour: 1} {
		w := newWorld(t)
		w.pass(ahead)
		coldBlocks(w, 1)
		w.clock.SetTime(epoch)
		c, faults := w.process("p")
		if got, err := c.CollectBlocks(t.Context(), nil, 0); err != nil || got.Freed != 0 || faults.Writes() != writes {
			t.Errorf("%v ahead: %+v, %v, %d writes; want %d", ahead, got, err, faults.Writes(), writes)
		}
		w.pass(time.Minute + time.Second)
		if got, err := c.CollectBlocks(t.Context(), nil, 0); err != nil || got.Freed != 1 {
			t.Errorf("%v ahead, a cooldown later: %+v, %v", ahead, got, err)
		}
		w.verify()
	}
}

// Case E6: an empty block without an owner goes, unless somebody has an affinity for
// it or a newer version has written it.
func TestCollectBlocksDeletesUnowned(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(30))
	for i := range 4 {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(4 * i)}), 30)
		b, err := block.New(cidr, block.Affinity{}, 1, epoch)
		w.create(nil, err)
		switch i {
		case 1:
			w.create(w.mem.Store().Affinities.Create(t.Context(), datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: cidr},
				datastore.Affinity{State: datastore.Pending, Pool: "v4"}))
		case 2:
			b, _ = b.Allocate(block.Request{N: 1, Handle: "lb-1", Type: block.LoadBalancer, Now: epoch})
			b, _ = b.ReleaseHandle("lb-1", epoch)
		case 3: // half a claim: its owner confirms it
			b = b.WithAffinity(block.Host("node-b"), epoch)
		}
		w.create(w.mem.Store().Blocks.Create(t.Context(), cidr, b.Relabel("v4", nil)))
	}
	got, err := w.c.CollectBlocks(t.Context(), nil, 0)
	if err != nil || fmt.Sprint(got.Deleted) != "[10.0.0.0/30 10.0.0.8/30]" || got.Freed != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	es := w.blocks()
	if len(es) != 2 {
		t.Fatalf("%d blocks are left", len(es))
	}
	w.create(nil, w.c.dropAffinity(t.Context(), datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: es[0].Key}, 0))
	wire := block.Encode(es[0].Value)
	wire.Format++
	es[0].Value, err = block.Decode(wire)
	w.create(nil, err)
	if gone, err := w.c.deleteUnused(t.Context(), es[:1]); len(gone) != 0 || err != nil {
		t.Errorf("a block of a newer format is deleted: %v, %v", gone, err)
	}
}
