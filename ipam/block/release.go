// SPDX-License-Identifier: Apache-2.0

package block

import (
	"net/netip"
	"time"
)

// Release is one address to give back, with what was seen of its allocation
// (INV-8). Fields left zero are not compared.
type Release struct {
	Addr   netip.Addr
	Seq    uint64
	Handle HandleID
	Owner  *Owner
	// BlockUID is the identity of the block object the allocation was seen in; a
	// Block does not know its own, so the store's reader compares it.
	BlockUID string
}

// Outcome is what became of one Release.
type Outcome uint8

// The outcomes. Every one but Released means "skip, look again" (INV-8).
const (
	Released    Outcome = iota + 1
	AlreadyFree         // free, cooling, or no such address in the block
	StaleSeq            // allocated again since it was seen
	OtherHandle
	OtherOwner
	UnknownOwner // the record cannot be read: unknown is alive (INV-2)
)

func (o Outcome) String() string {
	switch o {
	case Released:
		return "released"
	case AlreadyFree:
		return "already free"
	case StaleSeq:
		return "allocated again since"
	case OtherHandle:
		return "held by another handle"
	case OtherOwner:
		return "held by another owner"
	case UnknownOwner:
		return "owner cannot be read"
	}
	return "unknown outcome"
}

// Release gives addresses back: they start cooling. The outcomes are in the order
// of rs; a mismatch never stops the others.
func (b Block) Release(rs []Release, now time.Time) (Block, []Outcome) {
	b = b.own()
	outcomes := make([]Outcome, len(rs))
	for i, r := range rs {
		outcomes[i] = b.judge(r)
		if outcomes[i] == Released {
			o, _ := b.Ordinal(r.Addr)
			b.cool(o, now)
		}
	}
	return b, outcomes
}

func (b Block) judge(r Release) Outcome {
	s, ok := b.Slot(r.Addr)
	switch {
	case !ok || s.State != Allocated:
		return AlreadyFree
	case s.Unknown():
		return UnknownOwner
	case r.Seq != 0 && r.Seq != s.Seq:
		return StaleSeq
	case r.Handle != "" && r.Handle != s.Handle:
		return OtherHandle
	case r.Owner != nil && *r.Owner != s.Active:
		return OtherOwner
	}
	return Released
}

// ReleaseWhere gives back every allocated address that match says yes to, and
// returns them. match is never asked about an owner that cannot be read (INV-2).
func (b Block) ReleaseWhere(match func(netip.Addr, Slot) bool, now time.Time) (Block, []netip.Addr) {
	b = b.own()
	var released []netip.Addr
	for i, s := range b.slots {
		if s != nil && s.State == Allocated && !s.Unknown() && match(b.Addr(i), *s) {
			b.cool(i, now)
			released = append(released, b.Addr(i))
		}
	}
	return b, released
}

// ReleaseHandle gives back every address of h, which must not be empty.
func (b Block) ReleaseHandle(h HandleID, now time.Time) (Block, []netip.Addr) {
	return b.ReleaseWhere(func(_ netip.Addr, s Slot) bool { return s.Handle == h }, now)
}

// cool moves an allocated ordinal to Cooling. It keeps the sequence of the
// allocation, its last owner and its last handle. The space label follows, so that
// a release needs to know nothing of pools and reservations.
func (b *Block) cool(ordinal int, now time.Time) {
	s := *b.slots[ordinal]
	s.State = Cooling
	s.LastHandle, s.Handle = s.Handle, ""
	s.Released, s.Since = stamp(now), time.Time{}
	s.Alternate = Owner{}
	b.slots[ordinal] = &s
	if b.Space == SpaceFull {
		b.Space = SpaceCooling // at worst a reserved address: a block read in vain
	}
}
