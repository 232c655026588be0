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

// claim takes from blocks nobody has. A claim is two-phase (INV-6): the affinity
// is pending, then the block is created with its first allocation in it, then the
// affinity is confirmed. A crash in between leaves a pending affinity, which
// counts for nothing and is completed by the host's next request.
func (s *search) claim(ctx context.Context) error {
	if !s.v.config.AutoAllocateBlocks {
		return nil
	}
	for s.need > 0 {
		limit, used := s.cap(netip.Prefix{})
		if used >= limit {
			s.atCap = limit
			return nil
		}
		if s.occupied == nil {
			if err := s.takenBlocks(ctx); err != nil {
				return err
			}
		}
		p, cidr, ok := s.candidate(s.taken())
		if !ok {
			return nil
		}
		s.tried = append(s.tried, cidr)
		if err := s.claimBlock(ctx, p, cidr); err != nil {
			return err
		}
	}
	return nil
}

// takenBlocks lists what somebody has an affinity for, in any phase: candidates are
// spread by it, and the compare-and-swap decides. A block without an affinity is not
// in it: it is claimed like a new one.
func (s *search) takenBlocks(ctx context.Context) error {
	if !s.listed {
		all, err := s.c.store.Affinities.List(ctx, datastore.Query{MayBeStale: true})
		if err != nil {
			return fmt.Errorf("list affinities: %w", err)
		}
		s.known, s.listed = all, true
	}
	s.occupied = make([]netip.Prefix, 0, len(s.known))
	for _, e := range s.known {
		s.occupied = append(s.occupied, e.Key.CIDR)
	}
	return nil
}

// taken is what is not worth trying to claim.
func (s *search) taken() []netip.Prefix {
	taken := slices.Concat(s.occupied, s.tried)
	for _, e := range s.host.affinities {
		taken = append(taken, e.Key.CIDR)
	}
	for _, e := range s.host.blocks {
		taken = append(taken, e.Key)
	}
	return taken
}

// lookAgain decides whether a search that found too little goes round once more:
// what it went by may have been stale or has changed meanwhile. Only what a
// consistent list says is believed now, and only a confirmed affinity keeps others
// from a block: a pending one may be of a host that is gone.
func (s *search) lookAgain(ctx context.Context) (bool, error) {
	again := len(s.closed) > 0 || s.stale
	if s.stale = false; len(s.closed) > 0 {
		if err := s.refresh(ctx); err != nil {
			return false, err
		}
		sel, err := s.selection(ctx, s.want)
		if err != nil {
			return false, err
		}
		s.tried, s.closed, s.sel = nil, make(map[string]bool), sel
		if len(s.sel.Pools) == 0 {
			return false, s.noPool()
		}
	}
	all, err := s.c.store.Affinities.List(ctx, datastore.Query{})
	if err != nil {
		return false, fmt.Errorf("list affinities: %w", err)
	}
	had := s.host.affinities
	s.known, s.listed, s.host.affinities, s.occupied = all, true, nil, []netip.Prefix{}
	for _, e := range all {
		if e.Key.Owner == s.host.affinity() {
			s.host.affinities = append(s.host.affinities, e)
			again = again || !slices.ContainsFunc(had, func(h affinityEntry) bool { return h.Key == e.Key })
		} else if e.Value.State == datastore.Confirmed {
			s.occupied = append(s.occupied, e.Key.CIDR)
		}
	}
	if !s.looked {
		s.looked, s.tried = true, nil
	}
	s.atCap, s.seen = 0, nil
	limit, used := s.cap(netip.Prefix{})
	if _, _, free := s.candidate(s.taken()); free && s.v.config.AutoAllocateBlocks && used < limit {
		again = true
	}
	return again, nil
}

// candidate returns the first block in the host's order that is not taken.
func (s *search) candidate(taken []netip.Prefix) (pool.Pool, netip.Prefix, bool) {
	for _, p := range s.sel.Pools {
		if s.closed[p.Name] {
			continue
		}
		for cidr := range pool.Walk(p, s.host.name, taken, s.v.unassignableIn(p)) {
			if s.hasRoom(p, cidr) {
				return p, cidr, true
			}
		}
	}
	return pool.Pool{}, netip.Prefix{}, false
}

// claimBlock claims cidr for the host and takes from it what is needed. That the
// block went to somebody else, or that its pool no longer hands out, is no error:
// the caller looks further.
func (s *search) claimBlock(ctx context.Context, p pool.Pool, cidr netip.Prefix) error {
	return s.claimSeen(ctx, p, cidr, nil)
}

// claimSeen is claimBlock for a block that was seen there; nil: it was not.
func (s *search) claimSeen(ctx context.Context, p pool.Pool, cidr netip.Prefix, seen *blockEntry) error {
	t := s.taking(p, cidr, s.take(p))
	t.prepare = s.mayClaim
	e, err := s.claimWith(ctx, t, seen)
	switch {
	case errors.Is(err, errPoolClosed):
		s.closed[p.Name] = true
		return nil
	case errors.Is(err, errStaleAffinity), errors.Is(err, errLimitReached):
		return nil
	}
	if err := s.took(t, e, err); err != nil {
		return fmt.Errorf("claim block %s: %w", cidr, err)
	}
	return nil
}

// mayClaim makes b this host's if that is possible: it has no owner, and under
// strictAffinity no allocation of another host.
func (s *search) mayClaim(b block.Block) (block.Block, bool) {
	switch {
	case b.Affinity == s.host.affinity():
		return b, true
	case !b.Affinity.IsZero() || s.v.config.StrictAffinity && !s.onlyOurs(b):
		return b, false
	}
	b = b.WithAffinity(s.host.affinity(), s.c.clock.Now())
	return b, s.canReserve(b)
}

func (a *assigner) onlyOurs(b block.Block) bool {
	for _, n := range b.Nodes() {
		if n != a.host.name {
			return false
		}
	}
	return true
}

// claimWith runs the two-phase claim of t's block: of a new one, or of the one that
// was seen. errStaleAffinity or errPoolClosed when the block cannot be had; our
// affinity is then gone again, and so is what t took.
func (s *search) claimWith(ctx context.Context, t *taking, seen *blockEntry) (e blockEntry, err error) {
	s.moved = false
	if err := s.pend(ctx, t.pool.Name, t.cidr); err != nil {
		return blockEntry{}, err
	}
	if err := s.withinLimit(ctx, t.cidr); err != nil {
		return blockEntry{}, s.withdraw(ctx, t.cidr, err)
	}
	if err := s.poolStillOpen(ctx, t.pool); err != nil {
		return blockEntry{}, s.withdraw(ctx, t.cidr, err)
	}
	if seen != nil {
		e, err = update(ctx, s.c.backoff, s.c.store.Blocks, t.cidr, seen, t.change)
	}
	if seen == nil || errors.Is(err, datastore.ErrNotFound) { // it may have been deleted meanwhile
		e, err = s.createOrTake(ctx, t, s.host.affinity())
	}
	switch {
	case errors.Is(err, ErrUnknownOutcome), err != nil && e.Value.Affinity == s.host.affinity():
		return e, err // the affinity stays: the block is ours, or may be (see taking.fence)
	case err != nil:
		return e, s.withdraw(ctx, t.cidr, err)
	case e.Value.Affinity == s.host.affinity():
		err = s.confirm(ctx, e, t.pool.Name)
	default:
		err = s.disown(ctx, e, errStaleAffinity)
	}
	if err == nil || errors.Is(err, errStaleAffinity) {
		if closed := s.stands(ctx, t, e); closed != nil {
			return e, closed
		}
	}
	switch {
	case errors.Is(err, errStaleAffinity) && len(t.planned) > 0:
		return e, nil // borrowed, or the claim was released right after: the addresses are ours
	case err != nil:
		s.keep(t, e) // the addresses are ours and nobody knows yet: fail gives them back
	}
	return e, err
}

// withinLimit returns errLimitReached when concurrent requests of this host have
// claimed what was left of its blocks. It is asked once the pending affinity is
// written, and only where one more claim could be too many.
func (s *search) withinLimit(ctx context.Context, cidr netip.Prefix) error {
	limit, used := s.cap(cidr)
	if used+1 < limit || len(s.sel.Pools) == 0 { // ClaimAffinity selects none: no limit
		return nil
	}
	mine, err := s.c.store.Affinities.List(ctx, datastore.Query{Owner: s.host.affinity()})
	if err != nil {
		return fmt.Errorf("list affinities of node %s: %w", s.host.name, err)
	}
	n := 0
	for _, e := range mine {
		s.host.sawClaim(e)
		if _, ok := s.poolOf(e.Key.CIDR); ok && e.Key.CIDR != cidr {
			n++
		}
	}
	if n >= limit {
		s.atCap, s.stale = limit, true
		return errLimitReached
	}
	return nil
}

// pend makes sure that the host has an affinity for cidr; one that is there already is
// made pending anew unless it is confirmed, or another request has just begun it.
func (a *assigner) pend(ctx context.Context, poolName string, cidr netip.Prefix) error {
	if a.host.claim(cidr) >= 0 { // it may be gone meanwhile
		e, err := a.c.store.Affinities.Get(ctx, a.host.key(cidr))
		switch {
		case err == nil && e.Value.State != datastore.PendingDeletion && !a.c.abandoned(e.Value):
			a.host.sawClaim(e)
			return nil
		case err != nil && !errors.Is(err, datastore.ErrNotFound):
			return fmt.Errorf("read affinity of %s: %w", cidr, err)
		}
	}
	pending := datastore.Affinity{State: datastore.Pending, Pool: poolName, PendingSince: a.c.clock.Now().UTC().Round(0)}
	e, err := ensure(ctx, a.c.backoff, a.c.store.Affinities, a.host.key(cidr), nil, pending,
		func(e affinityEntry) (datastore.Affinity, bool, error) {
			next := pending
			next.BlockSeq = e.Value.BlockSeq
			return next, e.Value.State == datastore.PendingDeletion || a.c.abandoned(e.Value), nil
		})
	if err != nil {
		return fmt.Errorf("affinity of %s: %w", cidr, err)
	}
	a.host.sawClaim(e)
	return nil
}

// poolStillOpen reads the pool live, after the pending affinity is written and
// before the block is: whoever closes the pool sees the affinity, or we see that
// it is closed.
func (a *assigner) poolStillOpen(ctx context.Context, p pool.Pool) error {
	e, err := a.c.store.Pools.Get(ctx, p.Name)
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		return errPoolClosed
	case err != nil:
		return fmt.Errorf("read IP pool %s: %w", p.Name, err)
	case e.Value.UID != p.UID || e.Value.Generation != p.Generation || e.Value.Deleting || e.Value.Status != p.Status:
		return errPoolClosed
	}
	return nil
}

// createOrTake creates the block with what t takes in it, or takes from the block
// that is there. After a create of unknown outcome it looks, and if the block is
// not there it creates it again, which fences the first request.
func (a *assigner) createOrTake(ctx context.Context, t *taking, owner block.Affinity) (blockEntry, error) {
	if !a.listed {
		var err error
		if a.known, err = a.c.store.Affinities.List(ctx, datastore.Query{MayBeStale: true}); err != nil {
			return blockEntry{}, fmt.Errorf("list affinities: %w", err)
		}
		a.listed = true
	}
	var b block.Block
	var got []block.Allocation
	var lost error
	for i := range 3 {
		if i == 0 || t.seq > b.Seq { // a block that was there meanwhile was above it
			var err error
			if b, got, err = a.newBlock(t, owner); err != nil || !t.worth(b, got) {
				return blockEntry{}, afterLost(lost, errors.Join(errStaleAffinity, err))
			}
		}
		var refused error
		e, err := a.c.store.Blocks.Create(ctx, t.cidr, b)
		switch {
		case err == nil:
			t.planned = got
			return e, nil
		case errors.Is(err, datastore.ErrRefused) && lost == nil:
			return blockEntry{}, err
		case errors.Is(err, datastore.ErrRefused):
			refused = err // all that is left is to see whether the lost one has landed
		case !definite(err):
			lost = err
		}
		e, err = update(ctx, a.c.backoff, a.c.store.Blocks, t.cidr, nil, t.change)
		switch {
		case err == nil:
			if lost != nil && len(t.planned) == 0 {
				a.strays = append(a.strays, t)
			}
			return e, nil
		case refused != nil || !errors.Is(err, datastore.ErrNotFound):
			return e, afterLost(lost, cmp.Or(refused, err))
		}
	}
	if lost != nil {
		return blockEntry{}, &unknownWrite{cause: lost}
	}
	return blockEntry{}, errStaleAffinity
}

// newBlock plans the block that t creates. Every plan is kept, for each may be the one
// that lands (INV-7).
func (a *assigner) newBlock(t *taking, owner block.Affinity) (block.Block, []block.Allocation, error) {
	now := a.c.clock.Now()
	b, err := block.New(t.cidr, owner, max(a.seqFor(t.cidr), t.seq), now)
	if err != nil {
		return b, nil, err
	}
	b, got, err := t.plan(b.Fence(now)) // the first sequence is above all known (INV-15)
	if err == nil && t.worth(b, got) {
		t.owner, t.created = owner, true
		t.tried, t.seq = append(t.tried, got), max(t.seq, b.Seq)
	}
	return b, got, err
}

// seqFor returns a sequence that is not below any affinity known for cidr.
func (a *assigner) seqFor(cidr netip.Prefix) uint64 {
	var seq uint64
	for _, list := range [][]affinityEntry{a.known, a.host.affinities} {
		for _, e := range list {
			if e.Key.CIDR == cidr {
				seq = max(seq, e.Value.BlockSeq)
			}
		}
	}
	return seq
}
