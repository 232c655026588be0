// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// windowsHost reserves two ordinals at the start and one at the end of each block.
var windowsHost = block.HostReserved{StartOfBlock: 2, EndOfBlock: 1}

func libraryScenarios() []scenario {
	return slices.Concat(reservedScenarios(), ownerScenarios(), claimScenarios(), collectScenarios(), countScenarios(), poolScenarios())
}

// reserved returns how many ordinals of all blocks are reserved.
func (w *world) reserved() int {
	n := 0
	for _, e := range w.blocks() {
		for _, s := range e.Value.All() {
			if s.State == block.Allocated && s.Type == block.WindowsReserved {
				n++
			}
		}
	}
	return n
}

func wantReserved(n int) func(*world) {
	return func(w *world) {
		w.t.Helper()
		if got := w.reserved(); got != n {
			w.t.Errorf("%d ordinals are reserved, want %d", got, n)
		}
	}
}

func dualStack(w *world) {
	w.pool("v4", "10.0.0.0/28", size(29))
	w.pool("v6", "fd00::/123", size(125))
}

func reservedScenarios() []scenario {
	ensure := func(h block.HostReserved) func(w *world, c *Client) error {
		return func(w *world, c *Client) error {
			_, err := c.EnsureBlock(w.t.Context(), EnsureBlockRequest{V4: true, V6: true, Host: pool.Node{Name: "node-a"}, Reserved4: h, Reserved6: h})
			return err
		}
	}
	windows := func(n4, n6 int) AutoAssignRequest {
		r := auto("node-a", "lb-1", n4, n6)
		r.Reserved4, r.Reserved6 = windowsHost, windowsHost
		return r
	}
	giveUp := func(w *world, c *Client) error {
		_, err := c.ReleaseByHandle(w.t.Context(), "lb-1", "")
		delete(w.ledger, block.Attachment{})
		return err
	}
	assign := func(n4, n6 int) func(*world, *Client) error {
		return handleRun(func(w *world, c *Client) ([]netip.Addr, error) {
			got, err := c.AutoAssign(w.t.Context(), windows(n4, n6))
			return addrs(got.All()), err
		})
	}
	return []scenario{
		{method: "AutoAssign", name: "host-reserved ordinals, two blocks a family", setup: dualStack, run: assign(6, 6), recover: giveUp, after: wantReserved(12)},
		{method: "AutoAssign", name: "host-reserved ordinals, an empty block of another such host", setup: func(w *world) {
			w.pool("v4", "10.0.0.0/29", size(29))
			r := windows(1, 0)
			r.Host.Name, r.Owner.Node = "node-b", "node-b"
			w.create(w.c.AutoAssign(w.t.Context(), r))
			w.create(w.c.ReleaseByHandle(w.t.Context(), "lb-1", ""))
			w.pass(2 * time.Minute)
		}, run: assign(1, 0), recover: giveUp, after: wantReserved(3)},
		{method: "EnsureBlock", name: "dual stack, reserved", setup: dualStack, run: ensure(windowsHost), after: wantReserved(6)},
		{method: "EnsureBlock", name: "nothing reserved", setup: dualStack, run: ensure(block.HostReserved{}), after: func(w *world) {
			if got := w.blocks(); len(got) != 2 || got[0].Value.Affinity != block.Host("node-a") || !got[0].Value.Empty() {
				w.t.Errorf("%d blocks: %+v", len(got), got)
			}
		}},
		{method: "EnsureBlock", name: "there already", setup: func(w *world) {
			dualStack(w)
			w.create(nil, ensure(windowsHost)(w, w.c))
		}, run: ensure(windowsHost), reads: true, after: wantReserved(6)},
		{method: "EnsureBlock", name: "the block has nothing reserved yet", setup: func(w *world) {
			dualStack(w)
			w.create(nil, ensure(block.HostReserved{})(w, w.c))
		}, run: ensure(windowsHost), after: wantReserved(6)},
		{method: "EnsureBlock", name: "an empty block of another host", setup: func(w *world) {
			w.pool("v4", "10.0.0.0/29", size(29))
			w.pool("v6", "fd00::/125", size(125))
			leave(w, "node-b", 1)
			w.mustAttach(pod("node-b", "u0", "c0"), 0, 1)
			w.mustDetach(pod("node-b", "u0", "c0"))
			w.pass(2 * time.Minute)
		}, run: ensure(windowsHost), after: wantReserved(6)},
	}
}

func ownerScenarios() []scenario {
	source, target := pod("node-a", "u1", "c1"), pod("node-b", "u2", "c2")
	attached := func(w *world) {
		w.pool("v4", "10.0.0.0/30", size(30))
		w.mustAttach(source, 1, 0)
	}
	promote := func(before block.Owner) func(*world, *Client) error {
		return func(w *world, c *Client) error {
			addr := netip.MustParseAddr("10.0.0.0")
			_, err := c.SetOwner(w.t.Context(), addr, block.OwnerUpdate{Active: &target, Alternate: &block.Owner{}},
				block.OwnerPrecondition{Active: &before, Alternate: &block.Owner{}})
			if err == nil {
				delete(w.ledger, source.Attachment())
				w.ledger[target.Attachment()] = []netip.Addr{addr}
			}
			return err
		}
	}
	return []scenario{
		{method: "SetOwner", name: "case D18: another pod, on another node", setup: attached, run: promote(source)},
		{method: "SetOwner", name: "as it is already", setup: func(w *world) { attached(w); w.create(nil, promote(source)(w, w.c)) }, run: promote(source), reads: true},
		{method: "SetOwner", name: "another owner than the caller saw", setup: attached, run: promote(pod("node-a", "u9", "c9")), want: ErrStale, reads: true},
	}
}

func claimScenarios() []scenario {
	a := pod("node-a", "u1", "c1")
	claim := func(w *world, c *Client) error {
		_, _, err := c.ClaimAffinity(w.t.Context(), pool.Node{Name: "node-a"}, netip.MustParsePrefix("10.0.0.0/28"))
		return err
	}
	setup := func(w *world) {
		w.pool("v4", "10.0.0.0/28", size(30))
		w.mustAttach(a, 1, 0)
		w.mustAttach(pod("node-b", "u2", "c2"), 1, 0)
	}
	owns := func(n int) func(*world) {
		return func(w *world) {
			w.t.Helper()
			w.stray()
			got := 0
			for _, e := range w.blocks() {
				if e.Value.Affinity == block.Host("node-a") {
					got++
				}
			}
			if got != n {
				w.t.Errorf("node-a has %d blocks, want %d", got, n)
			}
		}
	}
	return []scenario{
		{method: "ClaimAffinity", name: "four blocks, one of another host", setup: setup, run: claim, after: owns(3)},
		{method: "ClaimAffinity", name: "claimed already", setup: func(w *world) { setup(w); w.create(nil, claim(w, w.c)) }, run: claim, reads: true, after: owns(3)},
		{method: "ReleaseHostAffinities", name: "one in use, two empty", setup: func(w *world) { setup(w); w.create(nil, claim(w, w.c)) }, run: func(w *world, c *Client) error {
			return c.ReleaseHostAffinities(w.t.Context(), "node-a", false)
		}, after: owns(0)},
		{method: "ReleaseHostAffinities", name: "nothing there", setup: setup, run: func(w *world, c *Client) error {
			return c.ReleaseHostAffinities(w.t.Context(), "node-c", true)
		}, reads: true, after: owns(1)},
		{method: "ReleaseHostAffinities", name: "must be empty", setup: func(w *world) { setup(w); w.create(nil, claim(w, w.c)) }, run: func(w *world, c *Client) error {
			return c.ReleaseHostAffinities(w.t.Context(), "node-a", true)
		}, want: ErrBlockNotEmpty, after: owns(1)},
		{method: "ReleasePoolAffinities", name: "two hosts", setup: func(w *world) { setup(w); w.create(nil, claim(w, w.c)) }, run: func(w *world, c *Client) error {
			return c.ReleasePoolAffinities(w.t.Context(), "v4")
		}, after: func(w *world) {
			owns(0)(w)
			if n := len(w.blocks()); n != 2 {
				w.t.Errorf("%d blocks are left, want those in use: 2", n)
			}
		}},
	}
}

func collectScenarios() []scenario {
	collect := func(w *world, c *Client) error {
		_, err := c.CollectBlocks(w.t.Context(), nil, 0)
		return err
	}
	// node-a has a block with two addresses cooling and one in use, node-b's is empty
	// and its affinity is released.
	cold := func(w *world) {
		w.pool("v4", "10.0.0.0/28", size(30))
		w.config(func(c *datastore.Config) { c.IPCooldown = time.Minute })
		w.mustAttach(pod("node-a", "u1", "c1"), 1, 0)
		old, gone := pod("node-a", "u2", "c2"), pod("node-b", "u3", "c3")
		cidr := netip.PrefixFrom(w.mustAttach(gone, 1, 0)[0], 30).Masked().String()
		w.mustAttach(old, 2, 0)
		w.mustDetach(old)
		w.mustDetach(gone)
		w.releaseAffinity("node-b", cidr)
	}
	return []scenario{
		{method: "CollectBlocks", name: "case E6: one to collect, one to delete", setup: func(w *world) { cold(w); w.pass(2 * time.Minute) }, run: collect, after: func(w *world) {
			es := w.blocks()
			if len(es) != 1 || es[0].Value.Affinity != block.Host("node-a") {
				w.t.Fatalf("blocks are %+v", es)
			}
			if _, due := es[0].Value.Collect(w.clock.Now(), time.Minute); due != 0 {
				w.t.Errorf("%d addresses are due", due)
			}
		}},
		{method: "CollectBlocks", name: "nothing is due", setup: cold, run: collect, reads: true},
	}
}

func countScenarios() []scenario {
	setup := func(w *world) {
		dualStack(w)
		w.mustAttach(pod("node-a", "u1", "c1"), 2, 1)
		w.reserve("r", "10.0.0.0/30")
	}
	return []scenario{
		{method: "Utilization", name: "two pools", setup: setup, reads: true, run: func(w *world, c *Client) error {
			got, err := c.Utilization(w.t.Context())
			if err == nil && (len(got.Pools) != 2 || got.Pools[0].Allocated.Int64() != 2) {
				return fmt.Errorf("utilization is %+v", got)
			}
			return err
		}},
		{method: "NumReservedIPsInCIDR", name: "half a block", setup: setup, reads: true, run: func(w *world, c *Client) error {
			n, err := c.NumReservedIPsInCIDR(w.t.Context(), netip.MustParsePrefix("10.0.0.0/28"))
			if err == nil && n.Int64() != 4 {
				return fmt.Errorf("%v reserved", n)
			}
			return err
		}},
	}
}

// stray reports affinities that are not confirmed or whose block does not name
// their owner: at rest there is none (INV-6).
func (w *world) stray() {
	w.t.Helper()
	es, err := w.mem.Store().Affinities.List(w.t.Context(), datastore.Query{})
	if err != nil {
		w.t.Fatal(err)
	}
	blocks := w.blocks()
	for _, e := range es {
		i := slices.IndexFunc(blocks, func(b blockEntry) bool { return b.Key == e.Key.CIDR })
		switch {
		case e.Value.State != datastore.Confirmed:
			w.t.Errorf("affinity %v is %s", e.Key, e.Value.State)
		case i < 0:
			w.t.Errorf("affinity %v has no block", e.Key)
		case blocks[i].Value.Affinity != e.Key.Owner:
			w.t.Errorf("affinity %v is confirmed and the block names %q", e.Key, blocks[i].Value.Affinity)
		}
	}
}
