// SPDX-License-Identifier: Apache-2.0

package block

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// The reasons why a given address cannot be assigned.
var (
	ErrInUse      = errors.New("address is in use")
	ErrCooling    = errors.New("address is cooling down after its last release")
	ErrNotInBlock = errors.New("address is not in this block")
)

// Request says for whom addresses are taken.
type Request struct {
	N      int // how many; Allocate only
	Handle HandleID
	Type   Type
	Owner  Owner
	Now    time.Time
	// Usable says whether automatic assignment may hand an address out (INV-13);
	// nil means all may be. Assign does not ask it.
	Usable func(netip.Addr) bool
}

// Allocation is one address that was given out, with the identity a later
// release has to carry (INV-8).
type Allocation struct {
	Addr netip.Addr
	Seq  uint64
}

func (r Request) slot(seq uint64) *Slot {
	return &Slot{
		State: Allocated, Type: r.Type, Handle: r.Handle, Seq: seq,
		Since: stamp(r.Now).Truncate(time.Second), Active: r.Owner,
	}
}

// Allocate takes up to r.N addresses, longest free first (INV-5), and passes over
// those that are not usable without changing their turn. It returns fewer when
// the block has fewer.
func (b Block) Allocate(r Request) (Block, []Allocation) {
	b = b.own()
	var got []Allocation
	kept := b.queue[:0]
	for _, o := range b.queue {
		addr := b.Addr(int(o))
		if len(got) >= r.N || (r.Usable != nil && !r.Usable(addr)) {
			kept = append(kept, o)
			continue
		}
		seq := b.next(r.Now)
		b.slots[o] = r.slot(seq)
		got = append(got, Allocation{Addr: addr, Seq: seq})
	}
	b.queue = kept
	return b, got
}

// Assign takes one given address. An address that is cooling is given back to the
// owner that last held it and to nobody else (case E7). ErrInUse, ErrCooling,
// ErrNotInBlock.
func (b Block) Assign(a netip.Addr, r Request) (Block, Allocation, error) {
	i, in := b.Ordinal(a)
	if !in {
		return b, Allocation{}, fmt.Errorf("%s in block %s: %w", a, b.CIDR, ErrNotInBlock)
	}
	if s := b.slots[i]; s != nil {
		switch {
		case s.State == Allocated:
			return b, Allocation{}, fmt.Errorf("%s: %w", a, ErrInUse)
		case (r.Handle == "" || s.LastHandle != r.Handle) && !s.Active.SamePod(r.Owner):
			return b, Allocation{}, fmt.Errorf("%s, released %s: %w", a, s.Released.Format(time.RFC3339), ErrCooling)
		}
	}
	b = b.own()
	kept := b.queue[:0]
	for _, o := range b.queue {
		if int(o) != i {
			kept = append(kept, o)
		}
	}
	b.queue = kept
	seq := b.next(r.Now)
	b.slots[i] = r.slot(seq)
	return b, Allocation{Addr: a, Seq: seq}, nil
}
