// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// IPsByHandle returns every address of a handle, in address order. A node narrows
// the search to the blocks that node has to do with; "" searches all. Nothing
// there is an empty answer, concluded from a consistent read.
func (c *Client) IPsByHandle(ctx context.Context, h block.HandleID, node string) ([]Assignment, error) {
	return c.assignmentsWhere(ctx, c.of(node), func(s block.Slot) bool { return s.Handle == h })
}

// AttachmentIPs returns the addresses one interface of a sandbox holds on a node.
// It never allocates (case R11).
func (c *Client) AttachmentIPs(ctx context.Context, a block.Attachment, node string) ([]Assignment, error) {
	return c.assignmentsWhere(ctx, c.of(node), func(s block.Slot) bool { return s.Holds(a) })
}

func (c *Client) assignmentsWhere(
	ctx context.Context, q datastore.Query, match func(block.Slot) bool,
) ([]Assignment, error) {
	list, err := c.store.Blocks.List(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list blocks: %w", err)
	}
	var out []Assignment
	for _, e := range list {
		for a, s := range e.Value.All() {
			if s.State == block.Allocated && !s.Unknown() && match(s) {
				out = append(out, Assignment{Addr: a, Block: e.Key, BlockUID: e.UID, Seq: s.Seq})
			}
		}
	}
	return out, nil
}

// blockOf returns the block that holds addr and the pool that contains it, and what
// was read for it. That no pool does is not concluded from a list of the past
// (INV-10).
func (c *Client) blockOf(ctx context.Context, addr netip.Addr) (v *view, in pool.Pool, cidr netip.Prefix, err error) {
	for _, q := range []datastore.Query{{MayBeStale: true}, {}} {
		if v, err = c.viewOf(ctx, q); err != nil {
			return nil, pool.Pool{}, netip.Prefix{}, err
		}
		if in, cidr, err = v.blockOf(addr); err == nil {
			break
		}
	}
	return v, in, cidr, err
}

// Attributes are what is recorded of one address.
type Attributes struct {
	block.Slot
	Block    netip.Prefix
	BlockUID string
}

// AssignmentAttributes returns who holds addr, or who last held it while it cools
// down. ErrNotAllocated when it is free, ErrNotInPool when no pool contains it.
func (c *Client) AssignmentAttributes(ctx context.Context, addr netip.Addr) (Attributes, error) {
	_, _, cidr, err := c.blockOf(ctx, addr)
	if err != nil {
		return Attributes{}, fmt.Errorf("attributes of %s: %w", addr, err)
	}
	e, err := c.store.Blocks.Get(ctx, cidr)
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		return Attributes{}, fmt.Errorf("read block %s: %w", cidr, err)
	}
	s, ok := e.Value.Slot(addr)
	if err != nil || !ok {
		return Attributes{}, fmt.Errorf("attributes of %s: %w", addr, ErrNotAllocated)
	}
	return Attributes{Slot: s, Block: e.Key, BlockUID: e.UID}, nil
}
