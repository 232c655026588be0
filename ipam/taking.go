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
	uid     string // of the block object that planned is in
	// tried are the plans of every attempt: a request that was lost may land while
	// a later one is on its way, so each may be the one that is stored.
	tried [][]block.Allocation
	// restore puts back what was there before one planned allocation, for a taking
	// that took from somebody; nil releases what was taken.
	restore func(b block.Block, a block.Allocation, now time.Time) (next block.Block, changed bool)
	reserve block.HostReserved // of a block of this host
	host    block.Affinity
	bare    bool           // the block is wanted, and nothing from it
	seq     uint64         // the highest that the block was seen to have, or an attempt gave it
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
	t.seq = max(t.seq, e.Value.Seq)
	plan, ok := t.stored(e.Value)
	if t.planned = plan; ok {
		return e.Value, false, nil
	}
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
	t.planned, t.tried, t.seq = got, append(t.tried, got), max(t.seq, next.Seq)
	return next, true, nil
}

// plan collects what has cooled, takes, and labels: the whole of one block write.
func (t *taking) plan(b block.Block) (block.Block, []block.Allocation, error) {
	if b.Giving() != nil {
		return b, nil, nil // a newer version's block gives nothing here, nor does a deleted one; see exhausted
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
	return len(got) > 0 || t.bare && next.Affinity == t.host && next.Giving() == nil
}

// has reports whether b is the host's, with everything that the host reserves.
func (t *taking) has(b block.Block) bool {
	if b.Affinity != t.host {
		return false
	}
	now, missing := t.c.reserve(b, t.reserve, t.host.Name)
	return missing == 0 && now.Seq == b.Seq // nothing was left to reserve
}

// stored returns the plan of an earlier attempt that b holds; ok is false when it
// holds none. Of a bare taking it is the block itself that is there or not.
func (t *taking) stored(b block.Block) (plan []block.Allocation, ok bool) {
	if t.bare {
		return nil, t.has(b)
	}
	for _, plan := range t.tried {
		if !slices.ContainsFunc(plan, func(p block.Allocation) bool {
			s, ok := b.Slot(p.Addr)
			return !ok || s.State != block.Allocated || s.Seq != p.Seq || s.Handle != t.handle
		}) {
			return plan, true
		}
	}
	return nil, false
}

func (t *taking) assignments(e blockEntry) []Assignment {
	out := make([]Assignment, 0, len(t.planned))
	for _, p := range t.planned {
		out = append(out, Assignment{Addr: p.Addr, Block: e.Key, BlockUID: e.UID, Seq: p.Seq, Pool: t.pool})
	}
	return out
}

// revert takes back what t wrote, as far as it is still as t left it. It reports
// false when nothing of it is there.
func (t *taking) revert(b block.Block) (next block.Block, changed bool) {
	now := t.c.clock.Now()
	for _, p := range slices.Concat(t.tried...) {
		did := false
		if t.restore != nil {
			b, did = t.restore(b, p, now)
		} else {
			var got []block.Outcome
			b, got = b.Release([]block.Release{{Addr: p.Addr, Seq: p.Seq, Handle: t.handle}}, now)
			did = got[0] == block.Released
		}
		changed = changed || did
	}
	return b, changed
}

// alone reports whether b, which t's owner has, holds nothing but what t took and what
// the host reserves.
func (t *taking) alone(b block.Block) bool {
	if b.Affinity != t.owner {
		return false
	}
	b, _ = t.revert(b)
	cooling := b.Counts().Cooling
	b, _ = b.Collect(t.c.clock.Now(), 0)
	return b.Empty() && cooling == len(t.planned)
}

// undo reverts a write of t that is known to be there: in the block object uid, or
// in any if that is "". Somebody who has changed the allocation since keeps it
// (INV-8).
func (t *taking) undo(ctx context.Context) error {
	_, err := update(ctx, t.c.backoff, t.c.store.Blocks, t.cidr, nil, func(e blockEntry) (block.Block, bool, error) {
		next, changed := t.revert(e.Value)
		if !changed || t.uid != "" && e.UID != t.uid {
			return e.Value, false, nil
		}
		return t.v.label(next, t.pool), true, e.Value.Writable()
	})
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		return fmt.Errorf("undo in block %s: %w", t.cidr, err)
	}
	return nil
}

// fence makes sure that what t planned is not in its block and can no longer get
// there: it is reverted, and the block is written once more, or created, so that a
// late request misses (INV-7).
func (t *taking) fence(ctx context.Context) error {
	undo := func(e blockEntry) (block.Block, bool, error) {
		next, changed := t.revert(e.Value)
		if e.Value.Deleting {
			// Its revision has moved when it was marked, so the lost write misses; and one that
			// raises the sequence would be refused.
			return t.v.label(next, t.pool), changed, e.Value.Writable()
		}
		return t.v.label(next.Fence(t.c.clock.Now()), t.pool), true, e.Value.Writable()
	}
	var err error
	if t.created {
		var empty block.Block
		if empty, err = block.New(t.cidr, t.owner, t.seq, t.c.clock.Now()); err == nil {
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

// collectStrays gives back what lost creations of blocks have brought after all. One
// that has not landed by now is released with the handle that it is under.
func (a *assigner) collectStrays(ctx context.Context) {
	for _, t := range a.strays {
		if err := t.undo(ctx); err != nil {
			a.c.log.WarnContext(ctx, "its addresses stay until the handle is released", "handle", t.handle, "error", err)
		}
	}
	a.strays = nil
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
	for _, t := range slices.Concat(a.done, a.strays) {
		errs = append(errs, t.undo(ctx))
	}
	a.done, a.unsure, a.strays = nil, nil, nil
	return errors.Join(errs...)
}
