// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// releaseWorkers is how many blocks are written at the same time.
const releaseWorkers = 8

// Release is one address to give back and what was seen of its allocation.
type Release struct {
	block.Release
	// Block is the block it was seen in; the zero Prefix means "work it out from
	// the pools".
	Block netip.Prefix
}

// Released is what became of each release. Partial is normal.
type Released struct {
	Outcomes []block.Outcome // in the order of the request; 0 where the block failed
	Retry    []Release       // those whose block failed
}

// ReleaseIPs gives addresses back. One that is not what the caller saw is skipped
// and reported as an outcome, never as an error (INV-8); a block that fails does
// not keep the others from being released (case R14). The error joins what failed.
func (c *Client) ReleaseIPs(ctx context.Context, rs []Release) (Released, error) {
	out := Released{Outcomes: make([]block.Outcome, len(rs))}
	if len(rs) == 0 {
		return out, nil
	}
	groups, lost, err := c.groupByBlock(ctx, rs)
	for _, i := range lost {
		out.Retry = append(out.Retry, rs[i])
	}
	errs := make([]error, len(groups))
	var eg errgroup.Group
	eg.SetLimit(releaseWorkers)
	for i, g := range groups {
		eg.Go(func() error {
			errs[i] = c.releaseIn(ctx, rs, g, out.Outcomes)
			return nil
		})
	}
	_ = eg.Wait() // the errors are in errs, one per block
	for i, g := range groups {
		if errs[i] != nil {
			for _, j := range g.index {
				out.Outcomes[j] = 0
				out.Retry = append(out.Retry, rs[j])
			}
		}
	}
	return out, errors.Join(append(errs, err)...)
}

// blockGroup are the releases of one block, as indexes into the request.
type blockGroup struct {
	cidr  netip.Prefix
	index []int
}

// groupByBlock also returns those whose block cannot be worked out, and why.
func (c *Client) groupByBlock(ctx context.Context, rs []Release) (groups []blockGroup, lost []int, err error) {
	var v *view
	var errs []error
	for i, r := range rs {
		cidr := r.Block
		if !cidr.IsValid() {
			if v == nil { // not in a list of the past is not absent (INV-10)
				v, err = c.viewOf(ctx, datastore.Query{})
			}
			if v != nil {
				_, cidr, err = v.blockOf(r.Addr)
			}
			if err != nil {
				lost, errs = append(lost, i), append(errs, fmt.Errorf("release %s: %w", r.Addr, err))
				continue
			}
		}
		at := slices.IndexFunc(groups, func(g blockGroup) bool { return g.cidr == cidr })
		if at < 0 {
			at = len(groups)
			groups = append(groups, blockGroup{cidr: cidr})
		}
		groups[at].index = append(groups[at].index, i)
	}
	return groups, lost, errors.Join(errs...)
}

// blockOf returns the block that holds a, and the pool that contains it.
func (v *view) blockOf(a netip.Addr) (pool.Pool, netip.Prefix, error) {
	for _, p := range v.pools {
		if cidr, ok := p.BlockOf(a); ok {
			return p, cidr, nil
		}
	}
	return pool.Pool{}, netip.Prefix{}, fmt.Errorf("%w: no IPPool contains it", ErrNotInPool)
}

// releaseIn releases the members of g in one block write. Each goroutine writes
// the outcomes of its own group only (case D16).
func (c *Client) releaseIn(ctx context.Context, rs []Release, g blockGroup, outcomes []block.Outcome) error {
	_, err := update(ctx, c.backoff, c.store.Blocks, g.cidr, nil, func(e blockEntry) (block.Block, bool, error) {
		if err := e.Value.Writable(); err != nil {
			return e.Value, false, err
		}
		next, write := e.Value, false
		for _, i := range g.index {
			got := []block.Outcome{block.StaleSeq}
			if uid := rs[i].BlockUID; uid == "" || uid == e.UID {
				next, got = next.Release([]block.Release{rs[i].Release}, c.clock.Now())
			}
			write = write || got[0] == block.Released
			// A replay after a lost reply finds the address free: it was our write.
			if got[0] != block.AlreadyFree || outcomes[i] != block.Released {
				outcomes[i] = got[0]
			}
		}
		return next, write, nil
	})
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		for _, i := range g.index {
			outcomes[i] = block.AlreadyFree
		}
		return nil
	case err != nil:
		return fmt.Errorf("release in block %s: %w", g.cidr, err)
	}
	return nil
}

// ReleaseByHandle gives back every address of a handle and returns them. Nothing
// there is success. A node narrows the search to the blocks that node has to do
// with; "" searches all. Every block is tried; the error joins what failed
// (case R14).
func (c *Client) ReleaseByHandle(ctx context.Context, h block.HandleID, node string) ([]netip.Addr, error) {
	if h == "" {
		return nil, fmt.Errorf("release by handle: %w: no handle", ErrInvalid)
	}
	return c.releaseWhere(ctx, c.of(node), func(_ netip.Addr, s block.Slot) bool { return s.Handle == h })
}

// releaseWhere releases every address of the blocks in q that match says yes to.
// The list is consistent: what is not in it is absent (INV-10).
func (c *Client) releaseWhere(
	ctx context.Context, q datastore.Query, match func(netip.Addr, block.Slot) bool,
) ([]netip.Addr, error) {
	list, err := c.store.Blocks.List(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list blocks: %w", err)
	}
	var released []netip.Addr
	var errs []error
	for _, e := range list {
		var gone []netip.Addr
		_, err := update(ctx, c.backoff, c.store.Blocks, e.Key, &e, func(e blockEntry) (block.Block, bool, error) {
			next, now := e.Value.ReleaseWhere(match, c.clock.Now())
			if len(now) == 0 { // ours is what a lost write released, not what is another's by now
				gone = slices.DeleteFunc(gone, func(a netip.Addr) bool {
					s, ok := e.Value.Slot(a)
					return ok && s.State == block.Allocated
				})
				return e.Value, false, nil
			}
			gone = now
			return next, true, e.Value.Writable()
		})
		if err != nil && !errors.Is(err, datastore.ErrNotFound) {
			errs = append(errs, fmt.Errorf("release in block %s: %w", e.Key, err))
			continue
		}
		released = append(released, gone...)
	}
	return released, errors.Join(errs...)
}
