// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

// SetOwner changes who holds an allocated address, if both its owners are what the
// caller saw: p must name the sequence, which stands for both, or the active and the
// alternate owner. The allocation gets a new sequence (INV-15), so that what was
// planned before misses. An allocation that is as u asks already is success and
// writes nothing. ErrStale when it is no longer what the caller saw or is not
// allocated: look again. ErrInvalid, ErrNotInPool, ErrContention, ErrUnknownOutcome.
func (c *Client) SetOwner(
	ctx context.Context, addr netip.Addr, u block.OwnerUpdate, p block.OwnerPrecondition,
) (Assignment, error) {
	if err := validateOwner(u, p); err != nil {
		return Assignment{}, fmt.Errorf("set owner of %s: %w", addr, err)
	}
	v, in, cidr, err := c.blockOf(ctx, addr)
	if err != nil {
		return Assignment{}, fmt.Errorf("set owner of %s: %w", addr, err)
	}
	var seq uint64
	e, err := update(ctx, c.backoff, c.store.Blocks, cidr, nil, func(e blockEntry) (block.Block, bool, error) {
		if s, ok := e.Value.Slot(addr); ok && isAsked(s, u, p) {
			seq = s.Seq
			return e.Value, false, nil
		}
		b, _ := e.Value.Collect(c.clock.Now(), v.config.IPCooldown)
		next, got, err := b.SetOwner(addr, u, p, c.clock.Now())
		if err != nil {
			return e.Value, false, err
		}
		seq = got.Seq
		return v.label(next, in), true, e.Value.Writable()
	})
	if errors.Is(err, datastore.ErrNotFound) {
		err = fmt.Errorf("block %s does not exist: %w", cidr, block.ErrStale)
	}
	if errors.Is(err, block.ErrStale) {
		err = fmt.Errorf("%w: %w", ErrStale, err)
	}
	if err != nil {
		return Assignment{}, fmt.Errorf("set owner of %s: %w", addr, err)
	}
	return Assignment{Addr: addr, Block: e.Key, BlockUID: e.UID, Seq: seq, Pool: in}, nil
}

func validateOwner(u block.OwnerUpdate, p block.OwnerPrecondition) error {
	switch {
	case u == block.OwnerUpdate{}:
		return fmt.Errorf("%w: nothing to change", ErrInvalid)
	case u.Handle != nil && *u.Handle == "":
		return fmt.Errorf("%w: an allocation without a handle has no owner; release it instead", ErrInvalid)
	case p.Seq == 0 && (p.Active == nil || p.Alternate == nil):
		return fmt.Errorf("%w: the precondition names neither the sequence nor both owners", ErrInvalid)
	}
	return nil
}

// isAsked reports whether s is as u asks, and in what u leaves alone as p demands.
func isAsked(s block.Slot, u block.OwnerUpdate, p block.OwnerPrecondition) bool {
	if s.State != block.Allocated || s.Unknown() {
		return false
	}
	handle := p.Handle == "" || s.Handle == p.Handle
	if u.Handle != nil {
		handle = s.Handle == *u.Handle
	}
	return handle && isOwner(s.Active, u.Active, p.Active) && isOwner(s.Alternate, u.Alternate, p.Alternate)
}

func isOwner(have block.Owner, want, before *block.Owner) bool {
	if want == nil {
		want = before
	}
	return want == nil || have == *want
}
