// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// maxClaims is how many blocks one ClaimAffinity may ask for: it makes up to three
// writes for each, and a slip of the prefix length would ask for millions.
const maxClaims = 1024

// ClaimAffinity claims every block of cidr, which must be inside a pool that hands
// out and selects the node, for a host. It takes blocks nobody has; a block of
// another owner, or under strictAffinity one with another host's addresses, is among
// the failed and is no error. maxBlocksPerHost binds what the host claims by itself,
// not this. All blocks are tried; err joins what failed otherwise (case R14). What
// the host has already is claimed without a write. When the pool changes meanwhile
// it is looked at again and all blocks are tried anew, at most four times:
// ErrContention. ErrInvalid, ErrNotInPool, ErrNoPool before anything is written,
// unless it is such a change that brings them.
func (c *Client) ClaimAffinity(
	ctx context.Context, host pool.Node, cidr netip.Prefix,
) (claimed, failed []netip.Prefix, err error) {
	if host.Name == "" {
		return nil, nil, fmt.Errorf("claim %s: %w: no node name", cidr, ErrInvalid)
	}
	a, err := c.newAssigner(ctx, AutoAssignRequest{Host: host}, noClaim)
	if err != nil {
		return nil, nil, err
	}
	a.ensured = make(map[pool.Family]netip.Prefix)
	for round := range maxRounds {
		p, blocks, again := a.toClaim(ctx, cidr)
		if again != nil {
			err = errors.Join(err, fmt.Errorf("claim %s for node %s: %w", cidr, host.Name, again))
			return claimed, failed, a.settle(ctx, err)
		}
		if round == 0 {
			if err := a.repair(ctx); err != nil {
				return nil, nil, err
			}
		}
		var closed bool
		if claimed, failed, closed, err = a.claimAll(ctx, p, blocks); !closed {
			return claimed, failed, a.settle(ctx, err)
		}
		if again := a.refresh(ctx); again != nil {
			return claimed, failed, a.settle(ctx, errors.Join(err, again))
		}
	}
	return claimed, failed, a.settle(ctx, errors.Join(err,
		fmt.Errorf("claim %s for node %s: %w: its IP pool changes all the time", cidr, host.Name, ErrContention)))
}

// toClaim is blocksToClaim that believes no refusal of a view of a moment ago.
func (a *assigner) toClaim(ctx context.Context, cidr netip.Prefix) (pool.Pool, []netip.Prefix, error) {
	p, blocks, err := a.v.blocksToClaim(a.r.Host, cidr)
	if err != nil && !a.v.live {
		if err := a.refresh(ctx); err != nil {
			return pool.Pool{}, nil, err
		}
		p, blocks, err = a.v.blocksToClaim(a.r.Host, cidr)
	}
	return p, blocks, err
}

// claimAll claims what it can of blocks. It stops when their pool turns out not to be
// what was seen of it.
func (a *assigner) claimAll(ctx context.Context, p pool.Pool, blocks []netip.Prefix) (
	claimed, failed []netip.Prefix, closed bool, err error,
) {
	// Without a selection: maxBlocksPerHost counts nothing here.
	s := &search{assigner: a, want: want{family: p.Family()}, closed: make(map[string]bool)}
	if !a.listed {
		if err := s.takenBlocks(ctx); err != nil { // what sequences are known (INV-15)
			return nil, blocks, false, err
		}
	}
	var errs []error
	for i, b := range blocks {
		if ctx.Err() != nil {
			return claimed, append(failed, blocks[i:]...), false, errors.Join(append(errs, context.Cause(ctx))...)
		}
		ours, err := s.claimGiven(ctx, p, b)
		if s.closed[p.Name] {
			return claimed, append(failed, blocks[i:]...), true, errors.Join(errs...)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("claim block %s for node %s: %w", b, s.host.name, err))
		}
		if ours {
			claimed = append(claimed, b)
		} else {
			failed = append(failed, b)
		}
	}
	return claimed, failed, false, errors.Join(errs...)
}

// settle fences what has an unknown outcome; there is nothing else to undo.
func (a *assigner) settle(ctx context.Context, err error) error {
	if err == nil && len(a.unsure) == 0 {
		return nil
	}
	return a.fail(ctx, err)
}

// claimGiven reports whether the host has block b, claiming it if it can.
func (s *search) claimGiven(ctx context.Context, p pool.Pool, b netip.Prefix) (bool, error) {
	if s.host.has(b) {
		return true, nil
	}
	seen, err := s.c.store.Blocks.Get(ctx, b) // a read, lest two writes are in vain
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		err = s.claimBlock(ctx, p, b)
	case err != nil:
		return false, fmt.Errorf("read block: %w", err)
	default:
		if _, ok := s.mayClaim(seen.Value); !ok {
			return false, nil
		}
		err = s.claimSeen(ctx, p, b, &seen)
	}
	return err == nil && s.host.has(b), err // not so when it was released right after
}

// blocksToClaim returns the pool around cidr and its blocks in cidr.
func (v *view) blocksToClaim(host pool.Node, cidr netip.Prefix) (pool.Pool, []netip.Prefix, error) {
	if !cidr.IsValid() || cidr.Masked() != cidr || cidr.Addr().Is4In6() {
		return pool.Pool{}, nil, fmt.Errorf("%w: not a CIDR without host bits", ErrInvalid)
	}
	p, ok := v.poolOf(cidr)
	if !ok {
		return pool.Pool{}, nil, fmt.Errorf("%w: no IPPool contains %s", ErrNotInPool, cidr)
	}
	if cidr.Bits() > p.Spec.BlockSize {
		return pool.Pool{}, nil, fmt.Errorf("%w: it is smaller than a block of IP pool %s (/%d)", ErrInvalid, p.Name, p.Spec.BlockSize)
	}
	if bits := p.Spec.BlockSize - cidr.Bits(); bits >= 64 || 1<<bits > uint64(maxClaims) {
		return pool.Pool{}, nil, fmt.Errorf("%w: it has 2^%d blocks of /%d, at most %d can be claimed at once; name a smaller CIDR",
			ErrInvalid, bits, p.Spec.BlockSize, maxClaims)
	}
	open := p // a claim is of no namespace and for every use of the pool
	open.Spec.NamespaceSelector = ""
	sel := pool.Select(v.replaced(open), pool.Request{
		Family: p.Family(), Requested: []string{p.Name}, Use: slices.Concat(p.Spec.AllowedUses, []pool.Use{pool.UseWorkload})[0], Node: host,
	})
	if len(sel.Pools) == 0 {
		return pool.Pool{}, nil, fmt.Errorf("%w: %v", ErrNoPool, sel.Skipped)
	}
	n := 1 << (p.Spec.BlockSize - cidr.Bits())
	blocks := make([]netip.Prefix, 0, n)
	for b := range pool.BlocksOf(p, cidr) {
		blocks = append(blocks, b)
	}
	return p, blocks, nil
}

// replaced returns the pools with p in place of the one of its name.
func (v *view) replaced(p pool.Pool) []pool.Pool {
	out := slices.Clone(v.pools)
	for i := range out {
		if out[i].Name == p.Name {
			out[i] = p
		}
	}
	return out
}

// ReleaseHostAffinities gives up every claim of a host, as ReleaseAffinity does
// each: also of blocks that name the host and have no affinity, which a crash
// leaves. All are tried; the error joins what failed (case R14), with mustBeEmpty an
// ErrBlockNotEmpty for each block in use. Nothing there is success. An empty block
// that a crash left without an owner is CollectBlocks' to delete.
func (c *Client) ReleaseHostAffinities(ctx context.Context, host string, mustBeEmpty bool) error {
	if host == "" {
		return fmt.Errorf("release affinities: %w: no node name", ErrInvalid)
	}
	h, err := c.hostView(ctx, host)
	if err != nil {
		return err
	}
	var ks []datastore.AffinityKey
	for _, e := range h.affinities {
		ks = append(ks, e.Key)
	}
	for _, e := range h.blocks {
		if e.Value.Affinity == h.affinity() {
			ks = append(ks, h.key(e.Key))
		}
	}
	return c.releaseAffinities(ctx, sortedKeys(ks), nil, mustBeEmpty)
}

// ReleasePoolAffinities gives up every claim on a block of a pool, named by its name
// or CIDR, whoever has it. Blocks in use stay, without an owner; those that nobody
// uses are deleted. All are tried; the error joins what failed (case R14). ErrNoPool.
func (c *Client) ReleasePoolAffinities(ctx context.Context, name string) error {
	v, err := c.viewOf(ctx, datastore.Query{}) // not in a list of the past is not absent (INV-10)
	if err != nil {
		return err
	}
	p, err := v.named(name)
	if err != nil {
		return fmt.Errorf("release affinities: %w", err)
	}
	affinities, err := c.store.Affinities.List(ctx, datastore.Query{})
	if err != nil {
		return fmt.Errorf("list affinities: %w", err)
	}
	blocks, err := c.store.Blocks.List(ctx, datastore.Query{}) // a label may be of a pool that is gone
	if err != nil {
		return fmt.Errorf("list blocks: %w", err)
	}
	var ks []datastore.AffinityKey
	add := func(owner block.Affinity, cidr netip.Prefix) {
		if in, ok := v.poolOf(cidr); ok && in.Name == p.Name && !owner.IsZero() {
			ks = append(ks, datastore.AffinityKey{Owner: owner, CIDR: cidr})
		}
	}
	for _, e := range affinities {
		add(e.Key.Owner, e.Key.CIDR)
	}
	var unowned []blockEntry // what a release cut short has left
	for _, e := range blocks {
		if in, ok := v.poolOfBlock(e.Value); !ok || in.Name != p.Name {
			continue
		}
		add(e.Value.Affinity, e.Key)
		if e.Value.Affinity.IsZero() && e.Value.Empty() {
			unowned = append(unowned, e)
		}
	}
	return c.releaseAffinities(ctx, sortedKeys(ks), unowned, false)
}

func sortedKeys(ks []datastore.AffinityKey) []datastore.AffinityKey {
	slices.SortFunc(ks, func(x, y datastore.AffinityKey) int {
		return cmp.Or(x.CIDR.Addr().Compare(y.CIDR.Addr()), cmp.Compare(x.CIDR.Bits(), y.CIDR.Bits()),
			cmp.Compare(x.Owner.String(), y.Owner.String()))
	})
	return slices.Compact(ks)
}
