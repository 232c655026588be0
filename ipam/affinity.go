// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

// ReleaseAffinity gives up an owner's claim on a block. It starts at the block:
// taking the owner's name off it fences the owner's cached writes; only then does
// the affinity become pendingDeletion and go (INV-6). Last, a block that nobody
// uses is deleted. With mustBeEmpty a block with anything allocated or cooling is
// left as it is: ErrBlockNotEmpty; so is a block that is being deleted and that
// somebody's finalizer holds: ErrBlockHeld. A claim that is not there is success; so is
// one that the owner has made anew meanwhile, and one that a request of the last two
// minutes is just making, which stays: that request is about to create the block. Run
// again after a crash it completes what is left.
func (c *Client) ReleaseAffinity(ctx context.Context, k datastore.AffinityKey, mustBeEmpty bool) error {
	return c.releaseAffinities(ctx, []datastore.AffinityKey{k}, nil, mustBeEmpty)
}

// releaseAffinities tries all of ks and joins what failed (case R14). Blocks that
// nobody uses are deleted last, those in unused as well, after one look at all
// affinities.
func (c *Client) releaseAffinities(
	ctx context.Context, ks []datastore.AffinityKey, unused []blockEntry, mustBeEmpty bool,
) error {
	v, err := c.view(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range ks {
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		e, err := c.releaseClaim(ctx, v, k, mustBeEmpty)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("release affinity of block %s from %s: %w", k.CIDR, k.Owner, err))
		case e.Key.IsValid() && e.Value.Affinity.IsZero() && e.Value.Empty():
			unused = append(unused, e)
		}
	}
	_, err = c.deleteUnused(ctx, unused)
	return errors.Join(append(errs, err)...)
}

// releaseClaim releases one claim and returns its block as it was left, or the zero
// entry when there is none.
func (c *Client) releaseClaim(ctx context.Context, v *view, k datastore.AffinityKey, mustBeEmpty bool) (blockEntry, error) {
	seen, err := c.store.Affinities.Get(ctx, k)
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		return blockEntry{}, fmt.Errorf("read affinity: %w", err)
	}
	named := false // the block named the owner
	e, err := update(ctx, c.backoff, c.store.Blocks, k.CIDR, nil, func(e blockEntry) (block.Block, bool, error) {
		if e.Value.Affinity != k.Owner {
			return e.Value, false, nil
		}
		named = true
		if e.Value.Deleting {
			return e.Value, false, fmt.Errorf("%w: %w", ErrBlockHeld, e.Value.Giving())
		}
		b, _ := e.Value.Collect(c.clock.Now(), v.config.IPCooldown)
		if mustBeEmpty && !b.Empty() {
			return e.Value, false, ErrBlockNotEmpty
		}
		b = b.WithAffinity(block.Affinity{}, c.clock.Now())
		b, _ = b.Collect(c.clock.Now(), v.config.IPCooldown) // what the owner had reserved, without a cooldown
		if p, ok := v.poolOf(k.CIDR); ok {
			b = v.label(b, p)
		}
		return b, true, e.Value.Writable()
	})
	seq := max(seen.Value.BlockSeq, e.Value.Seq)
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		e = blockEntry{}
	case err != nil:
		return e, err
	}
	if seen.Value.State == datastore.Pending && !named && !c.abandoned(seen.Value) {
		return blockEntry{}, nil
	}
	return e, c.dropAffinity(ctx, k, seq)
}

// deleteUnused deletes blocks that were just seen empty and without an owner, and
// returns the CIDRs of those that are gone. A block stays while anybody has an
// affinity for it, which without the block would be the only one to count, when
// somebody has taken from it meanwhile (its revision has moved then), when its format is
// newer than this version knows, and when it is being deleted already.
func (c *Client) deleteUnused(ctx context.Context, es []blockEntry) (gone []netip.Prefix, err error) {
	if len(es) == 0 {
		return nil, nil
	}
	all, err := c.store.Affinities.List(ctx, datastore.Query{Strict: true}) // one that cannot be read may claim any (INV-2)
	if err != nil {
		return nil, fmt.Errorf("delete empty blocks: list affinities: %w", err)
	}
	claimed := make(map[netip.Prefix]bool, len(all))
	for _, a := range all {
		claimed[a.Key.CIDR] = true
	}
	var errs []error
	for _, e := range es {
		if claimed[e.Key] || e.Value.Deleting || e.Value.Writable() != nil {
			continue
		}
		err := c.store.Blocks.Delete(ctx, e)
		switch {
		case err == nil, errors.Is(err, datastore.ErrNotFound):
			gone = append(gone, e.Key)
		case !definite(err):
			errs = append(errs, fmt.Errorf("delete empty block %s: %w", e.Key, err))
		}
	}
	return gone, errors.Join(errs...)
}

// dropAffinity removes a claim, unless the owner has claimed the block again since
// it had the sequence seq: while a block names its owner the affinity is never
// pendingDeletion.
func (c *Client) dropAffinity(ctx context.Context, k datastore.AffinityKey, seq uint64) error {
	e, err := update(ctx, c.backoff, c.store.Affinities, k, nil,
		func(e affinityEntry) (datastore.Affinity, bool, error) {
			next := e.Value
			if next.State == datastore.Confirmed && next.BlockSeq > seq {
				return next, false, nil
			}
			next.State = datastore.PendingDeletion
			return next, next != e.Value, nil
		})
	if err == nil && e.Value.State == datastore.PendingDeletion {
		err = c.store.Affinities.Delete(ctx, e)
	}
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		return nil
	case errors.Is(err, datastore.ErrConflict):
		return nil // the owner claimed it again: it is no longer ours to drop
	}
	return err
}
