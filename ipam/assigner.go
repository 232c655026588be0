// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// assigner serves one request: what it is decided on, and what was taken so far.
type assigner struct {
	c    *Client
	v    *view
	host *hostView
	r    AutoAssignRequest
	kept []Assignment // held before the request
	got  []Assignment // taken by the request
	done []*taking    // what took them; fail undoes it
	// known are the affinities of every owner, read when a claim needs them.
	known  []affinityEntry
	listed bool
	// unsure are takings whose write has an unknown outcome; fail fences them.
	unsure []*taking
	// strays are takings whose creation of a block was lost and met another's block
	// then. It lands if that block is deleted; see collectStrays.
	strays []*taking
	// moved: an affinity was not what this request had seen of it, see search.stands.
	moved bool
	// ensured, unless nil, takes the block of each family: a block is wanted, and
	// nothing from it; see EnsureBlock.
	ensured map[pool.Family]netip.Prefix
}

// newAssigner reads what a request is decided on. served says of what is wanted of a
// family whether it will hardly take a claim of another block.
func (c *Client) newAssigner(ctx context.Context, r AutoAssignRequest, served func(*assigner, want) bool) (*assigner, error) {
	v, err := c.view(ctx)
	if err != nil {
		return nil, err
	}
	host, err := c.hostBlocks(ctx, r.Host.Name)
	if err != nil {
		return nil, err
	}
	r.Owner.Node = cmp.Or(r.Owner.Node, r.Host.Name) // it is what the host's blocks are found by
	a := &assigner{c: c, host: host, r: r}
	a.use(v)
	return a, a.readClaims(ctx, served)
}

// noClaim is for requests that read what others have when they need it, if at all.
func noClaim(*assigner, want) bool { return true }

// roomFor reports whether a block of the host may have room for what is wanted.
func (a *assigner) roomFor(w want) bool {
	return slices.ContainsFunc(a.host.own(w.family), func(e blockEntry) bool {
		n := e.Value.Counts()
		return n.Free+n.Cooling > 0 && e.Value.Giving() == nil
	})
}

// canClaim reports whether a claim for w is possible, as far as can be said before the
// claims are read.
func (a *assigner) canClaim(w want) bool {
	return a.v.config.AutoAllocateBlocks && len(a.host.own(w.family)) < a.limit()
}

// readClaims reads the affinities of the host, or, when a claim will need to know what
// others have, those of everybody at once.
func (a *assigner) readClaims(ctx context.Context, served func(*assigner, want) bool) error {
	q := datastore.Query{}
	if !slices.ContainsFunc(a.r.wants(), func(w want) bool { return w.n > 0 && !served(a, w) && a.canClaim(w) }) {
		q.Owner = a.host.affinity()
	}
	list, err := a.c.store.Affinities.List(ctx, q)
	if err != nil {
		return fmt.Errorf("list affinities for node %s: %w", a.host.name, err)
	}
	if q.Owner.IsZero() {
		a.known, a.listed = list, true
	}
	for _, e := range list {
		if e.Key.Owner == a.host.affinity() {
			a.host.affinities = append(a.host.affinities, e)
		}
	}
	return nil
}

// refresh reads what the operators have configured again, consistently: what a view
// of a moment ago lacks is not absent (INV-10).
func (a *assigner) refresh(ctx context.Context) error {
	v, err := a.c.viewOf(ctx, datastore.Query{})
	if err == nil {
		v.live = true
		a.use(v)
	}
	return err
}

// use decides on v from now on. A host that reserves ordinals never borrows,
// whatever is configured.
func (a *assigner) use(v *view) {
	if a.r.reserves() {
		v.config.StrictAffinity = true
	}
	a.v = v
}

func (a *assigner) assigned() Assigned {
	var out Assigned
	for _, g := range slices.Concat(a.kept, a.got) {
		if pool.FamilyOf(g.Addr) == pool.V4 {
			out.V4 = append(out.V4, g)
		} else {
			out.V6 = append(out.V6, g)
		}
	}
	return out
}
