// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// takeFunc takes addresses from a block value; it is pure.
type takeFunc func(block.Block) (block.Block, []block.Allocation, error)

// taking is one attempt to take addresses from one block. Its change function
// recognises what it wrote earlier (same address, sequence and handle), so that
// it can be replayed after a lost reply (INV-7).
type taking struct {
	c       *Client
	v       *view
	pool    pool.Pool
	cidr    netip.Prefix
	handle  block.HandleID
	take    takeFunc
	prepare func(block.Block) (block.Block, bool)
	planned []block.Allocation
	reserve block.HostReserved // of a block of this host
	host    block.Affinity
	bare    bool           // the block is wanted, and nothing from it
	created bool           // the write that was lost may be the block's creation
	owner   block.Affinity // of the block that was to be created
}

func (a *assigner) taking(p pool.Pool, cidr netip.Prefix, take takeFunc) *taking {
	return &taking{
		c: a.c, v: a.v, pool: p, cidr: cidr, handle: a.r.Handle, take: take,
		reserve: a.r.reserved(p.Family()), host: a.host.affinity(), bare: a.ensured != nil,
	}
}

func (t *taking) change(e blockEntry) (block.Block, bool, error) {
	if t.in(e.Value) {
		return e.Value, false, nil
	}
	t.planned = nil
	b := e.Value
	if t.prepare != nil {
		var ok bool
		if b, ok = t.prepare(b); !ok {
			return e.Value, false, nil
		}
	}
	next, got, err := t.plan(b)
	if err != nil || !t.worth(next, got) {
		return e.Value, false, err
	}
	t.planned = got
	return next, true, nil
}

// plan collects what has cooled, takes, and labels: the whole of one block write.
func (t *taking) plan(b block.Block) (block.Block, []block.Allocation, error) {
	if b.Writable() != nil {
		return b, nil, nil // a newer version's block gives nothing here; see exhausted
	}
	b, _ = b.Collect(t.c.clock.Now(), t.v.config.IPCooldown)
	if b.Affinity == t.host {
		b, _ = t.c.reserve(b, t.reserve, t.host.Name)
	}
	next, got, err := t.take(b)
	return t.v.label(next, t.pool), got, err
}

// worth reports whether next, with got in it, is worth a write.
func (t *taking) worth(next block.Block, got []block.Allocation) bool {
	return len(got) > 0 || t.bare && next.Affinity == t.host && next.Writable() == nil
}

// has reports whether b is the host's, with everything that the host reserves.
func (t *taking) has(b block.Block) bool {
	if b.Affinity != t.host {
		return false
	}
	now, missing := t.c.reserve(b, t.reserve, t.host.Name)
	return missing == 0 && now.Seq == b.Seq // nothing was left to reserve
}

// in reports whether b holds what was planned.
func (t *taking) in(b block.Block) bool {
	if t.bare {
		return t.has(b)
	}
	for _, p := range t.planned {
		s, ok := b.Slot(p.Addr)
		if !ok || s.State != block.Allocated || s.Seq != p.Seq || s.Handle != t.handle {
			return false
		}
	}
	return len(t.planned) > 0
}

func (t *taking) assignments(e blockEntry) []Assignment {
	out := make([]Assignment, 0, len(t.planned))
	for _, p := range t.planned {
		out = append(out, Assignment{Addr: p.Addr, Block: e.Key, BlockUID: e.UID, Seq: p.Seq, Pool: t.pool})
	}
	return out
}

// fence makes sure that what t planned is not in its block and can no longer get
// there: it is released, and the block is written once more, or created, so that a
// late request misses (INV-7).
func (t *taking) fence(ctx context.Context) error {
	undo := func(e blockEntry) (block.Block, bool, error) {
		next, _ := e.Value.Release(releases(t.handle, t.planned), t.c.clock.Now())
		return t.v.label(next.Fence(t.c.clock.Now()), t.pool), true, e.Value.Writable()
	}
	var err error
	if t.created {
		var empty block.Block
		if empty, err = block.New(t.cidr, t.owner, 0, t.c.clock.Now()); err == nil {
			empty = t.v.label(empty.Fence(t.c.clock.Now()), t.pool)
			_, err = ensure(ctx, t.c.backoff, t.c.store.Blocks, t.cidr, nil, empty, undo)
		}
	} else if _, err = update(ctx, t.c.backoff, t.c.store.Blocks, t.cidr, nil, undo); errors.Is(err, datastore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("fence block %s: %w", t.cidr, err)
	}
	return nil
}

func releases(h block.HandleID, as []block.Allocation) []block.Release {
	rs := make([]block.Release, 0, len(as))
	for _, a := range as {
		rs = append(rs, block.Release{Addr: a.Addr, Seq: a.Seq, Handle: h})
	}
	return rs
}

// fail undoes what the request took and returns err together with what could not
// be undone. It has a deadline of its own: the request's may be why it failed
// (case R8).
func (a *assigner) fail(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.c.cleanup)
	defer cancel()
	errs := []error{err}
	for _, t := range a.unsure {
		errs = append(errs, t.fence(ctx))
	}
	rs := make([]Release, 0, len(a.got))
	for _, g := range a.got {
		rs = append(rs, Release{
			Release: block.Release{Addr: g.Addr, Seq: g.Seq, Handle: a.r.Handle, BlockUID: g.BlockUID},
			Block:   g.Block,
		})
	}
	if _, undo := a.c.ReleaseIPs(ctx, rs); undo != nil {
		errs = append(errs, fmt.Errorf("undo: %w", undo))
	}
	a.got, a.unsure = nil, nil
	return errors.Join(errs...)
}
