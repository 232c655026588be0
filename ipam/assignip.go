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

// AssignIPRequest asks for one given address. The embedded request's counts are
// ignored; its pool lists restrict where the address may be from.
type AssignIPRequest struct {
	AutoAssignRequest
	Addr netip.Addr
}

// AssignIP takes one given address for r. The same pools are eligible as for
// AutoAssign; naming an address lifts a pool's assignmentMode Manual, as naming the
// pool does. A reserved address is given, a gateway never. A cooling address is
// given to the owner that last held it only. It is idempotent: an address that this
// owner has under this handle is returned as it is. ErrNotInPool, ErrNoPool, ErrReserved,
// ErrAddressInUse, ErrAddressCooling, ErrStrictAffinity, ErrInvalid.
func (c *Client) AssignIP(ctx context.Context, r AssignIPRequest) (Assignment, error) {
	r.Num4, r.Num6 = 1, 0
	if err := r.validate(); err != nil {
		return Assignment{}, err
	}
	a, err := c.newAssigner(ctx, r.AutoAssignRequest, noClaim)
	if err != nil {
		return Assignment{}, err
	}
	if err := a.repair(ctx); err != nil {
		return Assignment{}, err
	}
	if held, ok := a.held(r.Addr); ok {
		return held, nil
	}
	if err := a.given(ctx, r.Addr); err != nil {
		return Assignment{}, a.fail(ctx, err)
	}
	a.collectStrays(ctx)
	return a.got[0], nil
}

// held returns addr if the same owner has it already, under the same handle.
func (a *assigner) held(addr netip.Addr) (Assignment, bool) {
	for _, e := range a.host.blocks {
		s, ok := e.Value.Slot(addr)
		if ok && s.State == block.Allocated && s.Handle == a.r.Handle && s.Active == a.r.Owner {
			p, in := a.v.poolOf(e.Key)
			if in && !p.Cuts(e.Key) {
				break // see search.poolOf
			}
			return Assignment{Addr: addr, Block: e.Key, BlockUID: e.UID, Seq: s.Seq, Pool: p}, true
		}
	}
	return Assignment{}, false
}

// given takes one given address. What was seen of pools and block may be stale: it
// begins again when a compare-and-swap or a live read says so.
func (a *assigner) given(ctx context.Context, addr netip.Addr) error {
	for range maxRounds {
		err := a.tryGiven(ctx, addr)
		switch {
		case errors.Is(err, errStaleAffinity), errors.Is(err, errLimitReached), errors.Is(err, datastore.ErrNotFound):
		case errors.Is(err, errPoolClosed), !a.v.live && (errors.Is(err, ErrNotInPool) || errors.Is(err, ErrNoPool)):
			if err := a.refresh(ctx); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return fmt.Errorf("assign %s: %w: its block or pool changes all the time", addr, ErrContention)
}

func (a *assigner) tryGiven(ctx context.Context, addr netip.Addr) error {
	s, p, err := a.searchFor(ctx, addr)
	if err != nil {
		return fmt.Errorf("assign %s: %w", addr, err)
	}
	cidr, _ := p.BlockOf(addr)
	if p.GatewayOf(cidr) == addr {
		return fmt.Errorf("assign %s: %w: it is the gateway of IP pool %s", addr, ErrReserved, p.Name)
	}
	t := a.taking(p, cidr, func(b block.Block) (block.Block, []block.Allocation, error) {
		next, got, err := b.Assign(addr, a.r.request(1, a.c, nil))
		if err != nil {
			return b, nil, s.refusal(b, addr, err)
		}
		return next, []block.Allocation{got}, nil
	})
	t.prepare = s.mayUse
	e, err := s.givenFrom(ctx, t)
	if err := s.took(t, e, err); err != nil {
		return fmt.Errorf("assign %s: %w", addr, err)
	}
	if len(t.planned) == 0 {
		return fmt.Errorf("assign %s: %w", addr, s.notUsable(e))
	}
	return nil
}

// searchFor returns the search of the one pool that addr is in.
func (a *assigner) searchFor(ctx context.Context, addr netip.Addr) (*search, pool.Pool, error) {
	w, err := a.wantGiven(addr)
	if err != nil {
		return nil, pool.Pool{}, err
	}
	sel, err := a.selection(ctx, w)
	if err != nil {
		return nil, pool.Pool{}, err
	}
	s := &search{assigner: a, want: w, sel: sel, need: 1, closed: make(map[string]bool)}
	if len(sel.Pools) == 0 {
		return nil, pool.Pool{}, s.noPool()
	}
	return s, sel.Pools[0], nil
}

// wantGiven wants one address of the pools that addr is in, as far as the request
// allows them. They count as named: asking for an address is asking for its pool.
func (a *assigner) wantGiven(addr netip.Addr) (want, error) {
	if !addr.IsValid() || addr.Zone() != "" || addr.Is4In6() {
		return want{}, fmt.Errorf("%w: not an IPv4 or IPv6 address", ErrInvalid)
	}
	asked := a.r.wantOf(addr).pools
	w := want{family: pool.FamilyOf(addr), n: 1}
	inPool := false
	for _, p := range a.v.pools {
		if !p.Spec.CIDR.Contains(addr) {
			continue
		}
		inPool = true
		if p.Named(asked) {
			w.pools = append(w.pools, p.Name)
		}
	}
	switch {
	case !inPool:
		return w, fmt.Errorf("%w: create an IPPool that contains it", ErrNotInPool)
	case len(w.pools) == 0:
		return w, fmt.Errorf("%w: none of the pools asked for (%v) contains it", ErrNotInPool, asked)
	}
	return w, nil
}

// mayUse claims a block that has no owner, else uses the owner's unless
// strictAffinity forbids it.
func (s *search) mayUse(b block.Block) (block.Block, bool) {
	limit, used := s.cap(b.CIDR)
	if b.Affinity == s.host.affinity() {
		return b, true
	}
	if claimed, ok := s.mayClaim(b); ok && used < limit && s.v.config.AutoAllocateBlocks {
		return claimed, true
	}
	return b, !s.v.config.StrictAffinity
}

// owned uses a block that has an owner as strictAffinity allows.
func (s *search) owned(b block.Block) (block.Block, bool) {
	return b, b.Affinity == s.host.affinity() || !b.Affinity.IsZero() && !s.v.config.StrictAffinity
}

// notUsable says why a block that exists gave nothing.
func (s *search) notUsable(e blockEntry) error {
	if err := e.Value.Giving(); err != nil {
		return err
	}
	return fmt.Errorf("%w: block %s belongs to %q (set strictAffinity to false, or use an address of a block of %s)",
		ErrStrictAffinity, e.Key, e.Value.Affinity, s.host.name)
}

// givenFrom takes from the block that is there, or claims it.
func (s *search) givenFrom(ctx context.Context, t *taking) (blockEntry, error) {
	e, err := s.c.store.Blocks.Get(ctx, t.cidr)
	seen := &e
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		seen = nil
	case err != nil:
		return e, fmt.Errorf("read block %s: %w", t.cidr, err)
	case !e.Value.Affinity.IsZero():
		t.prepare = s.owned
		e, err := update(ctx, s.c.backoff, s.c.store.Blocks, t.cidr, &e, t.change)
		if err == nil && len(t.planned) == 0 && e.Value.Affinity.IsZero() {
			err = errStaleAffinity // released meanwhile: it is to be claimed
		}
		return e, err
	}
	if err := s.mayClaimMore(t.cidr); err != nil {
		if s.v.config.StrictAffinity {
			return e, err
		}
		return s.createUnowned(ctx, t, seen)
	}
	return s.claimWith(ctx, t, seen)
}

// mayClaimMore returns why the host may not claim the block cidr.
func (s *search) mayClaimMore(cidr netip.Prefix) error {
	if !s.v.config.AutoAllocateBlocks {
		return fmt.Errorf("%w: autoAllocateBlocks is false and node %s has no affinity for the address's block",
			ErrStrictAffinity, s.host.name)
	}
	if limit, used := s.cap(cidr); used >= limit {
		return fmt.Errorf("%w: node %s has %d of %d blocks and the address is in another (raise maxBlocksPerHost, or set strictAffinity to false)",
			ErrBlockLimit, s.host.name, used, limit)
	}
	return nil
}

// createUnowned takes from a block without an affinity, which it creates if need
// be: the host may use the address and not claim the block. A pending affinity
// stands for the block until it exists, as in a claim.
func (s *search) createUnowned(ctx context.Context, t *taking, seen *blockEntry) (blockEntry, error) {
	if seen != nil {
		e, err := update(ctx, s.c.backoff, s.c.store.Blocks, t.cidr, seen, t.change)
		if !errors.Is(err, datastore.ErrNotFound) {
			return e, err
		}
	}
	s.moved = false
	if err := s.pend(ctx, t.pool.Name, t.cidr); err != nil {
		return blockEntry{}, err
	}
	if err := s.poolStillOpen(ctx, t.pool); err != nil {
		return blockEntry{}, s.withdraw(ctx, t.cidr, err)
	}
	e, err := s.createOrTake(ctx, t, block.Affinity{})
	if errors.Is(err, ErrUnknownOutcome) {
		return e, err
	}
	if err != nil {
		return e, s.withdraw(ctx, t.cidr, err)
	}
	if err := s.withdraw(ctx, t.cidr, nil); err != nil {
		s.c.log.WarnContext(ctx, "the next request withdraws it", "error", err)
	}
	return e, s.stands(ctx, t, e)
}
