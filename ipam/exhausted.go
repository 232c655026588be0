// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/pool"
)

// ExhaustedError says why a search found too little: what was considered, why
// each pool gave nothing more, and the setting to change. It is ErrExhausted,
// and also ErrBlockLimit or ErrStrictAffinity when that is what stopped it.
type ExhaustedError struct {
	Family    pool.Family
	Node      string
	Wanted    int
	Found     int
	Pools     []PoolReport
	Skipped   []pool.Skipped
	Limit     int  // the block limit that was reached, 0 if it was not
	Used      int  // blocks the node has in these pools
	Strict    bool // strictAffinity kept the search to the node's own blocks
	NoClaims  bool // autoAllocateBlocks is false
	NextFree  time.Time
	causes    []error
	hasOthers bool
	closed    bool // a pool was closed during the search
	block     bool // a block was wanted, see EnsureBlock
}

// PoolReport is what a search saw of one pool. Free and Cooling count the blocks
// that were looked at, which is every block with an address free or cooling.
type PoolReport struct {
	Name     string
	CIDR     string
	Blocks   int // blocks with an address free or cooling
	Free     int // addresses free in blocks of others
	Cooling  int
	Reserved string // how many addresses of the pool are reserved, decimal
}

func (e *ExhaustedError) Error() string {
	var sb strings.Builder
	what := e.Family.String()
	if e.block {
		what += " block of its own"
	}
	fmt.Fprintf(&sb, "%v: node %s wanted %d %s, found %d", ErrExhausted, e.Node, e.Wanted, what, e.Found)
	for _, p := range e.Pools {
		fmt.Fprintf(&sb, "; pool %s (%s): %d free and %d cooling in blocks that are not full (%d), %s reserved",
			p.Name, p.CIDR, p.Free, p.Cooling, p.Blocks, p.Reserved)
	}
	writeSkipped(&sb, e.Skipped)
	switch {
	case e.NoClaims:
		fmt.Fprintf(&sb, "; node %s may not claim a block (autoAllocateBlocks)", e.Node)
	case e.Limit == 0 && !e.closed:
		sb.WriteString("; every block is claimed")
	case e.Limit > 0:
		fmt.Fprintf(&sb, "; node %s has reached its limit of blocks, %d of %d (maxBlocksPerHost)", e.Node, e.Used, e.Limit)
	}
	if !e.NextFree.IsZero() {
		fmt.Fprintf(&sb, "; the first cooling address is free at %s (ipCooldownSeconds)", e.NextFree.UTC().Format(time.RFC3339))
	}
	sb.WriteString("; ")
	sb.WriteString(e.hint())
	return sb.String()
}

// hint names the setting an operator would change first.
func (e *ExhaustedError) hint() string {
	switch {
	case e.block && e.Limit > 0:
		return "raise maxBlocksPerHost"
	case e.block && !e.NoClaims:
		return "add a pool, or release the affinity of a node for an empty block"
	case e.Limit > 0 && e.Strict:
		return "raise maxBlocksPerHost, or set strictAffinity to false so that the node may borrow"
	case e.NoClaims:
		return "set autoAllocateBlocks to true, or claim a block for the node"
	case e.Strict && e.hasOthers:
		return "set strictAffinity to false so that the node may borrow, add a pool, or use a smaller blockSize in a new pool"
	case !e.NextFree.IsZero():
		return "wait, lower ipCooldownSeconds, or add a pool"
	}
	return "add a pool, or free reserved or leaked addresses (see \"allod-agent show\" and \"allod-agent check\")"
}

// Unwrap returns ErrExhausted and what stopped the search.
func (e *ExhaustedError) Unwrap() []error { return e.causes }

func writeSkipped(sb *strings.Builder, skipped []pool.Skipped) {
	for _, s := range skipped {
		fmt.Fprintf(sb, "; pool %s: %s", s.Pool, s.Reason)
	}
}

// noPool says why no pool may serve the request.
func (s *search) noPool() error {
	var sb strings.Builder
	writeSkipped(&sb, s.sel.Skipped)
	if len(s.sel.Skipped) == 0 {
		fmt.Fprintf(&sb, "; there is no %s pool: create an IPPool", s.want.family)
	}
	of := ""
	if s.r.Namespace.Name != "" {
		of = ", namespace " + s.r.Namespace.Name
	}
	return fmt.Errorf("%w: %s for node %s%s%s", ErrNoPool, s.want.family, s.host.name, of, sb.String())
}

// exhausted explains a search that found too little.
func (s *search) exhausted() error {
	e := &ExhaustedError{
		Family: s.want.family, Node: s.host.name, Wanted: s.want.n, Found: s.want.n - s.need,
		Skipped: s.sel.Skipped, Limit: s.atCap, Strict: s.v.config.StrictAffinity,
		NoClaims: !s.v.config.AutoAllocateBlocks, causes: []error{ErrExhausted}, block: s.ensured != nil,
	}
	_, e.Used = s.cap(netip.Prefix{})
	for _, p := range s.sel.Pools {
		e.Pools = append(e.Pools, s.report(p, e))
	}
	e.closed = len(s.closed) > 0
	for name := range s.closed {
		e.Skipped = append(e.Skipped, pool.Skipped{Pool: name, Reason: "it was closed or changed while an address was searched"})
	}
	switch {
	case e.Limit > 0:
		e.causes = append(e.causes, ErrBlockLimit)
	case e.Strict && e.hasOthers:
		e.causes = append(e.causes, ErrStrictAffinity)
	}
	return e
}

func (s *search) report(p pool.Pool, e *ExhaustedError) PoolReport {
	u := s.v.unassignableIn(p)
	r := PoolReport{Name: p.Name, CIDR: p.Spec.CIDR.String(), Reserved: u.Count(p.Spec.CIDR).String()}
	for _, seen := range s.seen {
		if seen.Value.Pool != p.Name {
			continue
		}
		b, _ := seen.Value.Collect(s.c.clock.Now(), s.v.config.IPCooldown)
		free, cooling := 0, b.Counts().Cooling
		for a := range b.Free() {
			if !u.Contains(a) {
				free++
				e.hasOthers = true
			}
		}
		if free+cooling > 0 {
			r.Blocks++
		}
		r.Free, r.Cooling = r.Free+free, r.Cooling+cooling
		if at, ok := b.NextFree(s.v.config.IPCooldown); ok && (e.NextFree.IsZero() || at.Before(e.NextFree)) {
			e.NextFree = at
		}
		if err := b.Giving(); err != nil {
			e.Skipped = append(e.Skipped, pool.Skipped{Pool: p.Name, Reason: err.Error()})
		}
	}
	return r
}

// refusal turns what a block says of a given address into a caller-facing error
// that says who has it.
func (s *search) refusal(b block.Block, a netip.Addr, err error) error {
	slot, _ := b.Slot(a)
	who := string(slot.Handle) + string(slot.LastHandle)
	if slot.Active.Pod != "" {
		who = fmt.Sprintf("pod %s/%s", slot.Active.Namespace, slot.Active.Pod)
	}
	switch {
	case errors.Is(err, block.ErrInUse) && slot.Unknown():
		return fmt.Errorf("%w by an owner that cannot be read (see \"allod-agent check\")", ErrAddressInUse)
	case errors.Is(err, block.ErrInUse):
		return fmt.Errorf("%w by %s on node %s, interface %s of container %q", ErrAddressInUse,
			who, slot.Active.Node, slot.Active.IfName, slot.Active.ContainerID)
	case errors.Is(err, block.ErrCooling):
		return fmt.Errorf("%w until %s: released by %s (ipCooldownSeconds)", ErrAddressCooling,
			slot.Released.Add(s.v.config.IPCooldown).Format(time.RFC3339), who)
	}
	return err
}
