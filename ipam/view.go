// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// view is what the operators have configured, read once per request. It is never
// written to the store (INV-12).
type view struct {
	config       datastore.Config
	pools        []pool.Pool
	reservations []pool.Reservation
	live         bool                         // read consistently
	unassignable map[string]pool.Unassignable // by pool name, made on first use
}

// view may be of a moment ago; what it lacks is not absent (INV-10).
func (c *Client) view(ctx context.Context) (*view, error) {
	return c.viewOf(ctx, datastore.Query{MayBeStale: true})
}

func (c *Client) viewOf(ctx context.Context, q datastore.Query) (*view, error) {
	config, err := c.Config(ctx)
	if err != nil {
		return nil, err
	}
	v := &view{config: config, unassignable: make(map[string]pool.Unassignable)}
	pools, err := c.store.Pools.List(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list IP pools: %w", err)
	}
	for _, e := range pools {
		v.pools = append(v.pools, e.Value)
	}
	// Of overlapping pools the one that hands out, or has, is the one that blocks and
	// addresses are looked up in (case D10).
	slices.SortStableFunc(v.pools, func(x, y pool.Pool) int { return cmp.Compare(precedence(x), precedence(y)) })
	reservations, err := c.store.Reservations.List(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list IP reservations: %w", err)
	}
	for _, e := range reservations {
		v.reservations = append(v.reservations, e.Value)
	}
	return v, nil
}

func precedence(p pool.Pool) int {
	switch {
	case p.Status.Allocatable:
		return 0
	case p.Status.Finalizer:
		return 1
	}
	return 2
}

// unassignableIn is the one arithmetic of what automatic assignment may not hand
// out (INV-13).
func (v *view) unassignableIn(p pool.Pool) pool.Unassignable {
	u, ok := v.unassignable[p.Name]
	if !ok {
		u = pool.NewUnassignable(p, v.reservations)
		v.unassignable[p.Name] = u
	}
	return u
}

// poolOf returns the pool that contains cidr. ok is false when none does.
func (v *view) poolOf(cidr netip.Prefix) (p pool.Pool, ok bool) {
	for _, p := range v.pools {
		if p.Spec.CIDR.Contains(cidr.Addr()) && p.Spec.CIDR.Bits() <= cidr.Bits() {
			return p, true
		}
	}
	return pool.Pool{}, false
}

// label computes what b is found by.
func (v *view) label(b block.Block, p pool.Pool) block.Block {
	u := v.unassignableIn(p)
	return b.Relabel(p.Name, func(a netip.Addr) bool { return !u.Contains(a) })
}

// hostView is what one host holds: every block with its affinity or one of its
// allocations (with a sole host: every block), and its affinities. It is consistent, so that what is missing from
// it is absent (INV-10).
type hostView struct {
	name       string
	blocks     []blockEntry
	affinities []affinityEntry
}

func (c *Client) hostView(ctx context.Context, name string) (*hostView, error) {
	h, err := c.hostBlocks(ctx, name)
	if err != nil {
		return nil, err
	}
	h.affinities, err = c.store.Affinities.List(ctx, datastore.Query{Owner: h.affinity()})
	if err != nil {
		return nil, fmt.Errorf("list affinities of node %s: %w", name, err)
	}
	return h, nil
}

// hostBlocks is a host's view without its affinities.
func (c *Client) hostBlocks(ctx context.Context, name string) (*hostView, error) {
	blocks, err := c.store.Blocks.List(ctx, c.of(name))
	if err != nil {
		return nil, fmt.Errorf("list blocks of node %s: %w", name, err)
	}
	return &hostView{name: name, blocks: blocks}, nil
}

// own returns the blocks of one family that name the host.
func (h *hostView) own(f pool.Family) []blockEntry {
	var out []blockEntry
	for _, e := range h.blocks {
		if e.Value.Affinity == h.affinity() && pool.FamilyOf(e.Key.Addr()) == f {
			out = append(out, e)
		}
	}
	return out
}

func (h *hostView) affinity() block.Affinity { return block.Host(h.name) }

func (h *hostView) key(cidr netip.Prefix) datastore.AffinityKey {
	return datastore.AffinityKey{Owner: h.affinity(), CIDR: cidr}
}

// block returns the index of cidr in h.blocks, or -1.
func (h *hostView) block(cidr netip.Prefix) int {
	return slices.IndexFunc(h.blocks, func(e blockEntry) bool { return e.Key == cidr })
}

// claim returns the index of the affinity for cidr in h.affinities, or -1.
func (h *hostView) claim(cidr netip.Prefix) int {
	return slices.IndexFunc(h.affinities, func(e affinityEntry) bool { return e.Key.CIDR == cidr })
}

// has reports whether the host has cidr for certain: block and affinity say so.
func (h *hostView) has(cidr netip.Prefix) bool {
	at, claim := h.block(cidr), h.claim(cidr)
	return at >= 0 && h.blocks[at].Value.Affinity == h.affinity() &&
		claim >= 0 && h.affinities[claim].Value.State == datastore.Confirmed
}

// saw replaces what is known of one block by what was just read or written.
func (h *hostView) saw(e blockEntry) {
	if i := h.block(e.Key); i >= 0 {
		h.blocks[i] = e
		return
	}
	h.blocks = append(h.blocks, e)
}

// forget drops a block that is gone.
func (h *hostView) forget(cidr netip.Prefix) {
	h.blocks = slices.DeleteFunc(h.blocks, func(e blockEntry) bool { return e.Key == cidr })
}

// sawClaim does the same for an affinity.
func (h *hostView) sawClaim(e affinityEntry) {
	if i := h.claim(e.Key.CIDR); i >= 0 {
		h.affinities[i] = e
		return
	}
	h.affinities = append(h.affinities, e)
}

func (h *hostView) dropClaim(cidr netip.Prefix) {
	h.affinities = slices.DeleteFunc(h.affinities, func(e affinityEntry) bool { return e.Key.CIDR == cidr })
}

// Config returns the configuration that holds: the stored one, or the defaults.
// It never writes (INV-12).
func (c *Client) Config(ctx context.Context) (datastore.Config, error) {
	e, err := c.store.Config.Get(ctx, datastore.DefaultConfig)
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		return datastore.ConfigDefaults(), nil
	case err != nil:
		return datastore.Config{}, fmt.Errorf("read IPAM configuration %q: %w", datastore.DefaultConfig, err)
	}
	return e.Value, nil
}
