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

// claim takes from blocks nobody has. A claim is two-phase (INV-6): the affinity
// is pending, then the block is created with its first allocation in it, then the
// affinity is confirmed. A crash in between leaves a pending affinity, which
// counts for nothing and is completed by the host's next request.
func (s *search) claim(ctx context.Context) error {
	if !s.v.config.AutoAllocateBlocks {
		return nil
	}
	var taken []netip.Prefix // read once, only when a claim is really needed
	for s.need > 0 {
		limit, used := s.cap()
		if used >= limit {
			s.limit = limit
			return nil
		}
		if taken == nil {
			var err error
			if taken, err = s.takenBlocks(ctx); err != nil {
				return err
			}
		}
		p, cidr, ok := s.candidate(taken)
		if !ok {
			return nil
		}
		taken = append(taken, cidr)
		if err := s.claimBlock(ctx, p, cidr); err != nil {
			return err
		}
	}
	return nil
}

// takenBlocks returns the CIDRs somebody has an affinity for, in any phase, and
// those of the blocks this host knows. A block without an affinity is not among
// them: it is claimed like a new one.
func (s *search) takenBlocks(ctx context.Context) ([]netip.Prefix, error) {
	all, err := s.c.store.Affinities.List(ctx, datastore.Query{MayBeStale: true})
	if err != nil {
		return nil, fmt.Errorf("list affinities: %w", err)
	}
	taken := make([]netip.Prefix, 0, len(all)+len(s.host.blocks))
	for _, e := range all {
		taken = append(taken, e.Key.CIDR)
		s.known = append(s.known, e)
	}
	for _, e := range s.host.affinities {
		taken = append(taken, e.Key.CIDR)
	}
	for _, e := range s.host.blocks {
		taken = append(taken, e.Key)
	}
	return taken, nil
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
	case errors.Is(err, errStaleAffinity):
		return nil
	}
	if err := s.taken(t, e, err); err != nil {
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
// affinity is then gone again.
func (a *assigner) claimWith(ctx context.Context, t *taking, seen *blockEntry) (e blockEntry, err error) {
	if err := a.pend(ctx, t.pool, t.cidr); err != nil {
		return blockEntry{}, err
	}
	if err := a.poolStillOpen(ctx, t.pool); err != nil {
		return blockEntry{}, a.withdraw(ctx, t.cidr, err)
	}
	if seen != nil {
		e, err = update(ctx, a.c.backoff, a.c.store.Blocks, t.cidr, seen, t.change)
	}
	if seen == nil || errors.Is(err, datastore.ErrNotFound) { // gone, as empty blocks without an owner go
		if seen != nil { // the next one starts above it (INV-15)
			a.known = append(a.known, affinityEntry{Key: a.host.key(t.cidr), Value: datastore.Affinity{BlockSeq: seen.Value.Seq}})
		}
		e, err = a.createOrTake(ctx, t, a.host.affinity())
	}
	switch {
	case errors.Is(err, ErrUnknownOutcome), err != nil && e.Value.Affinity == a.host.affinity():
		return e, err // the affinity stays: the block is ours, or may be (see taking.fence)
	case err != nil:
		return e, a.withdraw(ctx, t.cidr, err)
	case e.Value.Affinity == a.host.affinity():
		err = a.confirm(ctx, t.cidr, e.Value.Seq, t.pool.Name)
	case len(t.planned) == 0:
		return e, a.withdraw(ctx, t.cidr, errStaleAffinity)
	default: // somebody was first with the block, and t may take from it all the same
		err = a.withdraw(ctx, t.cidr, nil)
	}
	if err != nil {
		// The addresses are ours and nobody knows yet: they go back.
		a.got = append(a.got, t.assignments(e)...)
		t.planned = nil
	}
	return e, err
}

// pend makes sure that the host has an affinity for cidr; one that is there
// already, in whatever phase, goes back to pending unless it is confirmed.
func (a *assigner) pend(ctx context.Context, p pool.Pool, cidr netip.Prefix) error {
	if i := a.host.claim(cidr); i >= 0 && a.host.affinities[i].Value.State != datastore.PendingDeletion {
		return nil
	}
	pending := datastore.Affinity{State: datastore.Pending, Pool: p.Name}
	e, err := ensure(ctx, a.c.backoff, a.c.store.Affinities, a.host.key(cidr), nil, pending,
		func(e affinityEntry) (datastore.Affinity, bool, error) {
			next := pending
			next.BlockSeq = e.Value.BlockSeq
			return next, e.Value.State == datastore.PendingDeletion, nil
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
	now := a.c.clock.Now()
	b, err := block.New(t.cidr, owner, a.seqFor(t.cidr), now)
	if err != nil {
		return blockEntry{}, err
	}
	b, got, err := t.plan(b.Fence(now)) // the first sequence is above all known (INV-15)
	if err != nil || !t.worth(b, got) {
		return blockEntry{}, errors.Join(errStaleAffinity, err)
	}
	t.owner, t.created = owner, true
	var lost error
	for range 3 {
		t.planned = got
		e, err := a.c.store.Blocks.Create(ctx, t.cidr, b)
		switch {
		case err == nil:
			return e, nil
		case lost == nil && errors.Is(err, datastore.ErrRefused):
			return blockEntry{}, err
		case !definite(err):
			lost = err
		}
		e, err = update(ctx, a.c.backoff, a.c.store.Blocks, t.cidr, nil, t.change)
		switch {
		case err == nil:
			return e, nil
		case errors.Is(err, datastore.ErrNotFound):
		case lost != nil:
			t.planned = got
			return e, &unknownWrite{cause: errors.Join(lost, err)}
		default:
			return e, err
		}
	}
	if lost != nil {
		return blockEntry{}, &unknownWrite{cause: lost}
	}
	return blockEntry{}, errStaleAffinity
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

// confirm makes the host's claim count (INV-6).
func (a *assigner) confirm(ctx context.Context, cidr netip.Prefix, seq uint64, poolName string) error {
	confirmed := datastore.Affinity{State: datastore.Confirmed, Pool: poolName, BlockSeq: seq}
	var hint *affinityEntry
	if i := a.host.claim(cidr); i >= 0 {
		if v := a.host.affinities[i].Value; v.State == datastore.Confirmed && v.BlockSeq >= seq {
			return nil
		}
		hint = &a.host.affinities[i]
	}
	e, err := ensure(ctx, a.c.backoff, a.c.store.Affinities, a.host.key(cidr), hint, confirmed,
		func(e affinityEntry) (datastore.Affinity, bool, error) { return confirmed, e.Value != confirmed, nil })
	if err != nil {
		return fmt.Errorf("confirm affinity of %s: %w", cidr, err)
	}
	a.host.sawClaim(e)
	return nil
}

// withdraw removes the host's affinity for a block it did not get, and returns
// why it did not.
func (a *assigner) withdraw(ctx context.Context, cidr netip.Prefix, why error) error {
	i := a.host.claim(cidr)
	if i < 0 {
		return why
	}
	err := a.c.store.Affinities.Delete(ctx, a.host.affinities[i])
	a.host.dropClaim(cidr)
	if err != nil && !definite(err) {
		return errors.Join(why, fmt.Errorf("withdraw affinity of %s: %w", cidr, err))
	}
	return why
}

// repair puts right what a crash between two writes left of this host: a block
// with its affinity is confirmed, an affinity whose block does not name it goes: the
// block became another owner's, or its affinity was released before the claim was
// confirmed.
// It writes nothing when nothing is wrong.
func (a *assigner) repair(ctx context.Context) error {
	for _, e := range a.host.blocks {
		i := a.host.claim(e.Key)
		switch ours := e.Value.Affinity == a.host.affinity(); {
		case ours && (i < 0 || a.host.affinities[i].Value.State != datastore.Confirmed):
			if err := a.confirm(ctx, e.Key, e.Value.Seq, e.Value.Pool); err != nil {
				return err
			}
		case !ours && i >= 0:
			if err := a.withdraw(ctx, e.Key, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
