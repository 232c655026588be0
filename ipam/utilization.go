// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// Utilization is what is used of the address space.
type Utilization struct {
	Pools []PoolUtilization // in the order asked for, else by name
	// Orphans are the blocks that no pool contains: nothing more is handed out of
	// them, so what is not in use is Reserved. Empty when pools were named.
	Orphans []BlockUtilization
}

// PoolUtilization counts the addresses of one pool.
type PoolUtilization struct {
	Name string
	CIDR netip.Prefix
	pool.Usage
	Blocks []BlockUtilization // by address
}

// BlockUtilization counts the addresses of one block.
type BlockUtilization struct {
	CIDR     netip.Prefix
	Affinity block.Affinity
	pool.Usage
}

// Utilization counts the addresses of the pools named, by name or CIDR; none named
// means all, and then blocks of no pool, of either family, are reported too. What an
// address counts as is decided by pool.UsageOf alone (INV-13); one whose cooldown
// has passed is available. It reads every block, and never writes. ErrNoPool for a
// name that is no pool's.
func (c *Client) Utilization(ctx context.Context, pools ...string) (Utilization, error) {
	v, err := c.viewOf(ctx, datastore.Query{}) // what it lacks is told as absent (INV-10)
	if err != nil {
		return Utilization{}, err
	}
	asked, err := v.allNamed(pools)
	if err != nil {
		return Utilization{}, fmt.Errorf("utilization: %w", err)
	}
	list, err := c.store.Blocks.List(ctx, datastore.Query{})
	if err != nil {
		return Utilization{}, fmt.Errorf("list blocks: %w", err)
	}
	members := make(map[string][]block.Block) // by pool; "" has the orphans
	for _, e := range list {
		b, _ := e.Value.Collect(c.clock.Now(), v.config.IPCooldown)
		p, _ := v.poolOfBlock(b)
		members[p.Name] = append(members[p.Name], b)
	}
	var out Utilization
	for _, p := range asked {
		out.Pools = append(out.Pools, v.utilization(p, members[p.Name]))
	}
	if len(pools) == 0 {
		for _, b := range members[""] {
			out.Orphans = append(out.Orphans, utilizationOf(b, closedBlock(b.CIDR)))
		}
	}
	return out, nil
}

func (v *view) utilization(p pool.Pool, blocks []block.Block) PoolUtilization {
	u := v.unassignableIn(p)
	out := PoolUtilization{Name: p.Name, CIDR: p.Spec.CIDR}
	var allocated, cooling []netip.Addr
	for _, b := range blocks {
		out.Blocks = append(out.Blocks, utilizationOf(b, u))
		inUse, cold := addressesOf(b)
		allocated, cooling = append(allocated, inUse...), append(cooling, cold...)
	}
	out.Usage = pool.UsageOf(p.Spec.CIDR, u, allocated, cooling)
	return out
}

func utilizationOf(b block.Block, u pool.Unassignable) BlockUtilization {
	allocated, cooling := addressesOf(b)
	return BlockUtilization{CIDR: b.CIDR, Affinity: b.Affinity, Usage: pool.UsageOf(b.CIDR, u, allocated, cooling)}
}

// closedBlock is the arithmetic of a block out of which nothing is handed.
func closedBlock(cidr netip.Prefix) pool.Unassignable {
	return pool.NewUnassignable(pool.Pool{Spec: pool.Spec{CIDR: cidr, BlockSize: cidr.Bits()}},
		[]pool.Reservation{{CIDRs: []netip.Prefix{cidr}}})
}

func addressesOf(b block.Block) (allocated, cooling []netip.Addr) {
	for a, s := range b.All() {
		if s.State == block.Cooling {
			cooling = append(cooling, a)
		} else {
			allocated = append(allocated, a)
		}
	}
	return allocated, cooling
}

// NumReservedIPsInCIDR returns how many addresses of cidr automatic assignment never
// hands out: those that an IPReservation covers, in a pool or not, and the gateways
// of pools (INV-13). ErrInvalid when cidr is not one.
func (c *Client) NumReservedIPsInCIDR(ctx context.Context, cidr netip.Prefix) (*big.Int, error) {
	if !cidr.IsValid() || cidr.Addr().Is4In6() {
		return nil, fmt.Errorf("reserved addresses of %v: %w: not a CIDR", cidr, ErrInvalid)
	}
	v, err := c.viewOf(ctx, datastore.Query{})
	if err != nil {
		return nil, err
	}
	cidr = cidr.Masked()
	none := pool.Pool{Spec: pool.Spec{CIDR: cidr, BlockSize: cidr.Bits()}}
	reserved := pool.NewUnassignable(none, v.reservations)
	total := reserved.Count(cidr)
	var counted []netip.Prefix
	for _, p := range v.pools {
		if slices.ContainsFunc(counted, p.Spec.CIDR.Overlaps) {
			continue // a pool that overlaps one before it hands nothing out
		}
		counted = append(counted, p.Spec.CIDR)
		// The gateways, less those that are reserved besides.
		gateways := v.unassignableIn(p).Count(cidr)
		total.Add(total, gateways.Sub(gateways, pool.NewUnassignable(withoutGateway(p), v.reservations).Count(cidr)))
	}
	return total, nil
}

func withoutGateway(p pool.Pool) pool.Pool {
	p.Spec.Gateway = pool.Gateway{}
	return p
}

// named returns the pool of a name or CIDR.
func (v *view) named(want string) (pool.Pool, error) {
	cidr, err := netip.ParsePrefix(want)
	for _, p := range v.pools {
		if p.Name == want || err == nil && p.Spec.CIDR == cidr.Masked() {
			return p, nil
		}
	}
	return pool.Pool{}, fmt.Errorf("%w: there is no IPPool with the name or CIDR %q", ErrNoPool, want)
}

// allNamed returns the pools of the names or CIDRs, each once; all, by name, for none.
func (v *view) allNamed(wants []string) ([]pool.Pool, error) {
	if len(wants) == 0 {
		return slices.SortedFunc(slices.Values(v.pools), func(x, y pool.Pool) int { return strings.Compare(x.Name, y.Name) }), nil
	}
	var out []pool.Pool
	for _, w := range wants {
		p, err := v.named(w)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, func(o pool.Pool) bool { return o.Name == p.Name }) {
			out = append(out, p)
		}
	}
	return out, nil
}

// poolOfBlock returns the pool that b counts in: the one it is labelled with, if that
// contains it, else any that does.
func (v *view) poolOfBlock(b block.Block) (pool.Pool, bool) {
	for _, p := range v.pools {
		if p.Name == b.Pool && p.Spec.CIDR.Contains(b.CIDR.Addr()) && p.Spec.CIDR.Bits() <= b.CIDR.Bits() {
			return p, true
		}
	}
	return v.poolOf(b.CIDR)
}
