// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
)

// INV-8: a release carries what was seen; a mismatch is an outcome and changes
// nothing (cases D5, D13).
func TestReleaseIPsMismatchIsSkipped(t *testing.T) {
	o := pod("node-a", "u1", "c1")
	tests := []struct {
		name   string
		change func(*Release)
		want   block.Outcome
	}{
		{"as seen", func(*Release) {}, block.Released},
		{"stale sequence", func(r *Release) { r.Seq-- }, block.StaleSeq},
		{"other handle", func(r *Release) { r.Handle = "net.other" }, block.OtherHandle},
		{"other owner", func(r *Release) { r.Owner = &block.Owner{Pod: "x"} }, block.OtherOwner},
		{"other block object", func(r *Release) { r.BlockUID = "another" }, block.StaleSeq},
		{"free address", func(r *Release) { r.Addr = r.Addr.Next() }, block.AlreadyFree},
		{"block from the pools", func(r *Release) { r.Block = netip.Prefix{} }, block.Released},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/30", size(30))
			w.mustAttach(o, 1, 0)
			seen, err := w.c.AttachmentIPs(t.Context(), o.Attachment(), "node-a")
			if err != nil || len(seen) != 1 {
				t.Fatalf("seen %v, %v", seen, err)
			}
			r := Release{Block: seen[0].Block, Release: block.Release{
				Addr: seen[0].Addr, Seq: seen[0].Seq, Handle: SandboxHandle("net", "c1"), Owner: &o, BlockUID: seen[0].BlockUID,
			}}
			tt.change(&r)
			got, err := w.c.ReleaseIPs(t.Context(), []Release{r})
			if err != nil || got.Outcomes[0] != tt.want || len(got.Retry) != 0 {
				t.Fatalf("got %+v, %v; want %v", got, err, tt.want)
			}
			if tt.want == block.Released {
				delete(w.ledger, o.Attachment())
			}
			w.verify()
		})
	}
}

// Case R14: a block that fails does not keep the others from being released; the
// error says which one failed and the rest is data.
func TestReleaseIPsTriesAll(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(30))
	o := pod("node-a", "u1", "c1")
	w.mustAttach(o, 12, 0) // three blocks
	seen, err := w.c.AttachmentIPs(t.Context(), o.Attachment(), "")
	if err != nil {
		t.Fatal(err)
	}
	bad := seen[4].Block
	c, faults := w.process("p")
	faults.Hook(func(_ context.Context, op memstore.Op) error {
		if op.Key == bad.String() {
			return errors.New("forbidden")
		}
		return nil
	})
	var rs []Release
	for _, s := range seen {
		rs = append(rs, Release{Release: block.Release{Addr: s.Addr, Seq: s.Seq}})
	}
	got, err := c.ReleaseIPs(t.Context(), rs)
	if err == nil || !strings.Contains(err.Error(), bad.String()) || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("the error does not name the block: %v", err)
	}
	if len(got.Retry) != 4 {
		t.Errorf("%d to retry, want the 4 of block %s", len(got.Retry), bad)
	}
	w.ledger[o.Attachment()] = slices.DeleteFunc(w.ledger[o.Attachment()], func(a netip.Addr) bool { return !bad.Contains(a) })
	w.verify()
	if again, err := w.c.ReleaseIPs(t.Context(), got.Retry); err != nil || again.Outcomes[0] != block.Released {
		t.Fatalf("retry: %+v, %v", again, err)
	}
	delete(w.ledger, o.Attachment())
	w.verify()
	if _, err := w.c.ReleaseIPs(t.Context(), []Release{{Release: block.Release{Addr: netip.MustParseAddr("192.0.2.1")}}}); !errors.Is(err, ErrNotInPool) {
		t.Errorf("an address of no pool: %v", err)
	}
}

// Case R14 for DEL: one block that cannot be written does not stop the others.
func TestDetachTriesAll(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(30))
	o := pod("node-a", "u1", "c1")
	w.mustAttach(o, 8, 0)
	c, faults := w.process("p")
	var bad string
	faults.Hook(func(_ context.Context, op memstore.Op) error {
		if op.Verb == memstore.Update && (bad == "" || bad == op.Key) {
			bad = op.Key
			return errors.New("forbidden")
		}
		return nil
	})
	err := w.detach(c, o)
	if err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Fatalf("nothing may be swallowed (case R13): %v", err)
	}
	w.ledger[o.Attachment()] = slices.DeleteFunc(w.ledger[o.Attachment()], func(a netip.Addr) bool {
		return !netip.MustParsePrefix(bad).Contains(a)
	})
	w.verify()
}

// INV-2, INV-10: a list that fails proves nothing; DEL says so.
func TestDetachWithoutTheStoreFails(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(30))
	o := pod("node-a", "u1", "c1")
	w.mustAttach(o, 1, 0)
	c, faults := w.process("p")
	faults.DeadFrom(1)
	if err := w.detach(c, o); !errors.Is(err, memstore.ErrUnreachable) {
		t.Fatalf("got %v", err)
	}
	w.verify()
}

// INV-2: a slot whose line cannot be read is nobody's to release, and a block of a
// newer format is not rewritten: DEL names the version, ADD goes elsewhere.
func TestUnreadableIsAlive(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(30))
	o := pod("node-a", "u1", "c1")
	first := w.mustAttach(o, 1, 0)[0]
	cidr := netip.PrefixFrom(first, 30).Masked()

	e, err := w.mem.Store().Blocks.Get(t.Context(), cidr)
	if err != nil {
		t.Fatal(err)
	}
	wire := block.Encode(e.Value)
	wire.Slots = append(wire.Slots, "9 not a line")
	wire.Slots[0] = strings.Replace(wire.Slots[0], "type=workload", "type=workload type=again", 1)
	damaged, err := block.Decode(wire)
	if err != nil {
		t.Fatal(err)
	}
	damaged.Pool, damaged.Space = e.Value.Pool, e.Value.Space
	e.Value = damaged
	if e, err = w.mem.Store().Blocks.Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if released, err := w.c.ReleaseByHandle(t.Context(), SandboxHandle("net", "c1"), ""); err != nil || len(released) != 0 {
		t.Errorf("released %v, %v of a line that cannot be read", released, err)
	}
	got, err := w.c.ReleaseIPs(t.Context(), []Release{{Release: block.Release{Addr: first}}})
	if err != nil || got.Outcomes[0] != block.UnknownOwner {
		t.Errorf("got %+v, %v; want UnknownOwner", got, err)
	}
	for i := range 3 { // the rest of the block still serves
		next := w.mustAttach(pod("node-a", string(rune('x'+i)), string(rune('x'+i))), 1, 0)[0]
		if next == first {
			t.Fatalf("%s was handed out twice (INV-1)", first)
		}
	}
}

// INV-6, INV-15: release starts at the block, and a block that is created again
// starts above the sequence of every affinity known for it.
func TestReleaseAffinity(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	o := pod("node-a", "u1", "c1")
	w.mustAttach(o, 1, 0)
	key := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: netip.MustParsePrefix("10.0.0.0/30")}

	if err := w.c.ReleaseAffinity(t.Context(), key, true); !errors.Is(err, ErrBlockNotEmpty) {
		t.Fatalf("mustBeEmpty on a block in use: %v", err)
	}
	if a, _ := w.affinity("node-a", "10.0.0.0/30"); a.State != datastore.Confirmed {
		t.Errorf("a refused release left the affinity %s", a.State)
	}
	c, faults := w.process("p")
	if err := c.ReleaseAffinity(t.Context(), key, false); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, op := range faults.Ops() {
		if op.Write > 0 {
			order = append(order, string(op.Verb)+" "+op.Table)
		}
	}
	if want := []string{"update blocks", "update affinities", "delete affinities"}; !slices.Equal(order, want) {
		t.Errorf("writes %v, want %v", order, want)
	}
	w.mustDetach(o)
	w.verify()

	// A confirmed affinity of the future, from a block object that is gone.
	e, err := w.mem.Store().Blocks.Get(t.Context(), key.CIDR)
	if err == nil {
		err = w.mem.Store().Blocks.Delete(t.Context(), e)
	}
	const future = uint64(1) << 62
	if err == nil {
		_, err = w.mem.Store().Affinities.Create(t.Context(), key, datastore.Affinity{State: datastore.Confirmed, Pool: "v4", BlockSeq: future})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.mustAttach(o, 1, 0)
	if b := w.block("10.0.0.0/30"); b.Seq <= future {
		t.Errorf("the block starts at %d, below its affinity's %d", b.Seq, future)
	}
	w.verify()
}

func TestAttributesAndLookup(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	o := pod("node-a", "u1", "c1")
	a := w.mustAttach(o, 1, 0)[0]
	if at, err := w.c.AssignmentAttributes(t.Context(), a); err != nil || at.Active != o || at.State != block.Allocated {
		t.Errorf("in use: %+v, %v", at, err)
	}
	w.mustDetach(o)
	if at, err := w.c.AssignmentAttributes(t.Context(), a); err != nil || at.State != block.Cooling || at.LastHandle != "net.c1" {
		t.Errorf("cooling: %+v, %v", at, err)
	}
	if got, err := w.c.IPsByHandle(t.Context(), "net.c1", ""); err != nil || len(got) != 0 {
		t.Errorf("lookups must ignore cooling slots: %v, %v", got, err)
	}
	if _, err := w.c.AssignmentAttributes(t.Context(), a.Next()); !errors.Is(err, ErrNotAllocated) {
		t.Errorf("free: %v", err)
	}
	if _, err := w.c.AssignmentAttributes(t.Context(), netip.MustParseAddr("192.0.2.1")); !errors.Is(err, ErrNotInPool) {
		t.Errorf("no pool: %v", err)
	}
}

func TestSetConfig(t *testing.T) {
	w := newWorld(t)
	bad := datastore.ConfigDefaults()
	bad.AutoAllocateBlocks, bad.IPCooldown = false, -1
	err := w.c.SetConfig(t.Context(), bad)
	for _, field := range []string{"spec.autoAllocateBlocks", "spec.ipCooldownSeconds"} {
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("want ErrInvalid that names %s: %v", field, err)
		}
	}
	good := datastore.ConfigDefaults()
	good.StrictAffinity = true
	c, faults := w.process("p")
	for range 2 {
		if err := c.SetConfig(t.Context(), good); err != nil {
			t.Fatal(err)
		}
	}
	if n := faults.Writes(); n != 1 {
		t.Errorf("%d writes; storing what is there already should write nothing", n)
	}
}
