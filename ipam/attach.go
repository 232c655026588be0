// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// AttachRequest is what a CNI ADD asks for. Owner must name network, container ID
// and interface; Handle, Type, and with Addrs the counts, are set by Attach.
type AttachRequest struct {
	AutoAssignRequest
	Addrs []netip.Addr // given addresses; they replace the counts
}

func (r *AttachRequest) complete() error {
	key := r.Owner.Attachment()
	if key.Network == "" || key.ContainerID == "" || key.IfName == "" {
		return fmt.Errorf("%w: an attachment needs network, container ID and interface name, have %+v", ErrInvalid, key)
	}
	r.Owner.Node = r.Host.Name
	r.Handle, r.Type = SandboxHandle(key.Network, key.ContainerID), block.Workload
	if len(r.Addrs) == 0 {
		return r.validate()
	}
	r.Num4, r.Num6 = 0, 0
	for i, a := range r.Addrs {
		if slices.Contains(r.Addrs[:i], a) {
			return fmt.Errorf("%w: address %s is asked for twice", ErrInvalid, a)
		}
		if pool.FamilyOf(a) == pool.V4 {
			r.Num4++
		} else {
			r.Num6++
		}
	}
	return r.validate()
}

// Attach gives an interface of a sandbox its addresses. It is idempotent per
// attachment (network, container ID, interface): what the attachment holds already
// and still satisfies the request is returned again, which also completes an
// earlier attempt that was cut short. The address of the same pod interface on the
// same node under an older container ID is taken over, if the pod's UID is known
// (case R3); one that does not satisfy the request is given back once the request
// is served. All that was asked for or nothing (INV-11): a request that fails gives
// back what it took and leaves what was there as it was. Errors as for AutoAssign
// and AssignIP.
//
// Two calls for one attachment must not run at the same time: the caller
// serialises them.
func (c *Client) Attach(ctx context.Context, r AttachRequest) (Assigned, error) {
	if err := r.complete(); err != nil {
		return Assigned{}, err
	}
	a, err := c.newAssigner(ctx, r.AutoAssignRequest, func(a *assigner, w want) bool {
		return len(r.Addrs) > 0 || a.roomFor(w) || a.holds(w)
	})
	if err != nil {
		return Assigned{}, err
	}
	if err := a.repair(ctx); err != nil {
		return Assigned{}, err
	}
	if err := a.attach(ctx, r.Addrs); err != nil {
		return Assigned{}, a.fail(ctx, err)
	}
	a.collectStrays(ctx)
	out := a.assigned()
	for _, family := range [][]Assignment{out.V4, out.V6} {
		slices.SortStableFunc(family, func(x, y Assignment) int {
			return slices.Index(r.Addrs, x.Addr) - slices.Index(r.Addrs, y.Addr)
		})
	}
	return out, nil
}

func (a *assigner) attach(ctx context.Context, given []netip.Addr) error {
	ours, stale, err := a.reuse(ctx, given)
	if err != nil {
		return err
	}
	err = a.rest(ctx, given)
	if len(stale) > 0 && errors.Is(err, ErrExhausted) {
		// What the pod had in a sandbox that is dead may be all that is left.
		if err = a.giveBack(ctx, stale); err == nil {
			stale = nil
			err = a.rest(ctx, given)
		}
	}
	if err != nil {
		return err
	}
	return a.giveBack(ctx, slices.Concat(ours, stale))
}

// rest takes what the request still lacks.
func (a *assigner) rest(ctx context.Context, given []netip.Addr) error {
	have := a.assigned()
	for _, addr := range given {
		if !slices.ContainsFunc(have.All(), func(h Assignment) bool { return h.Addr == addr }) {
			if err := a.given(ctx, addr); err != nil {
				return err
			}
		}
	}
	if len(given) > 0 {
		return nil
	}
	for i, w := range a.r.wants() {
		w.n -= len([][]Assignment{have.V4, have.V6}[i])
		if err := a.assign(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// giveBack releases addresses that do not satisfy the request, once it is served:
// a request that fails leaves what is in use alone (INV-2).
func (a *assigner) giveBack(ctx context.Context, drop []Release) error {
	if len(drop) == 0 {
		return nil
	}
	if _, err := a.c.ReleaseIPs(ctx, drop); err != nil {
		return fmt.Errorf("give back what no longer satisfies the request: %w", err)
	}
	host, err := a.c.hostView(ctx, a.host.name)
	if err != nil {
		return err
	}
	a.host = host
	return nil
}

// holding is an address that the attachment has, or that its pod had before.
type holding struct {
	Assignment
	slot block.Slot
	ours bool // held under this container ID
}

// reuse keeps or takes over the holdings that satisfy the request. It returns the
// others: the attachment's own, and those of the pod's older sandboxes.
func (a *assigner) reuse(ctx context.Context, given []netip.Addr) (ours, stale []Release, err error) {
	n := map[pool.Family]int{pool.V4: a.r.Num4, pool.V6: a.r.Num6}
	for _, h := range a.holdings() {
		p, ok, err := a.satisfies(ctx, h, given)
		if err == nil && !ok && !a.v.live { // nothing is given back because of what a stale list lacks
			if err := a.refresh(ctx); err != nil {
				return nil, nil, err
			}
			p, ok, err = a.satisfies(ctx, h, given)
		}
		if err != nil {
			return nil, nil, err
		}
		family := pool.FamilyOf(h.Addr)
		switch {
		case (!ok || n[family] == 0) && h.ours:
			ours = append(ours, h.release())
			continue
		case !ok || n[family] == 0:
			stale = append(stale, h.release())
			continue
		}
		h.Pool = p
		if h.ours && h.slot.Active == a.r.Owner {
			a.kept = append(a.kept, h.Assignment)
			n[family]--
			continue
		}
		took, err := a.takeOver(ctx, h)
		if err != nil {
			return nil, nil, err
		}
		if took {
			n[family]--
		}
	}
	return ours, stale, nil
}

// holds reports whether the attachment, or its pod before, has what is wanted.
func (a *assigner) holds(w want) bool {
	n := 0
	for _, h := range a.holdings() {
		if pool.FamilyOf(h.Addr) == w.family {
			n++
		}
	}
	return n >= w.n
}

// holdings returns the attachment's own addresses first, then those its pod has
// under another container ID.
func (a *assigner) holdings() []holding {
	var ours, stale []holding
	for _, e := range a.host.blocks {
		for addr, s := range e.Value.All() {
			if s.State != block.Allocated || s.Unknown() || s.Type != block.Workload {
				continue
			}
			h := holding{Assignment: Assignment{Addr: addr, Block: e.Key, BlockUID: e.UID, Seq: s.Seq}, slot: s}
			switch {
			case s.Holds(a.r.Owner.Attachment()):
				h.ours = true
				ours = append(ours, h)
			case a.samePod(s.Active):
				stale = append(stale, h)
			}
		}
	}
	return append(ours, stale...)
}

// samePod reports whether o is the request's pod in an older sandbox. A sole host
// is the same whatever its name was.
func (a *assigner) samePod(o block.Owner) bool {
	if a.c.sole {
		o.Node = a.r.Owner.Node
	}
	return o.SamePod(a.r.Owner)
}

// satisfies reports whether h will do for the request, and which pool it is of.
// What the attachment has already will, unless the request itself rules it out: a
// pool that has been disabled since takes no address away from those who have one.
// What is taken over must be what a new request could be given.
func (a *assigner) satisfies(ctx context.Context, h holding, given []netip.Addr) (p pool.Pool, ok bool, err error) {
	p, ok = a.v.poolOf(h.Block)
	if !ok || len(given) > 0 && !slices.Contains(given, h.Addr) {
		return pool.Pool{}, false, nil
	}
	w := a.r.wantOf(h.Addr)
	switch {
	case !p.Cuts(h.Block) && !h.ours:
		return p, false, nil
	case h.ours:
		if ok = len(given) > 0 || p.Named(w.pools); ok && !p.Cuts(h.Block) {
			ok, err = a.alone(ctx, h.Block)
		}
		return p, ok, err
	case len(given) > 0:
		if w, err = a.wantGiven(h.Addr); err != nil {
			return p, false, nil
		}
	}
	sel, err := a.selection(ctx, w)
	return p, slices.ContainsFunc(sel.Pools, func(q pool.Pool) bool { return q.Name == p.Name }), err
}

// alone reports whether what is held in a block of another size than its pool's is
// nobody else's: the pool, read live, hands out nothing, and no other block or claim
// overlaps the block. One that comes later finds it, or the pool closed (INV-1).
func (a *assigner) alone(ctx context.Context, cidr netip.Prefix) (bool, error) {
	if err := a.refresh(ctx); err != nil {
		return false, err
	}
	if p, ok := a.v.poolOf(cidr); ok && p.Status.Allocatable {
		return false, nil
	}
	claims, err := a.c.store.Affinities.List(ctx, datastore.Query{Strict: true})
	if err != nil {
		return false, fmt.Errorf("list affinities: %w", err)
	}
	blocks, err := a.c.store.Blocks.List(ctx, datastore.Query{Strict: true})
	if err != nil {
		return false, fmt.Errorf("list blocks: %w", err)
	}
	overlaps := func(other netip.Prefix) bool { return other != cidr && other.Overlaps(cidr) }
	return !slices.ContainsFunc(claims, func(e affinityEntry) bool { return overlaps(e.Key.CIDR) }) &&
		!slices.ContainsFunc(blocks, func(e blockEntry) bool { return overlaps(e.Key) }), nil
}

func (h holding) release() Release {
	return Release{
		Release: block.Release{Addr: h.Addr, Seq: h.Seq, Handle: h.slot.Handle, BlockUID: h.BlockUID},
		Block:   h.Block,
	}
}

// takeOver rewrites the owner of h to the present sandbox; the late DEL of the old
// one then releases nothing (case S1). It reports false when the allocation has
// changed since it was seen.
func (a *assigner) takeOver(ctx context.Context, h holding) (bool, error) {
	t := a.taking(h.Pool, h.Block, func(b block.Block) (block.Block, []block.Allocation, error) {
		next, got, err := b.SetOwner(h.Addr,
			block.OwnerUpdate{Handle: &a.r.Handle, Active: &a.r.Owner},
			block.OwnerPrecondition{Seq: h.slot.Seq, Handle: h.slot.Handle}, a.c.clock.Now())
		if errors.Is(err, block.ErrStale) {
			return b, nil, nil
		}
		return next, []block.Allocation{got}, err
	})
	t.restore = func(b block.Block, p block.Allocation, now time.Time) (block.Block, bool) {
		if b.Deleting {
			return b, false // an owner change is refused now: the address goes with the sandbox that has it
		}
		next, _, err := b.SetOwner(h.Addr,
			block.OwnerUpdate{Handle: &h.slot.Handle, Active: &h.slot.Active},
			block.OwnerPrecondition{Seq: p.Seq, Handle: a.r.Handle}, now)
		return next, err == nil
	}
	e := a.host.blocks[a.host.block(h.Block)]
	written, err := update(ctx, a.c.backoff, a.c.store.Blocks, h.Block, &e, t.change)
	if errors.Is(err, datastore.ErrNotFound) {
		return false, nil
	}
	if err := a.record(t, written, err); err != nil {
		return false, fmt.Errorf("take over %s: %w", h.Addr, err)
	}
	return len(t.planned) > 0, nil
}
