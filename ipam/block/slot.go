// SPDX-License-Identifier: Apache-2.0

package block

import "time"

// State is what an ordinal of a block is in: exactly one of these (INV-4).
type State uint8

// The states. Free is the zero value.
const (
	Free State = iota
	Allocated
	Cooling
)

func (s State) String() string {
	switch s {
	case Free:
		return "free"
	case Allocated:
		return "allocated"
	case Cooling:
		return "cooling"
	}
	return "unknown"
}

// Slot is the record of one ordinal that is not free. It is immutable once it is
// part of a Block.
type Slot struct {
	State  State
	Type   Type
	Handle HandleID // Allocated only; "" means the owner is unknown
	Seq    uint64   // identity of this allocation within its block object (INV-15)
	Since  time.Time

	Active    Owner
	Alternate Owner // the migration target of a VM, else zero

	Released   time.Time // Cooling only
	LastHandle HandleID  // Cooling only

	// Extra holds the key=value fields this version does not know, verbatim and
	// space separated; an update keeps them.
	Extra string
	// Raw is a line that did not parse. It is written back verbatim; the ordinal
	// counts as Allocated with an unknown owner (INV-2) and no other field is set.
	Raw string
}

// Unknown reports whether the slot's owner could not be read.
func (s Slot) Unknown() bool { return s.Raw != "" || (s.State == Allocated && s.Handle == "") }

// Holds reports whether a, as active or alternate owner, holds this slot. An
// attachment without a container ID is nobody's and holds nothing.
func (s Slot) Holds(a Attachment) bool {
	return a.ContainerID != "" && s.State == Allocated && !s.Unknown() &&
		(s.Active.Attachment() == a || s.Alternate.Attachment() == a)
}
