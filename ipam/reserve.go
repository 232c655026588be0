// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/pool"
)

func (r AutoAssignRequest) validateReserved() error {
	if err := errors.Join(r.Reserved4.Validate(), r.Reserved6.Validate()); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// reserves reports whether the host keeps ordinals of its blocks for itself.
func (r AutoAssignRequest) reserves() bool { return !r.Reserved4.IsZero() || !r.Reserved6.IsZero() }

func (r AutoAssignRequest) reserved(f pool.Family) block.HostReserved {
	if f == pool.V4 {
		return r.Reserved4
	}
	return r.Reserved6
}

// reserve gives node what it reserves of b, in the same write that claims or takes.
func (c *Client) reserve(b block.Block, h block.HostReserved, node string) (next block.Block, missing int) {
	if h.IsZero() {
		return b, 0
	}
	return b.Reserve(h, block.Request{Handle: WindowsHandle, Owner: block.Owner{Node: node}, Now: c.clock.Now()})
}

// canReserve reports whether every ordinal that the host reserves can be had in b.
func (s *search) canReserve(b block.Block) bool {
	b, _ = b.Collect(s.c.clock.Now(), s.v.config.IPCooldown)
	_, missing := s.c.reserve(b, s.r.reserved(s.want.family), s.host.name)
	return missing == 0
}

// hasRoom reports whether a new block would have an address beside those that the
// host reserves. pool.Select has skipped pools where none has; a block that an
// IPReservation covers in part may be without one all the same.
func (s *search) hasRoom(p pool.Pool, cidr netip.Prefix) bool {
	reserved := s.r.reserved(s.want.family)
	if reserved.IsZero() {
		return true
	}
	b, err := block.New(cidr, s.host.affinity(), 0, s.c.clock.Now())
	if err != nil {
		return false
	}
	b, _ = s.c.reserve(b, reserved, s.host.name)
	u := s.v.unassignableIn(p)
	for a := range b.Free() {
		if !u.Contains(a) {
			return true
		}
	}
	return false
}
