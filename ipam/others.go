// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

// minHeld is how long a host has had an empty block before another may take it.
const minHeld = time.Minute

// others takes from the blocks of other owners, and from those whose owner is
// gone: first by claiming what nobody uses, then, unless strictAffinity, by
// borrowing. One list per pool serves both; no block is read on its own (case E3).
func (s *search) others(ctx context.Context) error {
	s.seen = nil
	if err := s.lookAround(ctx, block.SpaceFree, block.SpaceCooling); err != nil {
		return err
	}
	return s.fromSeen(ctx)
}

// mislabelled takes from blocks whose label says that they are full and that are not: a
// reservation or a gateway that was in the way has gone, and they are not labelled anew
// yet. It is asked last, because full blocks are many.
func (s *search) mislabelled(ctx context.Context) error {
	if limit, used := s.cap(netip.Prefix{}); s.v.config.StrictAffinity && (!s.v.config.AutoAllocateBlocks || used >= limit) {
		return nil // the host may have none of them, and has tried its own
	}
	s.seen = nil
	if err := s.lookAround(ctx, block.SpaceFull); err != nil {
		return err
	}
	s.seen = slices.DeleteFunc(s.seen, func(e blockEntry) bool {
		p, ok := s.poolOf(e.Key)
		u := s.v.unassignableIn(p)
		for a := range e.Value.Free() {
			if ok && !u.Contains(a) {
				return false
			}
		}
		return true
	})
	return s.fromSeen(ctx)
}

// fromSeen takes from the blocks that were seen.
func (s *search) fromSeen(ctx context.Context) error {
	if err := s.reclaim(ctx); err != nil || s.need == 0 || s.v.config.StrictAffinity || s.ensured != nil {
		return err
	}
	for i, e := range s.seen {
		if s.need == 0 {
			return nil
		}
		p, ok := s.poolOf(e.Key)
		if !ok {
			continue
		}
		if err := s.from(ctx, p, e, anyOwner); err != nil {
			return err
		}
		if at := s.host.block(e.Key); at >= 0 { // others may have been quicker: tell what is left
			s.seen[i] = s.host.blocks[at]
		}
	}
	return nil
}

func anyOwner(b block.Block) (block.Block, bool) { return b, true }

// lookAround lists the blocks of the selected pools with these labels. Each host begins elsewhere, so that borrowers do not all meet in one block.
func (s *search) lookAround(ctx context.Context, space ...block.Space) error {
	for _, p := range s.sel.Pools {
		list, err := s.c.store.Blocks.List(ctx, datastore.Query{Pool: p.Name, Space: space})
		if err != nil {
			return fmt.Errorf("list blocks of IP pool %s: %w", p.Name, err)
		}
		start := 0
		if len(list) > 0 {
			h := fnv.New32a()
			h.Write([]byte(s.host.name))
			start = int(h.Sum32() % uint32(len(list)))
		}
		s.seen = append(append(s.seen, list[start:]...), list[:start]...)
	}
	return nil
}

// reclaim claims blocks that nobody uses: without an owner (case E6), or empty and
// held by another host for minHeld. Only the block is written; the other host's
// affinity no longer routes, because ours has the higher sequence, and its owner
// or the collector removes it.
func (s *search) reclaim(ctx context.Context) error {
	if !s.v.config.AutoAllocateBlocks {
		return nil
	}
	for _, e := range s.seen {
		limit, used := s.cap(e.Key)
		switch {
		case s.need == 0:
			return nil
		case used >= limit:
			s.atCap = limit
			return nil
		}
		p, ok := s.poolOf(e.Key)
		if !ok || s.closed[p.Name] {
			continue
		}
		b, _ := e.Value.Collect(s.c.clock.Now(), s.v.config.IPCooldown)
		if _, ok := s.mayReclaim(b); !ok {
			continue
		}
		t := s.taking(p, e.Key, s.take(p))
		t.prepare = s.mayReclaim
		got, err := s.claimWith(ctx, t, &e)
		switch {
		case errors.Is(err, errPoolClosed):
			s.closed[p.Name] = true
		case errors.Is(err, errStaleAffinity):
		case errors.Is(err, errLimitReached):
			return nil
		default:
			if err := s.took(t, got, err); err != nil {
				return fmt.Errorf("reclaim block %s: %w", e.Key, err)
			}
		}
	}
	return nil
}

// mayReclaim is mayClaim that also takes an empty block from a host that has had
// it long enough. A virtual owner's block is never taken.
func (s *search) mayReclaim(b block.Block) (block.Block, bool) {
	now := s.c.clock.Now()
	free, _ := b.Collect(now, s.v.config.IPCooldown)
	switch {
	case b.Affinity == s.host.affinity():
		return b, false
	case b.Affinity.IsZero():
		return s.mayClaim(b)
	case b.Affinity.Type != block.HostAffinity, !free.Empty(), justClaimed(b, now):
		return b, false
	}
	b = b.WithAffinity(s.host.affinity(), now)
	return b, s.canReserve(b)
}

// justClaimed reports whether b was claimed less than minHeld ago. A claim further
// in the future than that is of a clock that was wrong, and protects nobody for
// longer (case C10).
func justClaimed(b block.Block, now time.Time) bool {
	return b.ClaimedAt.After(now.Add(-minHeld)) && b.ClaimedAt.Before(now.Add(minHeld))
}
