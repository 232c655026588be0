// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"math/big"
	"net/netip"

	"pgregory.net/rapid"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/pool"
)

// windowsNode is the node of the histories that reserves both ends of its blocks.
const windowsNode = "node-c"

var windowsEnds = block.HostReserved{StartOfBlock: 1, EndOfBlock: 1}

func drawNode(r *rapid.T) string {
	return rapid.SampledFrom([]string{"node-a", "node-b", windowsNode}).Draw(r, "node")
}

// ensure: when it succeeds, the node has the block it is told, with both ends reserved
// on windowsNode.
func (h *history) ensure(r *rapid.T) {
	node := drawNode(r)
	req := EnsureBlockRequest{V4: true, V6: rapid.Bool().Draw(r, "v6"), Host: pool.Node{Name: node}}
	if node == windowsNode {
		req.Reserved4, req.Reserved6 = windowsEnds, windowsEnds
	}
	c, f := h.client(r)
	got, err := c.EnsureBlock(h.t.Context(), req)
	f.Deliver()
	if err != nil {
		return
	}
	for _, cidr := range []netip.Prefix{got.V4, got.V6} {
		if !cidr.IsValid() {
			continue
		}
		e, err := h.mem.Store().Blocks.Get(h.t.Context(), cidr)
		if err != nil || e.Value.Affinity != block.Host(node) {
			r.Fatalf("block %s was ensured for %s: it is of %v, %v", cidr, node, e.Value.Affinity, err)
		}
		if _, missing := e.Value.Reserve(req.Reserved4, block.Request{Handle: WindowsHandle, Owner: block.Owner{Node: node}}); missing != 0 {
			r.Fatalf("block %s was ensured for %s without its reserved ordinals: %d", cidr, node, missing)
		}
	}
}

func (h *history) claim(r *rapid.T) {
	cidr := rapid.SampledFrom([]string{"10.0.0.0/28", "10.0.0.4/30", "fd00::8/125"}).Draw(r, "cidr")
	c, f := h.client(r)
	claimed, failed, err := c.ClaimAffinity(h.t.Context(), pool.Node{Name: drawNode(r)}, netip.MustParsePrefix(cidr))
	f.Deliver()
	if n := len(claimed) + len(failed); err == nil && n != map[string]int{"10.0.0.0/28": 4, "10.0.0.4/30": 1, "fd00::8/125": 2}[cidr] {
		r.Fatalf("claimed %v, failed %v of %s", claimed, failed, cidr)
	}
}

func (h *history) clear(r *rapid.T) {
	c, f := h.client(r)
	if rapid.IntRange(0, 3).Draw(r, "pool") == 0 {
		_ = c.ReleasePoolAffinities(h.t.Context(), "v4") // as far as the fault lets it
	} else {
		_ = c.ReleaseHostAffinities(h.t.Context(), drawNode(r), rapid.Bool().Draw(r, "empty"))
	}
	f.Deliver()
}

// collect: afterwards nothing is due but what it was told not to reach.
func (h *history) collect(r *rapid.T) {
	c, f := h.client(r)
	_, _ = c.CollectBlocks(h.t.Context(), nil, rapid.IntRange(0, 2).Draw(r, "limit"))
	f.Deliver()
	got, err := h.c.CollectBlocks(h.t.Context(), nil, 100)
	if err != nil || got.Left != 0 {
		r.Fatalf("collected %+v, %v", got, err)
	}
	cfg, err := h.c.Config(h.t.Context())
	if err != nil {
		r.Fatal(err)
	}
	for _, e := range h.blocks() {
		if _, n := e.Value.Collect(h.clock.Now(), cfg.IPCooldown); n != 0 {
			r.Fatalf("block %s has %d addresses due", e.Key, n)
		}
	}
}

// migrate hands one address of a pod to a new pod, on the condition that both its
// owners are what the ledger says (INV-15: a release planned before then misses).
func (h *history) migrate(r *rapid.T) {
	uid := h.draw(r)
	o := h.pods[uid]
	held := h.ledger[o.Attachment()]
	if len(held) != 1 {
		r.Skip("more than one address")
	}
	before, err := h.c.AssignmentAttributes(h.t.Context(), held[0])
	if err != nil {
		r.Fatal(err)
	}
	h.n++
	next := pod(drawNode(r), fmt.Sprint("u", h.n), fmt.Sprint("c", h.n))
	handle := SandboxHandle("net", next.ContainerID)
	set := func(c *Client) error {
		_, err := c.SetOwner(h.t.Context(), held[0], block.OwnerUpdate{Handle: &handle, Active: &next},
			block.OwnerPrecondition{Active: &o, Alternate: &block.Owner{}})
		return err
	}
	c, f := h.client(r)
	if err := set(c); err != nil {
		if err := set(h.c); err != nil {
			r.Fatalf("retried SetOwner: %v", err)
		}
	}
	f.Deliver()
	delete(h.pods, uid)
	delete(h.ledger, o.Attachment())
	h.pods[next.PodUID] = next
	h.ledger[next.Attachment()] = held
	stale := Release{Release: block.Release{Addr: held[0], Seq: before.Seq, BlockUID: before.BlockUID}, Block: before.Block}
	if got, err := h.c.ReleaseIPs(h.t.Context(), []Release{stale}); err != nil || got.Outcomes[0] != block.StaleSeq {
		r.Fatalf("a release planned before: %+v, %v", got, err)
	}
}

// count: capacity is the sum of what it is made of, in each pool and block, and what
// is in use is what the blocks say (INV-13).
func (h *history) count(r *rapid.T) {
	got, err := h.c.Utilization(h.t.Context())
	if err != nil {
		r.Fatal(err)
	}
	check := func(what string, u pool.Usage) {
		sum := new(big.Int)
		for _, n := range []*big.Int{u.Allocated, u.Cooling, u.Reserved, u.Available} {
			if n.Sign() < 0 {
				r.Fatalf("%s: %+v", what, u)
			}
			sum.Add(sum, n)
		}
		if sum.Cmp(u.Capacity) != 0 {
			r.Fatalf("%s: %+v does not add up", what, u)
		}
	}
	inUse := new(big.Int)
	for _, p := range got.Pools {
		check(p.Name, p.Usage)
		inUse.Add(inUse, p.Allocated)
		inBlocks := new(big.Int)
		for _, b := range p.Blocks {
			check(b.CIDR.String(), b.Usage)
			inBlocks.Add(inBlocks, b.Allocated)
		}
		if inBlocks.Cmp(p.Allocated) != 0 {
			r.Fatalf("pool %s has %v in use, its blocks %v", p.Name, p.Allocated, inBlocks)
		}
	}
	want := h.reserved()
	for _, as := range h.ledger {
		want += len(as)
	}
	if inUse.Int64() != int64(want) {
		r.Fatalf("%v in use, the ledger has %d", inUse, want)
	}
}
