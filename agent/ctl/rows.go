// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// Usage is how the addresses of a pool or block are used. Counts are decimal
// strings, because a pool may have more addresses than a JSON number can tell.
// Capacity is the sum of the other four.
type Usage struct {
	Capacity  string `json:"capacity"`
	Allocated string `json:"allocated"`
	Cooling   string `json:"cooling"`
	Reserved  string `json:"reserved"`
	Available string `json:"available"`
}

// PoolRow is a pool in the output of show.
type PoolRow struct {
	Name      string `json:"name"`
	CIDR      string `json:"cidr"`
	BlockSize int    `json:"blockSize"`
	Blocks    int    `json:"blocks"`
	Usage     `json:",inline"`
	Status    string `json:"status"`
	Message   string `json:"message,omitempty"`
}

// BlockRow is a block in the output of show.
type BlockRow struct {
	CIDR      string `json:"cidr"`
	Pool      string `json:"pool"`
	Affinity  string `json:"affinity,omitempty"`
	ClaimedAt string `json:"claimedAt,omitempty"`
	Sequence  string `json:"sequence"`
	Usage     `json:",inline"`
}

// The states of an address in the output of show.
const (
	stateFree      = "free"
	stateAllocated = "allocated"
	stateCooling   = "cooling"
	stateReserved  = "reserved"  // free, and automatic assignment does not hand it out
	stateUnmanaged = "unmanaged" // in no pool and no block
)

// AddressRow is an address in the output of show. For a cooling address the owner
// is the last one and Since is when it was released.
type AddressRow struct {
	Address     string `json:"address"`
	State       string `json:"state"`
	Type        string `json:"type,omitempty"`
	Handle      string `json:"handle,omitempty"`
	Network     string `json:"network,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Pod         string `json:"pod,omitempty"`
	PodUID      string `json:"podUID,omitempty"`
	ContainerID string `json:"containerID,omitempty"`
	IfName      string `json:"ifName,omitempty"`
	Node        string `json:"node,omitempty"`
	VM          string `json:"vm,omitempty"`
	Pool        string `json:"pool,omitempty"`
	Block       string `json:"block,omitempty"`
	Sequence    string `json:"sequence,omitempty"`
	Since       string `json:"since,omitempty"`
	// UnknownOwner: the address is allocated and its owner cannot be read.
	UnknownOwner bool `json:"unknownOwner,omitempty"`
	// Line is a stored line that does not parse, verbatim.
	Line string `json:"line,omitempty"`
}

func usage(u pool.Usage) Usage {
	s := func(n *big.Int) string { return n.String() }
	return Usage{s(u.Capacity), s(u.Allocated), s(u.Cooling), s(u.Reserved), s(u.Available)}
}

func (s Snapshot) unassignable(name string) pool.Unassignable {
	p, _ := s.pool(name)
	return pool.NewUnassignable(p, s.Reservations)
}

func (s Snapshot) pool(name string) (pool.Pool, bool) {
	i := slices.IndexFunc(s.Pools, func(p pool.Pool) bool { return p.Name == name })
	if i < 0 {
		return pool.Pool{Name: name}, false
	}
	return s.Pools[i], true
}

// asOf returns the snapshot as the next assignment would see it: addresses whose
// cooldown has passed are free.
func (s Snapshot) asOf(now time.Time) Snapshot {
	cfg := datastore.ConfigDefaults()
	if s.Config != nil {
		cfg = *s.Config
	}
	s.Blocks = slices.Clone(s.Blocks)
	for i, b := range s.Blocks {
		if free, n := b.Collect(now, cfg.IPCooldown); n > 0 {
			s.Blocks[i].Block = free
		}
	}
	return s
}

// owns reports whether the addresses of b count in pool p.
func owns(p pool.Pool, b block.Block) bool {
	return b.Pool == p.Name && p.Spec.CIDR.Contains(b.CIDR.Addr()) && b.CIDR.Bits() >= p.Spec.CIDR.Bits()
}

// inUse adds the addresses of b to the lists that pool.UsageOf takes.
func inUse(b block.Block, allocated, cooling []netip.Addr) (a, c []netip.Addr) {
	for addr, s := range b.All() {
		if s.State == block.Cooling {
			cooling = append(cooling, addr)
		} else {
			allocated = append(allocated, addr)
		}
	}
	return allocated, cooling
}

// poolRows returns a row for each pool.
func (s Snapshot) poolRows() []PoolRow {
	rows := make([]PoolRow, 0, len(s.Pools))
	is := standings(s.Pools)
	for _, p := range s.Pools {
		var allocated, cooling []netip.Addr
		n := 0
		for _, b := range s.Blocks {
			if owns(p, b.Block) {
				allocated, cooling = inUse(b.Block, allocated, cooling)
				n++
			}
		}
		u := pool.UsageOf(p.Spec.CIDR, pool.NewUnassignable(p, s.Reservations), allocated, cooling)
		rows = append(rows, PoolRow{
			Name: p.Name, CIDR: p.Spec.CIDR.String(), BlockSize: p.Spec.BlockSize, Blocks: n,
			Usage: usage(u), Status: is[p.Name].status, Message: is[p.Name].message,
		})
	}
	return rows
}

// poolless returns the blocks that count in no pool.
func (s Snapshot) poolless() []string {
	var out []string
	for _, b := range s.Blocks {
		if !slices.ContainsFunc(s.Pools, func(p pool.Pool) bool { return owns(p, b.Block) }) {
			out = append(out, b.CIDR.String())
		}
	}
	return out
}

// blockRows returns a row for each block.
func (s Snapshot) blockRows() []BlockRow {
	rows := make([]BlockRow, 0, len(s.Blocks))
	reserved := map[string]pool.Unassignable{}
	for _, b := range s.Blocks {
		u, ok := reserved[b.Pool]
		if !ok {
			u = s.unassignable(b.Pool)
			reserved[b.Pool] = u
		}
		allocated, cooling := inUse(b.Block, nil, nil)
		rows = append(rows, BlockRow{
			CIDR: b.CIDR.String(), Pool: b.Pool, Affinity: b.Affinity.String(), ClaimedAt: instant(b.ClaimedAt),
			Sequence: strconv.FormatUint(b.Seq, 10), Usage: usage(pool.UsageOf(b.CIDR, u, allocated, cooling)),
		})
	}
	return rows
}

// addressRows returns a row for each address that is not free.
func (s Snapshot) addressRows() []AddressRow {
	rows := []AddressRow{}
	for _, b := range s.Blocks {
		for addr, slot := range b.All() {
			rows = append(rows, addressRow(b.Block, addr, slot))
		}
	}
	return rows
}

// addressInfo returns what the store knows about one address: a row for each
// block that has it (more than one is a problem that check reports), else for
// each pool, else one that says it is not managed.
func (s Snapshot) addressInfo(addr netip.Addr) []AddressRow {
	var rows []AddressRow
	for _, b := range s.Blocks {
		if !b.Contains(addr) {
			continue
		}
		if slot, ok := b.Slot(addr); ok {
			rows = append(rows, addressRow(b.Block, addr, slot))
			continue
		}
		rows = append(rows, AddressRow{
			Address: addr.String(), State: freeState(s.unassignable(b.Pool), addr), Pool: b.Pool, Block: b.CIDR.String(),
		})
	}
	if len(rows) > 0 {
		return rows
	}
	for _, p := range s.Pools {
		if p.Spec.CIDR.Contains(addr) {
			rows = append(rows, AddressRow{Address: addr.String(), State: freeState(s.unassignable(p.Name), addr), Pool: p.Name})
		}
	}
	if len(rows) == 0 {
		rows = append(rows, AddressRow{Address: addr.String(), State: stateUnmanaged})
	}
	return rows
}

func freeState(u pool.Unassignable, addr netip.Addr) string {
	if u.Contains(addr) {
		return stateReserved
	}
	return stateFree
}

func addressRow(b block.Block, addr netip.Addr, s block.Slot) AddressRow {
	r := AddressRow{
		Address: addr.String(), State: stateAllocated, Type: string(s.Type), Handle: string(s.Handle),
		Network: s.Active.Network, Namespace: s.Active.Namespace, Pod: s.Active.Pod, PodUID: s.Active.PodUID,
		ContainerID: s.Active.ContainerID, IfName: s.Active.IfName, Node: s.Active.Node, VM: s.Active.VM,
		Pool: b.Pool, Block: b.CIDR.String(), Since: instant(s.Since), UnknownOwner: s.Unknown(), Line: s.Raw,
	}
	if s.Seq != 0 {
		r.Sequence = strconv.FormatUint(s.Seq, 10)
	}
	if s.State == block.Cooling {
		r.State, r.Since, r.Handle = stateCooling, instant(s.Released), string(s.LastHandle)
	}
	return r
}

// owner is the owner as people call it.
func (r AddressRow) owner() string {
	switch {
	case r.UnknownOwner:
		return "?"
	case r.Pod != "":
		return r.Namespace + "/" + r.Pod
	}
	return r.Handle
}
