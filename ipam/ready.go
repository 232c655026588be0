// SPDX-License-Identifier: Apache-2.0

package ipam

import "context"

// Ready returns why a request like r could not be served, whoever makes it: the
// store or a label cannot be read, or no pool of a family that r wants may serve it (without
// counts: of either family). Namespace selectors are left out, and how much is left
// is not looked at.
func (c *Client) Ready(ctx context.Context, r AutoAssignRequest) error {
	v, err := c.view(ctx)
	if err != nil {
		return err
	}
	for i := range v.pools {
		v.pools[i].Spec.NamespaceSelector = "" // it depends on the pod
	}
	a := &assigner{c: c, v: v, r: r, host: &hostView{name: r.Host.Name}}
	either := r.Num4+r.Num6 == 0
	var refused error
	for _, w := range r.wants() {
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
