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
)

const (
	// defaultCollect is how many blocks one CollectBlocks writes, unless told.
	defaultCollect = 100
	// clockError is how far another host's stamps may be ahead without anybody's
	// clock being wrong.
	clockError = 10 * time.Second
)

// Collected is what one CollectBlocks did.
type Collected struct {
	Freed   int            // addresses whose cooldown had passed
	Blocks  []netip.Prefix // blocks with such addresses that were written
	Deleted []netip.Prefix // blocks that nobody had and nobody used
	Left    int            // blocks that were due and beyond the limit
}

// CollectBlocks frees cooled addresses in blocks that nobody takes from: a write
// that takes does it along the way, and a quiet block has none. It also deletes
// blocks without an owner that are empty. Only what is due is written, once for each
// block, at most limit of them (0: 100); the others are counted in Left and are for
// the next call. blocks names those to look at, one read each; nil means all, in one
// list. A release time that is ahead of every honest clock is lowered to now (case
// C10). One block that fails does not keep the others (case R14); the error joins
// what failed.
func (c *Client) CollectBlocks(ctx context.Context, blocks []netip.Prefix, limit int) (Collected, error) {
	v, err := c.view(ctx)
	if err != nil {
		return Collected{}, err
	}
	seen, err := c.quiet(ctx, blocks)
	errs := []error{err}
	if limit <= 0 {
		limit = defaultCollect
	}
	var out Collected
	var unused []blockEntry
	for _, e := range seen {
		next, _, due := c.collected(v, e.Value)
		unowned := e.Value.Affinity.IsZero() && next.Empty() && e.Value.Writable() == nil
		switch {
		case !due && !unowned:
		case limit == 0:
			out.Left++
		case ctx.Err() != nil:
			return out, errors.Join(append(errs, context.Cause(ctx))...)
		case unowned:
			limit--
			unused = append(unused, e)
		default:
			limit--
			errs = append(errs, c.collectBlock(ctx, v, e, &out))
		}
	}
	out.Deleted, err = c.deleteUnused(ctx, unused)
	errs = append(errs, err)
	for _, e := range unused { // one that stays, because somebody has an affinity for it
		if _, _, due := c.collected(v, e.Value); due && !slices.Contains(out.Deleted, e.Key) {
			errs = append(errs, c.collectBlock(ctx, v, e, &out))
		}
	}
	return out, errors.Join(errs...)
}

// quiet reads the blocks to look at. One that is gone is none.
func (c *Client) quiet(ctx context.Context, blocks []netip.Prefix) ([]blockEntry, error) {
	if blocks == nil {
		// Every write is a compare-and-swap, so a lagging answer does no harm.
		seen, err := c.store.Blocks.List(ctx, datastore.Query{MayBeStale: true})
		if err != nil {
			return nil, fmt.Errorf("collect: list blocks: %w", err)
		}
		return seen, nil
	}
	var seen []blockEntry
	var errs []error
	for _, cidr := range blocks {
		e, err := c.store.Blocks.Get(ctx, cidr)
		switch {
		case err == nil:
			seen = append(seen, e)
		case !errors.Is(err, datastore.ErrNotFound):
			errs = append(errs, fmt.Errorf("collect: read block %s: %w", cidr, err))
		}
	}
	return seen, errors.Join(errs...)
}

// collected returns b without what has cooled, how much that was, and whether it is
// worth a write.
func (c *Client) collected(v *view, b block.Block) (next block.Block, freed int, due bool) {
	now := c.clock.Now()
	next, freed = b.Collect(now, v.config.IPCooldown)
	due = freed > 0
	for _, s := range b.All() {
		due = due || s.State == block.Cooling && s.Released.After(now.Add(clockError))
	}
	return next, freed, due
}

func (c *Client) collectBlock(ctx context.Context, v *view, seen blockEntry, out *Collected) error {
	freed := 0
	_, err := update(ctx, c.backoff, c.store.Blocks, seen.Key, &seen, func(e blockEntry) (block.Block, bool, error) {
		next, n, due := c.collected(v, e.Value)
		if !due {
			return e.Value, false, nil
		}
		freed = n
		if p, ok := v.poolOfBlock(next); ok {
			next = v.label(next, p)
		}
		return next, true, e.Value.Writable()
	})
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("collect block %s: %w", seen.Key, err)
	}
	out.Freed += freed
	out.Blocks = append(out.Blocks, seen.Key)
	return nil
}
