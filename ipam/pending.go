// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

// claimLife is how long a claim may be pending before it is taken for one whose
// request has ended without completing it. An ADD has 90 s, its clean-up 10 s.
const claimLife = 2 * time.Minute

// abandoned reports whether nobody completes the pending claim a any more. It is
// judged by time, so a request can be slower: it sees then that its claim is gone.
func (c *Client) abandoned(a datastore.Affinity) bool {
	now := c.clock.Now()
	return a.State == datastore.Pending && (a.PendingSince.Before(now.Add(-claimLife)) || a.PendingSince.After(now.Add(claimLife)))
}

// stands decides whether what t took of e counts. It does if the affinity that was
// there when the pool was read live is the one that was confirmed, or withdrawn, last:
// whoever closed the pool in between has seen it. If it is not, the pool is read live
// again: while the block exists and the pool is still there no other can get its range.
// Else the taking is undone, and the block left for nobody: errPoolClosed.
func (s *search) stands(ctx context.Context, t *taking, e blockEntry) error {
	if !s.moved {
		return nil
	}
	err := s.poolStillOpen(ctx, t.pool)
	switch {
	case errors.Is(err, errPoolClosed):
		return s.abandon(ctx, t, e, err)
	case err != nil:
		s.keep(t, e) // fail gives it back
	}
	return err
}

// abandon undoes what t took of e, whose pool is closed, and gives up the block, which
// goes if nobody else has anything in it. It has its own deadline (case R8).
func (s *search) abandon(ctx context.Context, t *taking, e blockEntry, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.c.cleanup)
	defer cancel()
	defer func() { t.planned = nil }()
	why = s.drop(ctx, t.cidr, why)
	s.host.forget(t.cidr)
	if t.created && t.alone(e.Value) {
		err := s.c.store.Blocks.Delete(ctx, e) // as it came: nobody was given anything of it
		if err == nil || errors.Is(err, datastore.ErrNotFound) {
			return why
		}
	}
	_, err := update(ctx, s.c.backoff, s.c.store.Blocks, t.cidr, nil, func(e blockEntry) (block.Block, bool, error) {
		b, changed := t.revert(e.Value)
		if ours := b.Affinity == s.host.affinity(); ours && !b.Deleting {
			b, changed = b.WithAffinity(block.Affinity{}, s.c.clock.Now()), true
		}
		return s.v.label(b, t.pool), changed, e.Value.Writable()
	})
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		s.keep(t, e) // fail tries once more
		return errors.Join(why, fmt.Errorf("give up block %s: %w", t.cidr, err))
	}
	return why
}
