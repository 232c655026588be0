// SPDX-License-Identifier: Apache-2.0

package block

import (
	"fmt"
	"net/netip"
	"time"
)

// HostReserved is how many ordinals at both ends of each of its blocks a host keeps
// for itself (Windows: network, gateway, broadcast). The zero value is none.
type HostReserved struct{ StartOfBlock, EndOfBlock int }

// IsZero reports whether nothing is reserved.
func (h HostReserved) IsZero() bool { return h == HostReserved{} }

// Validate returns what is wrong with h.
func (h HostReserved) Validate() error {
	if min(h.StartOfBlock, h.EndOfBlock) < 0 || max(h.StartOfBlock, h.EndOfBlock, h.StartOfBlock+h.EndOfBlock) >= MaxSize {
		return fmt.Errorf("%d ordinals reserved at the start and %d at the end of each block: want 0 or more, below %d in all",
			h.StartOfBlock, h.EndOfBlock, MaxSize)
	}
	return nil
}

// has reports whether h reserves an ordinal of a block of n.
func (h HostReserved) has(ordinal, n int) bool {
	return ordinal < h.StartOfBlock || ordinal >= n-h.EndOfBlock
}

// Reserve gives r's owner every ordinal that h names and that is free, or cooling
// since r's owner released it. missing is how many are in other hands; they are left
// alone. Ordinals that are reserved already are not touched, so reserving again
// changes nothing.
func (b Block) Reserve(h HostReserved, r Request) (next Block, missing int) {
	r.Type = WindowsReserved
	for i := range b.slots {
		if !h.has(i, len(b.slots)) || b.reservedFor(i, r) {
			continue
		}
		taken, _, err := b.Assign(b.Addr(i), r)
		if err != nil {
			missing++
			continue
		}
		b = taken
	}
	return b, missing
}

func (b Block) reservedFor(ordinal int, r Request) bool {
	s := b.slots[ordinal]
	return s != nil && s.State == Allocated && s.Type == WindowsReserved && s.Handle == r.Handle && s.Active == r.Owner
}

// unreserve gives back what a host kept for itself: those ordinals start cooling.
// One whose record cannot be read stays (INV-2).
func (b Block) unreserve(now time.Time) Block {
	next, _ := b.ReleaseWhere(func(_ netip.Addr, s Slot) bool { return s.Type == WindowsReserved }, now)
	return next
}
