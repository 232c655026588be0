// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
// (case R3); one that does not satisfy the request is given back. All that was
// asked for or nothing (INV-11); errors as for AutoAssign and AssignIP.
//
// Two calls for one attachment must not run at the same time: the caller
// serialises them.
func (c *Client) Attach(ctx context.Context, r AttachRequest) (Assigned, error) {
	if err := r.complete(); err != nil {
		return Assigned{}, err
	}
	a, err := c.newAssigner(ctx, r.AutoAssignRequest)
	if err != nil {
		return Assigned{}, err
	}
	if err := a.repair(ctx); err != nil {
		return Assigned{}, err
	}
	if err := a.attach(ctx, r.Addrs); err != nil {
		return Assigned{}, a.fail(ctx, err)
	}
	out := a.assigned()
	for _, family := range [][]Assignment{out.V4, out.V6} {
		slices.SortStableFunc(family, func(x, y Assignment) int {
			return slices.Index(r.Addrs, x.Addr) - slices.Index(r.Addrs, y.Addr)
		})
	}
	return out, nil
}

func (a *assigner) attach(ctx context.Context, given []netip.Addr) error {
	if err := a.reuse(ctx, given); err != nil {
		return err
	}
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

// holding is an address that the attachment has, or that its pod had before.
type holding struct {
	Assignment
	slot block.Slot
	ours bool // held under this container ID
}

// reuse keeps or takes over the holdings that satisfy the request and gives the
// others back, so that their addresses can serve it.
func (a *assigner) reuse(ctx context.Context, given []netip.Addr) error {
	var drop []Release
	n := map[pool.Family]int{pool.V4: a.r.Num4, pool.V6: a.r.Num6}
	for _, h := range a.holdings() {
		p, ok := a.satisfies(h, given)
		family := pool.FamilyOf(h.Addr)
		if !ok || n[family] == 0 {
			drop = append(drop, h.release())
			continue
		}
		h.Pool = p
		if h.ours {
			a.kept = append(a.kept, h.Assignment)
			n[family]--
			continue
		}
		took, err := a.takeOver(ctx, h)
		if err != nil {
			return err
		}
		if took {
			n[family]--
		}
	}
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
			case s.Active.SamePod(a.r.Owner):
				stale = append(stale, h)
			}
		}
	}
	return append(ours, stale...)
}

// satisfies reports whether a new request could have been answered with h.
func (a *assigner) satisfies(h holding, given []netip.Addr) (pool.Pool, bool) {
	if len(given) > 0 {
		if !slices.Contains(given, h.Addr) {
			return pool.Pool{}, false
		}
		_, p, err := a.searchFor(h.Addr)
		return p, err == nil
	}
	for _, w := range a.r.wants() {
		if w.family != pool.FamilyOf(h.Addr) {
			continue
		}
		for _, p := range a.selection(w).Pools {
			if p.Spec.CIDR.Contains(h.Addr) {
				return p, true
			}
		}
	}
	return pool.Pool{}, false
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
