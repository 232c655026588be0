// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/pool"
)

// EnsureBlockRequest asks for a block of the host's own in each family named.
type EnsureBlockRequest struct {
	V4, V6 bool
	Host   pool.Node
	Use    pool.Use // default: UseWorkload
	// The rest is as in AutoAssignRequest.
	Pools4, Pools6       []string
	Reserved4, Reserved6 block.HostReserved
	MaxBlocksPerHost     int
	HostLabels           func(context.Context) (map[string]string, error)
}

func (r EnsureBlockRequest) request() (AutoAssignRequest, error) {
	out := AutoAssignRequest{
		Host: r.Host, Use: cmp.Or(r.Use, pool.UseWorkload), Pools4: r.Pools4, Pools6: r.Pools6,
		Reserved4: r.Reserved4, Reserved6: r.Reserved6, MaxBlocksPerHost: r.MaxBlocksPerHost,
		HostLabels: r.HostLabels,
	}
	switch {
	case !r.V4 && !r.V6:
		return out, fmt.Errorf("%w: a block of neither family is asked for", ErrInvalid)
	case r.Host.Name == "":
		return out, fmt.Errorf("%w: no node name", ErrInvalid)
	}
	if r.V4 {
		out.Num4 = 1
	}
	if r.V6 {
		out.Num6 = 1
	}
	return out, out.validateReserved()
}

// Ensured are the blocks of one EnsureBlock; zero for a family not asked for.
type Ensured struct{ V4, V6 netip.Prefix }

// EnsureBlock makes sure that the host has a block of its own in each family asked
// for, with what it reserves of it, and assigns nothing. A block without a free
// address will do; one in which another owner holds a reserved ordinal will not. It
// claims as AutoAssign does and never borrows. Blocks claimed before a later family
// failed stay claimed. Repeated, it writes nothing. Errors as for AutoAssign.
func (c *Client) EnsureBlock(ctx context.Context, r EnsureBlockRequest) (Ensured, error) {
	req, err := r.request()
	if err != nil {
		return Ensured{}, err
	}
	a, err := c.newAssigner(ctx, req, func(a *assigner, w want) bool { return len(a.host.own(w.family)) > 0 })
	if err != nil {
		return Ensured{}, err
	}
	a.ensured = make(map[pool.Family]netip.Prefix)
	if err := a.repair(ctx); err != nil {
		return Ensured{}, err
	}
	for _, w := range req.wants() {
		if err := a.assign(ctx, w); err != nil {
			return Ensured{}, fmt.Errorf("ensure block: %w", a.fail(ctx, err))
		}
	}
	return Ensured{V4: a.ensured[pool.V4], V6: a.ensured[pool.V6]}, nil
}
