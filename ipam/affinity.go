// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

// ReleaseAffinity gives up an owner's claim on a block. It starts at the block:
// taking the owner's name off it fences the owner's cached writes; only then does
// the affinity become pendingDeletion and go (INV-6). Last, a block that nobody
// uses is deleted. With mustBeEmpty a block with anything allocated or cooling is
// left as it is: ErrBlockNotEmpty. A claim that is not there is success. Run again
// after a crash it completes what is left.
func (c *Client) ReleaseAffinity(ctx context.Context, k datastore.AffinityKey, mustBeEmpty bool) error {
	v, err := c.view(ctx)
	if err != nil {
		return err
	}
	seen, err := c.store.Affinities.Get(ctx, k)
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		return fmt.Errorf("read affinity of block %s: %w", k.CIDR, err)
	}
	e, err := update(ctx, c.backoff, c.store.Blocks, k.CIDR, nil, func(e blockEntry) (block.Block, bool, error) {
		if e.Value.Affinity != k.Owner {
			return e.Value, false, nil
		}
		b, _ := e.Value.Collect(c.clock.Now(), v.config.IPCooldown)
		if mustBeEmpty && !b.Empty() {
			return e.Value, false, ErrBlockNotEmpty
		}
		b = b.WithAffinity(block.Affinity{}, c.clock.Now())
		if p, ok := v.poolOf(k.CIDR); ok {
			b = v.label(b, p)
		}
		return b, true, e.Value.Writable()
	})
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		return fmt.Errorf("release affinity of block %s from %s: %w", k.CIDR, k.Owner, err)
	}
	blockGone := err != nil
	if err := c.dropAffinity(ctx, k, max(seen.Value.BlockSeq, e.Value.Seq)); err != nil {
		return fmt.Errorf("release affinity of block %s from %s: %w", k.CIDR, k.Owner, err)
	}
	if blockGone || !e.Value.Affinity.IsZero() || !e.Value.Empty() {
		return nil
	}
	if err := c.deleteUnused(ctx, e); err != nil {
		return fmt.Errorf("delete empty block %s: %w", k.CIDR, err)
	}
	return nil
}

// deleteUnused deletes a block that was just seen empty and without an owner. It
// stays while another owner has an affinity for it, which without the block would
// be the only one to count, and when somebody has taken from it meanwhile: its
// revision has moved then.
func (c *Client) deleteUnused(ctx context.Context, e blockEntry) error {
	all, err := c.store.Affinities.List(ctx, datastore.Query{})
	if err != nil {
		return fmt.Errorf("list affinities: %w", err)
	}
	for _, a := range all {
		if a.Key.CIDR == e.Key {
			return nil
		}
	}
	if err := c.store.Blocks.Delete(ctx, e); err != nil && !definite(err) {
		return err
	}
	return nil
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
