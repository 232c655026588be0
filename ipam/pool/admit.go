// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Admit decides the status of every pool and returns the pools in the order
// given; the arguments stay as they are. blocks is every CIDR with a block or an
// affinity, pending ones too: a claim whose block is still to be created counts.
// The decision depends on nothing else, and deciding again on the result decides
// the same, though the message may name another of several pools in the way.
//
// The first of these that holds is the reason:
//
//	Terminating        deletion has been asked for
//	CIDROverlap        a pool that goes first has (part of) the range
//	Invalid            the spec does not validate
//	BlockSizeConflict  blocks of another size are in the range (case C8)
//	Disabled           spec.disabled
//	OK                 the pool hands out addresses
//
// Of overlapping pools the order is: those that have been granted their range
// and are not being deleted, those being deleted, the rest; ties go to the older
// one, then by name. A pool keeps its range while it is disabled, or refused for
// another reason than the overlap.
//
// The finalizer is set with OK and never taken off here: that is for whoever has
// seen that no block and no affinity of a deleted pool is left.
func Admit(pools []Pool, blocks []netip.Prefix) []Pool {
	winner := contest(pools)
	out := slices.Clone(pools)
	for i := range out {
		p := &out[i]
		s := Status{Finalizer: p.Status.Finalizer, ObservedGeneration: p.Generation}
		s.Reason, s.Message = verdict(*p, winner[i], blocks)
		s.Allocatable = s.Reason == ReasonOK
		s.Finalizer = s.Finalizer || s.Allocatable
		p.Status = s
	}
	return out
}

func verdict(p Pool, winner *Pool, blocks []netip.Prefix) (reason, message string) {
	if p.Deleting {
		return ReasonTerminating, "the pool is being deleted"
	}
	if winner != nil {
		return ReasonCIDROverlap, fmt.Sprintf("%v overlaps pool %s (%v), which goes first; delete one of the two",
			p.Spec.CIDR, winner.Name, winner.Spec.CIDR)
	}
	if err := p.Validate(); err != nil {
		return ReasonInvalid, strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if other, n := otherSize(p, blocks); n > 0 {
		return ReasonBlockSizeConflict, fmt.Sprintf("block %v has another size than spec.blockSize %d (blocks of other sizes: %d); set spec.blockSize to %d, or release them",
			other, p.Spec.BlockSize, n, other.Bits())
	}
	if p.Spec.Disabled {
		return ReasonDisabled, "spec.disabled is set"
	}
	return ReasonOK, "the pool hands out addresses"
}

// otherSize returns the first block, by address, that reaches into p and is not
// of its size, and how many there are.
func otherSize(p Pool, blocks []netip.Prefix) (first netip.Prefix, n int) {
	for _, b := range blocks {
		if b.Bits() == p.Spec.BlockSize || !b.Overlaps(p.Spec.CIDR) {
			continue
		}
		if n == 0 || b.Compare(first) < 0 {
			first = b
		}
		n++
	}
	return first, n
}

// contest returns for each pool the one that keeps it from its range, or nil.
// [Admit] and [Select] both decide overlap by it.
func contest(pools []Pool) []*Pool {
	order := make([]*Pool, len(pools))
	index := make(map[*Pool]int, len(pools))
	for i := range pools {
		order[i] = &pools[i]
		index[order[i]] = i
	}
	slices.SortFunc(order, func(a, b *Pool) int {
		return cmp.Or(cmp.Compare(precedence(*a), precedence(*b)), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	winner := make([]*Pool, len(pools))
	var holders []*Pool
	for _, p := range order {
		h := slices.IndexFunc(holders, func(h *Pool) bool { return h.Spec.CIDR.Overlaps(p.Spec.CIDR) })
		if h >= 0 {
			winner[index[p]] = holders[h]
		}
		// Addresses of a pool being deleted may still be in use, whoever else has
		// the range.
		if h < 0 || p.Deleting {
			holders = append(holders, p)
		}
	}
	return winner
}

// precedence ranks pools that overlap; lower goes first.
func precedence(p Pool) int {
	switch {
	case p.Deleting:
		return 2
	case granted(p.Status):
		return 1
	}
	return 3
}

// granted reports whether the pool once got its range and still has it. A new
// generation does not take it away: the CIDR cannot change.
func granted(s Status) bool {
	if !s.Finalizer {
		return false
	}
	switch s.Reason {
	case ReasonInvalid, ReasonBlockSizeConflict, ReasonDisabled:
		return true
	}
	return s.Allocatable
}
