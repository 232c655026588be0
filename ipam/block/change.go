// SPDX-License-Identifier: Apache-2.0

package block

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// ErrStale says that an allocation is no longer what the caller saw (INV-8).
var ErrStale = errors.New("allocation has changed since it was seen")

// OwnerUpdate says what to change of an allocation; nil fields stay. A pointer to
// the zero Owner clears that owner.
type OwnerUpdate struct {
	Handle    *HandleID
	Active    *Owner
	Alternate *Owner
}

// OwnerPrecondition is what must hold for an OwnerUpdate; zero fields are not
// compared. A pointer to the zero Owner demands that there is none.
type OwnerPrecondition struct {
	Seq       uint64
	Handle    HandleID
	Active    *Owner
	Alternate *Owner
}

// SetOwner changes who holds an allocated address and gives the allocation a new
// sequence (INV-15), so that a release planned before misses. ErrStale when a
// precondition does not hold or the address is not allocated.
func (b Block) SetOwner(a netip.Addr, u OwnerUpdate, p OwnerPrecondition, now time.Time) (Block, Allocation, error) {
	s, ok := b.Slot(a)
	if !ok || s.State != Allocated || s.Unknown() || !p.holds(s) {
		return b, Allocation{}, fmt.Errorf("owner of %s: %w", a, ErrStale)
	}
	if u.Handle != nil {
		s.Handle = *u.Handle
	}
	if u.Active != nil {
		s.Active = *u.Active
	}
	if u.Alternate != nil {
		s.Alternate = *u.Alternate
	}
	b = b.own()
	s.Seq = b.next(now)
	i, _ := b.Ordinal(a)
	b.slots[i] = &s
	return b, Allocation{Addr: a, Seq: s.Seq}, nil
}

func (p OwnerPrecondition) holds(s Slot) bool {
	return (p.Seq == 0 || p.Seq == s.Seq) &&
		(p.Handle == "" || p.Handle == s.Handle) &&
		(p.Active == nil || *p.Active == s.Active) &&
		(p.Alternate == nil || *p.Alternate == s.Alternate)
}

// WithAffinity changes who has claimed the block and gives it a new sequence
// (INV-15), which fences writes planned under the old claim. What the former owner
// had reserved for itself starts cooling: nobody else would give it back (INV-3).
func (b Block) WithAffinity(a Affinity, now time.Time) Block {
	a = a.normal()
	if a != b.Affinity.normal() {
		b = b.unreserve(now)
	}
	b.Affinity = a
	b.ClaimedAt = time.Time{}
	if !a.IsZero() {
		b.ClaimedAt = stamp(now)
	}
	b.next(now)
	return b
}

// Fence gives the block a new sequence and changes nothing else: writing it
// makes every write that is still on its way miss (INV-7).
func (b Block) Fence(now time.Time) Block {
	b.next(now)
	return b
}
