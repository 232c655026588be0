// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"net/netip"
	"time"
)

// Family is an address family. The zero value is none.
type Family uint8

// The families.
const (
	V4 Family = 4
	V6 Family = 6
)

// FamilyOf returns the family of a, or 0 when a is not valid. An IPv4-mapped
// IPv6 address counts as IPv6.
func FamilyOf(a netip.Addr) Family {
	switch {
	case !a.IsValid():
		return 0
	case a.Is4():
		return V4
	}
	return V6
}

// String returns "IPv4", "IPv6" or "none".
func (f Family) String() string {
	switch f {
	case V4:
		return "IPv4"
	case V6:
		return "IPv6"
	}
	return "none"
}

// Use is what an address of a pool may be for.
type Use string

// The uses of a pool.
const (
	UseWorkload     Use = "Workload"
	UseTunnel       Use = "Tunnel"
	UseLoadBalancer Use = "LoadBalancer"
)

// AssignmentMode says whether a pool serves requests that do not name it.
type AssignmentMode string

// The assignment modes. Automatic is the default.
const (
	Automatic AssignmentMode = "Automatic"
	Manual    AssignmentMode = "Manual"
)

// TunnelMode says for which destinations a pool's traffic is encapsulated.
type TunnelMode string

// The tunnel modes. Never is the default.
const (
	Never       TunnelMode = "Never"
	Always      TunnelMode = "Always"
	CrossSubnet TunnelMode = "CrossSubnet"
)

// Gateway is the gateway that addresses of a pool are given with: one address of
// the pool, the first ordinal of each block, or (zero) none. It is reserved in
// the arithmetic of what may be handed out (INV-13).
type Gateway struct {
	First bool
	Addr  netip.Addr
}

// Pool is a range of addresses and who may have them. Defaults are filled in
// when a pool is decoded; a Pool value has none left empty.
type Pool struct {
	Name       string
	UID        string    // given by the store
	Generation int64     // given by the store: grows when the spec changes
	Created    time.Time // given by the store
	Deleting   bool      // deletion has been asked for
	Spec       Spec
	Status     Status
}

// Spec is what an operator sets.
type Spec struct {
	CIDR              netip.Prefix
	BlockSize         int // prefix length: 24 to 32 or 120 to 128
	Gateway           Gateway
	NodeSelector      string // Kubernetes label selector syntax; "" selects all
	NamespaceSelector string
	AllowedUses       []Use
	AssignmentMode    AssignmentMode
	Disabled          bool
	IPIPMode          TunnelMode
	VXLANMode         TunnelMode
	NATOutgoing       bool
}

// Reasons of a status, see [Admit]. Only ReasonOK goes with Allocatable.
const (
	ReasonOK                = "OK"
	ReasonTerminating       = "Terminating"
	ReasonCIDROverlap       = "CIDROverlap"
	ReasonInvalid           = "Invalid"
	ReasonBlockSizeConflict = "BlockSizeConflict"
	ReasonDisabled          = "Disabled"
)

// Status is what admission decided.
type Status struct {
	Finalizer          bool // the pool cannot vanish while blocks of it exist
	Allocatable        bool
	Reason             string // one of the Reason constants
	Message            string
	ObservedGeneration int64
}

// Reservation lists CIDRs that automatic assignment must not hand out. They may
// overlap and nest.
type Reservation struct {
	Name  string
	CIDRs []netip.Prefix
}

// Family returns the family of the pool's addresses.
func (p Pool) Family() Family { return FamilyOf(p.Spec.CIDR.Addr()) }

// GatewayOf returns the gateway that addresses of a block of this pool are given
// with, or the zero Addr for none.
func (p Pool) GatewayOf(block netip.Prefix) netip.Addr {
	if p.Spec.Gateway.First {
		return block.Masked().Addr()
	}
	return p.Spec.Gateway.Addr
}

// BlockOf returns the block that a is in. ok is false when a is outside the pool.
func (p Pool) BlockOf(a netip.Addr) (block netip.Prefix, ok bool) {
	if !p.Spec.CIDR.Contains(a) {
		return netip.Prefix{}, false
	}
	block, err := a.Prefix(p.Spec.BlockSize)
	return block, err == nil
}

// Cuts reports whether cidr is a block of this pool: inside it and of its block size.
func (p Pool) Cuts(cidr netip.Prefix) bool {
	return cidr.Bits() == p.Spec.BlockSize && p.Spec.CIDR.Contains(cidr.Addr())
}

// HasGateway reports whether addresses of the pool come with a gateway.
func (p Pool) HasGateway() bool { return p.Spec.Gateway != Gateway{} }
