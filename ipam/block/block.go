// SPDX-License-Identifier: Apache-2.0

package block

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
)

// Format is the newest wire format this version writes. A block of a newer
// format can be read; [Block.Writable] refuses it.
const Format = 1

// MaxSize is the largest number of ordinals a block may have (/24 or /120):
// larger blocks would outgrow etcd's object limit.
const MaxSize = 256

// Space is the label that says whether a block is worth reading for an address.
type Space string

// The values of Space.
const (
	SpaceFree    Space = "free"    // some ordinal can be handed out now
	SpaceCooling Space = "cooling" // none is free, but some are cooling
	SpaceFull    Space = "full"    // neither
)

// Labels are what a store indexes a block by. They are written together with
// the block and derived from it, so they cannot disagree with it.
type Labels struct {
	Pool  string
	Space Space
	Empty bool     // nothing allocated or cooling apart from Windows-reserved
	Nodes []string // nodes with the affinity or an allocation here, sorted
}

// Block is one slice of a pool: the unit of compare-and-swap and the only record
// of an allocation. It is a value: no method changes its receiver, and a Block
// may be read by several goroutines. The zero Block is not valid; see [New] and
// [Decode].
type Block struct {
	CIDR      netip.Prefix
	Affinity  Affinity
	ClaimedAt time.Time
	Seq       uint64 // last sequence given in this block object; only grows (INV-15)

	// Pool and Space are the labels that the block's own content does not
	// determine; see [Block.Relabel].
	Pool  string
	Space Space
	// Deleting: somebody has deleted the block object, and somebody else still holds
	// it. What would be given in it would vanish with it.
	Deleting bool

	format   int
	slots    []*Slot  // index = ordinal, nil = not in a slot; never written through
	queue    []uint16 // free ordinals, longest free first
	stray    []string // slot lines that name no ordinal of this block, kept verbatim
	extra    []Extra  // spec fields this version does not know
	problems []string // what Decode found wrong; reported by Problems
}

// New returns an empty block with every ordinal free, in order. seq must be above
// every sequence known for this CIDR: an earlier block object's, an affinity's,
// and the clock's (INV-15).
func New(cidr netip.Prefix, a Affinity, seq uint64, now time.Time) (Block, error) {
	n, err := size(cidr)
	if err != nil {
		return Block{}, err
	}
	a = a.normal()
	b := Block{CIDR: cidr, Affinity: a, Seq: seq, Space: SpaceFree, format: Format, slots: make([]*Slot, n)}
	if !a.IsZero() {
		b.ClaimedAt = stamp(now)
	}
	b.queue = make([]uint16, n)
	for i := range b.queue {
		b.queue[i] = uint16(i)
	}
	return b, nil
}

func size(cidr netip.Prefix) (int, error) {
	if !cidr.IsValid() || cidr.Addr().Zone() != "" || cidr.Addr().Is4In6() {
		return 0, fmt.Errorf("block %v: not a CIDR", cidr)
	}
	if cidr.Masked() != cidr {
		return 0, fmt.Errorf("block %v: host bits are set; want %v", cidr, cidr.Masked())
	}
	bits := cidr.Addr().BitLen() - cidr.Bits()
	if bits > 8 {
		return 0, fmt.Errorf("block %v: more than %d addresses", cidr, MaxSize)
	}
	return 1 << bits, nil
}

// The times that the wire form can hold.
var (
	firstTime = time.Unix(0, 0).UTC()
	lastTime  = time.Date(10000, time.January, 1, 0, 0, 0, -1, time.UTC)
)

// stamp is t as the wire form keeps it: UTC with nanoseconds. A clock outside of
// what the grammar reads is moved to its nearest end, or the line written with
// it would come back as an unknown owner's.
func stamp(t time.Time) time.Time {
	t = t.UTC().Round(0)
	switch {
	case t.Before(firstTime):
		return firstTime
	case t.After(lastTime):
		return lastTime
	}
	return t
}

// Size returns the number of ordinals.
func (b Block) Size() int { return len(b.slots) }

// Contains reports whether a is an address of this block.
func (b Block) Contains(a netip.Addr) bool { return b.CIDR.Contains(a) }

// Addr returns the address of an ordinal.
func (b Block) Addr(ordinal int) netip.Addr {
	a := b.CIDR.Addr().AsSlice()
	a[len(a)-1] |= byte(ordinal) // the base is masked and a block has at most 8 host bits
	addr, _ := netip.AddrFromSlice(a)
	return addr
}

// Ordinal returns the ordinal of a. ok is false when a is outside the block.
func (b Block) Ordinal(a netip.Addr) (ordinal int, ok bool) {
	if !b.CIDR.Contains(a) {
		return 0, false
	}
	s := a.AsSlice()
	host := byte(len(b.slots) - 1)
	return int(s[len(s)-1] & host), true
}

// Slot returns the record of a. ok is false when a is free or outside the block.
func (b Block) Slot(a netip.Addr) (s Slot, ok bool) {
	i, in := b.Ordinal(a)
	if !in || b.slots[i] == nil {
		return Slot{}, false
	}
	return *b.slots[i], true
}

// All yields every slot that is not free, in ordinal order.
func (b Block) All() iter.Seq2[netip.Addr, Slot] {
	return func(yield func(netip.Addr, Slot) bool) {
		for i, s := range b.slots {
			if s != nil && !yield(b.Addr(i), *s) {
				return
			}
		}
	}
}

// Free yields the free addresses, longest free first.
func (b Block) Free() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, o := range b.queue {
			if !yield(b.Addr(int(o))) {
				return
			}
		}
	}
}

// Counts are the number of ordinals in each state.
type Counts struct{ Free, Allocated, Cooling int }

// Counts returns the number of ordinals in each state.
func (b Block) Counts() Counts {
	c := Counts{Free: len(b.queue)}
	for _, s := range b.slots {
		switch {
		case s == nil:
		case s.State == Cooling:
			c.Cooling++
		default:
			c.Allocated++
		}
	}
	return c
}

// Empty reports whether nothing is allocated or cooling apart from
// Windows-reserved ordinals.
func (b Block) Empty() bool {
	for _, s := range b.slots {
		if s != nil && (s.State != Allocated || s.Type != WindowsReserved) {
			return false
		}
	}
	return len(b.stray) == 0
}

// Nodes returns the nodes that have the affinity or an allocation here, sorted
// and without repeats.
func (b Block) Nodes() []string {
	var nodes []string
	add := func(n string) {
		if n != "" {
			nodes = append(nodes, n)
		}
	}
	if a := b.Affinity.normal(); a.Type == HostAffinity {
		add(a.Name)
	}
	for _, s := range b.slots {
		if s != nil && s.State == Allocated {
			add(s.Active.Node)
			add(s.Alternate.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Relabel returns b with its pool and space labels computed. usable says whether
// automatic assignment may hand an address out (INV-13); nil means all may be.
func (b Block) Relabel(pool string, usable func(netip.Addr) bool) Block {
	b.Pool = pool
	b.Space = SpaceFull
	for i, s := range b.slots {
		if s != nil && s.State == Cooling && (usable == nil || usable(b.Addr(i))) {
			b.Space = SpaceCooling
		}
	}
	for _, o := range b.queue {
		if usable == nil || usable(b.Addr(int(o))) {
			b.Space = SpaceFree
			break
		}
	}
	return b
}

// Labels returns what a store indexes this block by.
func (b Block) Labels() Labels {
	return Labels{Pool: b.Pool, Space: b.Space, Empty: b.Empty(), Nodes: b.Nodes()}
}

// ErrFormat says that a block was written by a newer version and must not be
// rewritten by this one.
var ErrFormat = errors.New("block format is newer than this version can write")

// Writable returns ErrFormat when b carries a format this version does not know.
func (b Block) Writable() error {
	if b.format > Format {
		return fmt.Errorf("block %s has format %d, this version writes up to %d: %w (upgrade allod on this host)",
			b.CIDR, b.format, Format, ErrFormat)
	}
	return nil
}

// Giving returns why nothing may be given out of b: it is not [Block.Writable], or is
// being deleted. What it has given may be released.
func (b Block) Giving() error {
	if b.Deleting {
		return fmt.Errorf("block %s is being deleted (its object has a deletionTimestamp, and finalizers hold it)", b.CIDR)
	}
	return b.Writable()
}

// Problems returns what was wrong with the stored form, one line each. Operators
// see it in "check". An update keeps every slot line and the affinity as they
// were; a queue, sequence or claim time that can't be read is replaced.
func (b Block) Problems() []string { return slices.Clone(b.problems) }

// Check proves INV-4 and INV-15 on the value: each ordinal is Free (once in the
// queue), Allocated or Cooling, and no slot carries a sequence above the block's.
func (b Block) Check() error {
	n, err := size(b.CIDR)
	if err != nil {
		return err
	}
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("block %s: "+format, append([]any{b.CIDR}, args...)...))
	}
	if len(b.slots) != n {
		fail("%d slots for %d ordinals", len(b.slots), n)
		return errors.Join(errs...)
	}
	queued := make([]int, n)
	for _, o := range b.queue {
		if int(o) >= n {
			fail("queue holds ordinal %d", o)
			continue
		}
		queued[o]++
	}
	for i, s := range b.slots {
		switch {
		case s == nil && queued[i] != 1:
			fail("ordinal %d has no slot and is %d times in the queue", i, queued[i])
		case s != nil && queued[i] != 0:
			fail("ordinal %d is %s and also in the queue", i, s.State)
		case s != nil:
			errs = append(errs, b.checkSlot(i, *s))
		}
	}
	return errors.Join(errs...)
}

func (b Block) checkSlot(i int, s Slot) error {
	switch {
	case s.State != Allocated && s.State != Cooling:
		return fmt.Errorf("block %s: ordinal %d is in a slot with state %s", b.CIDR, i, s.State)
	case s.Raw == "" && s.Seq > b.Seq:
		return fmt.Errorf("block %s: ordinal %d has sequence %d above the block's %d (INV-15)", b.CIDR, i, s.Seq, b.Seq)
	case s.State == Cooling && s.Handle != "":
		return fmt.Errorf("block %s: ordinal %d is cooling and still has handle %s", b.CIDR, i, s.Handle)
	case s.State == Cooling && s.Released.IsZero():
		return fmt.Errorf("block %s: ordinal %d is cooling without a release time", b.CIDR, i)
	}
	return nil
}

// Range returns the first and last address of the block.
func (b Block) Range() netipx.IPRange { return netipx.RangeOfPrefix(b.CIDR) }

// next gives a new sequence number: max(seq+1, now) (INV-15).
func (b *Block) next(now time.Time) uint64 {
	n := b.Seq + 1
	if t := now.UnixNano(); t > 0 && uint64(t) > n {
		n = uint64(t)
	}
	b.Seq = n
	return n
}

// own makes the parts of b that are about to change private to b.
func (b Block) own() Block {
	b.slots = slices.Clone(b.slots)
	b.queue = slices.Clone(b.queue)
	return b
}
