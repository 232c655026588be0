// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
)

// Ready returns why a request like r could not be served, whoever makes it: the
// store or a label cannot be read, or no pool of a family that r wants may serve it (without
// counts: of either family). Namespace selectors are left out, and how much is left
// is not looked at.
func (c *Client) Ready(ctx context.Context, r AutoAssignRequest) error {
	v, err := c.view(ctx)
	if err != nil {
		return err
	}
	a := &assigner{c: c, v: v, r: r, host: &hostView{name: r.Host.Name}}
	err = a.ready(ctx)
	if errors.Is(err, ErrNoPool) { // not concluded from a list of the past (INV-10)
		if err := a.refresh(ctx); err != nil {
			return err
		}
		err = a.ready(ctx)
	}
	return err
}

func (a *assigner) ready(ctx context.Context) error {
	for i := range a.v.pools {
		a.v.pools[i].Spec.NamespaceSelector = "" // it depends on the pod
	}
	either := a.r.Num4+a.r.Num6 == 0
	var refused error
	for _, w := range a.r.wants() {
		if !either && w.n == 0 {
			continue
		}
		sel, err := a.selection(ctx, w)
		if err != nil {
			return err
		}
		s := &search{assigner: a, want: w, sel: sel}
		switch open := len(s.sel.Pools) > 0; {
		case open && either:
			return nil
		case !open:
			refused = s.noPool()
			if !either {
				return refused
			}
		}
	}
	return refused
}
