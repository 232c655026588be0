// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

func stages() []stage {
	always := []string{
		"attach a", "attach a'", "attach b", "detach a", "release a", "release a empty", "release b empty",
		"given a", "assign b", "gc a", "edit pool", "disable pool", "delete pool", "reserve", "unreserve",
		"ensure a", "claim b", "release all a", "release pool", "collect",
		"auto b", "replace pool", "free handle a", "free addresses a", "change owner a", "windows c", "look",
	}
	settings := func(set func(*datastore.Config)) func(*play) {
		return func(p *play) { p.config(set) }
	}
	strict := settings(func(c *datastore.Config) { c.StrictAffinity = true })
	limited := settings(func(c *datastore.Config) { c.MaxBlocksPerHost = 1 })
	both := settings(func(c *datastore.Config) { c.StrictAffinity, c.MaxBlocksPerHost = true, 1 })
	two := func(p *play) { p.pool("v4", "10.0.0.0/29", size(30)) }
	one := func(p *play) { p.pool("v4", "10.0.0.0/30", size(30)) }
	used := func(p *play) { p.mustAttach(pod("node-a", "a0", "a0"), 1, 0) }
	left := func(p *play) { leave(p.world, "node-a", 1) }
	unowned := func(p *play) {
		p.mustAttach(pod("node-c", "c0", "c0"), 1, 0)
		p.releaseAffinity("node-c", p.blocks()[0].Key.String())
	}
	full := func(p *play) {
		p.mustAttach(pod("node-a", "a0", "a0"), 3, 0)
		p.reserve("rsv", p.free().String()+"/32")
	}
	cooling := func(p *play) {
		p.config(func(c *datastore.Config) { c.IPCooldown = 20 * time.Minute })
		used(p)
		o := pod("node-a", "a9", "a9")
		p.mustAttach(o, 3, 0)
		p.mustDetach(o)
	}
	restarted := func(p *play) {
		p.pool("v6", "fd00::/125", size(126))
		o := pod("node-a", "r0", "old")
		p.mustAttach(o, 1, 1)
		delete(p.ledger, o.Attachment())
		p.dead[o.Attachment()] = true
	}
	all := func(fs ...func(*play)) func(*play) {
		return func(p *play) {
			for _, f := range fs {
				f(p)
			}
		}
	}
	return []stage{
		{name: "new pool", setup: two, ops: always},
		{name: "new pool of one block", setup: one, ops: always},
		{name: "new pool, strict, one block a host", setup: all(two, both), ops: always},
		{name: "in use", setup: all(two, used), ops: always},
		{name: "in use, one block", setup: all(one, used), ops: always},
		{name: "in use, strict", setup: all(two, strict, used), ops: always},
		{name: "left, one block", setup: all(one, left), ops: always},
		{name: "left, strict, one block a host", setup: all(two, both, left), ops: always},
		{name: "without owner", setup: all(one, unowned), ops: always},
		{name: "without owner, one block a host", setup: all(two, limited, unowned), ops: always},
		{name: "full but for a reservation", setup: all(one, full), ops: always},
		{name: "stale lists", setup: all(two, used), stale: 3, ops: always},
		{name: "stale lists, one block", setup: all(one, left), stale: 4, ops: always},
		{name: "stale lists, strict, one block a host", setup: all(two, both, left), stale: 3, ops: always},
		{name: "a clock behind", setup: all(two, used), skew: -time.Hour, ops: always},
		{name: "a clock ahead", setup: all(one, left), skew: time.Hour, ops: always},
		{name: "cooling, a clock behind", setup: all(one, cooling), skew: -time.Hour, ops: always},
		{name: "three hosts, strict", setup: all(two, strict, used, func(p *play) { p.mustAttach(pod("node-b", "b0", "b0"), 1, 0) }), ops: append(always, "strict off", "strict on", "attach c")},
		{name: "three hosts, loose", setup: all(two, used, func(p *play) { p.mustAttach(pod("node-b", "b0", "b0"), 2, 0) }), ops: append(always, "strict off", "strict on", "attach c")},
		{name: "admitted later", setup: all((*play).admitLater, two, (*play).reconcile), ops: []string{
			"attach a", "attach b", "given a", "ensure a", "auto b", "replace pool", "release pool", "delete pool", "disable pool", "claim b", "reconcile",
		}},
		{name: "admitted later, in use", setup: all((*play).admitLater, one, (*play).reconcile, used), ops: []string{
			"attach a", "attach b", "detach a", "given a", "replace pool", "release pool", "delete pool", "reconcile",
		}},
		{name: "restarted", setup: all(one, restarted), ops: []string{
			"restart", "late DEL", "dual b", "gc a", "release a", "release b empty", "attach b", "edit pool", "reserve", "attach a'",
		}},
	}
}

// free returns a free address of the only block.
func (p *play) free() netip.Addr {
	for a := range p.blocks()[0].Value.Free() {
		return a
	}
	p.t.Fatal("no address is free")
	return netip.Addr{}
}

// look reads all that can be read of the first address of the pool; each answer must
// make sense by itself (INV-12, INV-13).
func (p *play) look(c *Client, _ string) error {
	a := netip.MustParseAddr("10.0.0.1")
	at, err := c.AssignmentAttributes(p.t.Context(), a)
	if errors.Is(err, ErrNotInPool) {
		return err
	}
	if err != nil && !errors.Is(err, ErrNotAllocated) {
		return fmt.Errorf("attributes: %w", err)
	}
	if err == nil && at.State == block.Allocated && (at.Handle == "" || !at.Block.Contains(a)) {
		return fmt.Errorf("attributes are %+v", at)
	}
	used, err := c.Utilization(p.t.Context())
	if err != nil {
		return err
	}
	for _, u := range used.Pools {
		sum := new(big.Int)
		for _, n := range []*big.Int{u.Allocated, u.Cooling, u.Reserved, u.Available} {
			sum.Add(sum, n)
		}
		if sum.Cmp(u.Capacity) != 0 {
			return fmt.Errorf("pool %s does not add up: %+v", u.Name, u.Usage)
		}
	}
	if _, err := c.IPsByHandle(p.t.Context(), SandboxHandle("net", "a0"), ""); err != nil {
		return err
	}
	if _, err := c.AttachmentIPs(p.t.Context(), pod("", "", "a0").Attachment(), "node-a"); err != nil {
		return err
	}
	if _, err := c.NumReservedIPsInCIDR(p.t.Context(), netip.MustParsePrefix("10.0.0.0/29")); err != nil {
		return err
	}
	err = c.Ready(p.t.Context(), AutoAssignRequest{Num4: 1, Host: pool.Node{Name: "node-a"}, Use: pool.UseWorkload})
	if errors.Is(err, ErrNoPool) { // to look is several operations: the pool may go in between
		return ErrNotInPool
	}
	return err
}

// replace ends the pool and puts another over its range, with blocks of another size, of
// which somebody takes all: late, so that no claim is taken for one in the making.
func (p *play) replace(c *Client, id string) error {
	ctx := p.t.Context()
	p.pass(claimLife + time.Second)
	pools := p.mem.Store().Pools
	e, err := pools.Get(ctx, "v4")
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	later := p.mem.Store().PoolStatus != nil
	if later {
		err = pools.Delete(ctx, e)
	}
	if err == nil {
		err = c.ReleasePoolAffinities(ctx, "v4")
	}
	if err == nil && !later {
		err = pools.Delete(ctx, e)
	}
	if err == nil && later {
		_, err = c.ReconcilePools(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	n := 1 << (32 - e.Value.Spec.CIDR.Bits())
	spec := pool.Spec{CIDR: e.Value.Spec.CIDR, BlockSize: 31}
	if _, err := pools.Create(ctx, "next", pool.Pool{Name: "next", Spec: spec.WithDefaults()}); err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	if later {
		if _, err := c.ReconcilePools(ctx); err != nil {
			return err
		}
	}
	for i := range n {
		if err := p.attachAs(c, fmt.Sprint(id, i), fmt.Sprint("node-", i), 1, 0); err != nil {
			return nil // it is not admitted, or others have taken of it
		}
	}
	return nil
}

func operations() []operation {
	attach := func(node string, n4, n6 int) func(*play, *Client, string) error {
		return func(p *play, c *Client, id string) error { return p.attachAs(c, id, node, n4, n6) }
	}
	release := func(node string, empty bool) func(*play, *Client, string) error {
		return func(p *play, c *Client, _ string) error {
			for _, cidr := range []string{"10.0.0.0/30", "10.0.0.4/30"} {
				k := datastore.AffinityKey{Owner: block.Host(node), CIDR: netip.MustParsePrefix(cidr)}
				if err := c.ReleaseAffinity(p.t.Context(), k, empty); err != nil {
					return err
				}
			}
			return nil
		}
	}
	change := func(set func(*pool.Pool)) func(*play, *Client, string) error {
		return func(p *play, _ *Client, _ string) error { return p.changePool(set) }
	}
	config := func(set func(*datastore.Config)) func(*play, *Client, string) error {
		return func(p *play, c *Client, _ string) error {
			cfg, err := c.Config(p.t.Context())
			if err != nil {
				return err
			}
			set(&cfg)
			return c.SetConfig(p.t.Context(), cfg)
		}
	}
	return []operation{
		{"attach a", attach("node-a", 1, 0)},
		{"attach a'", attach("node-a", 3, 0)},
		{"attach b", attach("node-b", 1, 0)},
		{"dual b", attach("node-b", 2, 1)},
		{"attach c", attach("node-c", 1, 0)},
		{"strict on", config(func(c *datastore.Config) { c.StrictAffinity = true })},
		{"strict off", config(func(c *datastore.Config) { c.StrictAffinity = false })},
		{"restart", func(p *play, c *Client, id string) error {
			_, err := p.attach(c, request(pod("node-a", "r0", id), 1, 1))
			for _, other := range []string{"first", "second", "third"} { // the last sandbox of a pod is alive
				if o := pod("", "", other).Attachment(); other != id && err == nil {
					delete(p.ledger, o)
					p.dead[o] = true
				}
			}
			return err
		}},
		{"late DEL", func(p *play, c *Client, _ string) error { return p.detach(c, pod("node-a", "r0", "old")) }},
		{"detach a", func(p *play, c *Client, _ string) error { return p.detach(c, pod("node-a", "a0", "a0")) }},
		{"given a", func(p *play, c *Client, id string) error { return p.attachAs(c, id, "node-a", 0, 0, "10.0.0.1") }},
		{"assign b", func(p *play, c *Client, id string) error {
			o := pod("node-b", id, id)
			r := AssignIPRequest{AutoAssignRequest: request(o, 1, 0).AutoAssignRequest, Addr: netip.MustParseAddr("10.0.0.2")}
			r.Handle, r.Type = SandboxHandle("net", id), block.Workload
			got, err := c.AssignIP(p.t.Context(), r)
			if err == nil {
				p.ledger[o.Attachment()] = []netip.Addr{got.Addr}
			}
			return err
		}},
		{"release a", release("node-a", false)},
		{"release a empty", release("node-a", true)},
		{"release b empty", release("node-b", true)},
		{"ensure a", func(p *play, c *Client, _ string) error {
			_, err := c.EnsureBlock(p.t.Context(), EnsureBlockRequest{V4: true, Host: pool.Node{Name: "node-a"}})
			return err
		}},
		{"claim b", func(p *play, c *Client, _ string) error {
			claimed, _, err := c.ClaimAffinity(p.t.Context(), pool.Node{Name: "node-b"}, netip.MustParsePrefix("10.0.0.0/30"))
			p.claimed = p.claimed || len(claimed) > 1 // of the pool that has come in the place of the first
			return err
		}},
		{"release all a", func(p *play, c *Client, _ string) error {
			return c.ReleaseHostAffinities(p.t.Context(), "node-a", false)
		}},
		{"release pool", func(p *play, c *Client, _ string) error { return c.ReleasePoolAffinities(p.t.Context(), "v4") }},
		{"collect", func(p *play, c *Client, _ string) error {
			_, err := c.CollectBlocks(p.t.Context(), nil, 0)
			return err
		}},
		{"gc a", func(p *play, c *Client, _ string) error {
			valid := []block.Attachment{pod("", "", "first").Attachment(), pod("", "", "second").Attachment(), pod("", "", "third").Attachment()}
			_, err := c.DetachOthers(p.t.Context(), "net", "node-a", valid)
			if err == nil {
				delete(p.ledger, pod("", "", "a0").Attachment())
			}
			return err
		}},
		{"auto b", func(p *play, c *Client, id string) error {
			o := pod("node-b", id, id)
			r := request(o, 1, 0).AutoAssignRequest
			r.Handle, r.Type = SandboxHandle("net", id), block.Workload
			got, err := c.AutoAssign(p.t.Context(), r)
			if err == nil {
				p.ledger[o.Attachment()] = addrs(got.All())
			}
			return err
		}},
		{"free handle a", func(p *play, c *Client, _ string) error {
			_, err := c.ReleaseByHandle(p.t.Context(), SandboxHandle("net", "a0"), "")
			if err == nil {
				delete(p.ledger, pod("", "", "a0").Attachment())
			}
			return err
		}},
		{"free addresses a", func(p *play, c *Client, _ string) error {
			key := pod("", "", "a0").Attachment()
			var rs []Release
			for _, a := range p.ledger[key] {
				rs = append(rs, Release{Release: block.Release{Addr: a, Handle: SandboxHandle("net", "a0")}})
			}
			_, err := c.ReleaseIPs(p.t.Context(), rs)
			if err == nil {
				delete(p.ledger, key)
			}
			return err
		}},
		{"change owner a", func(p *play, c *Client, id string) error {
			before, after := pod("node-a", "a0", "a0"), pod("node-a", id, id)
			held := p.ledger[before.Attachment()]
			if len(held) != 1 {
				return errRefused
			}
			handle := SandboxHandle("net", id)
			_, err := c.SetOwner(p.t.Context(), held[0], block.OwnerUpdate{Handle: &handle, Active: &after},
				block.OwnerPrecondition{Active: &before, Alternate: &block.Owner{}})
			if err == nil {
				delete(p.ledger, before.Attachment())
				p.ledger[after.Attachment()] = held
			}
			return err
		}},
		{"windows c", func(p *play, c *Client, _ string) error {
			h := block.HostReserved{StartOfBlock: 1, EndOfBlock: 1}
			_, err := c.EnsureBlock(p.t.Context(), EnsureBlockRequest{V4: true, Host: pool.Node{Name: "node-c"}, Reserved4: h})
			return err
		}},
		{"look", (*play).look},
		{"edit pool", change(func(q *pool.Pool) { q.Spec.NATOutgoing = !q.Spec.NATOutgoing })},
		{"disable pool", change(func(q *pool.Pool) { q.Spec.Disabled = true })},
		{"delete pool", func(p *play, _ *Client, _ string) error {
			pools := p.mem.Store().Pools
			e, err := pools.Get(p.t.Context(), "v4")
			if err == nil {
				err = pools.Delete(p.t.Context(), e)
			}
			if err != nil {
				return fmt.Errorf("%w: %w", errRefused, err)
			}
			return nil
		}},
		{"replace pool", (*play).replace},
		{"reconcile", func(p *play, c *Client, _ string) error {
			_, err := c.ReconcilePools(p.t.Context())
			return err
		}},
		{"reserve", func(p *play, _ *Client, _ string) error {
			_, err := p.mem.Store().Reservations.Create(p.t.Context(), "more", pool.Reservation{
				Name: "more", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.3/32")},
			})
			if err != nil {
				return errRefused
			}
			return nil
		}},
		{"unreserve", func(p *play, _ *Client, _ string) error {
			e, err := p.mem.Store().Reservations.Get(p.t.Context(), "rsv")
			if err == nil {
				err = p.mem.Store().Reservations.Delete(p.t.Context(), e)
			}
			if err != nil {
				return errRefused
			}
			p.pass(time.Millisecond)
			return nil
		}},
	}
}
