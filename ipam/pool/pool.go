// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"net/netip"
	"time"
)

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

// Status is what admission decided.
type Status struct {
	Finalizer          bool // the pool cannot vanish while blocks of it exist
	Allocatable        bool
	Reason             string // OK, CIDROverlap, BlockSizeConflict, Terminating, Disabled
	Message            string
	ObservedGeneration int64
}

// Reservation lists CIDRs that automatic assignment must not hand out. They may
// overlap and nest.
type Reservation struct {
	Name  string
	CIDRs []netip.Prefix
}
