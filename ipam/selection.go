// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"fmt"

	"github.com/allod/allod/ipam/pool"
)

// selection returns the pools that may serve w. Which may is pool.Select's to say;
// here it is given the labels it needs, looked up once for a request.
func (a *assigner) selection(ctx context.Context, w want) (pool.Selection, error) {
	for {
		sel := a.selected(w)
		var err error
		switch {
		case sel.NeedNode && a.r.HostLabels != nil:
			err = lookUp(ctx, &a.r.Host.Labels, a.r.HostLabels, "node", a.r.Host.Name)
		case sel.NeedNamespace && a.r.NamespaceLabels != nil:
			err = lookUp(ctx, &a.r.Namespace.Labels, a.r.NamespaceLabels, "namespace", a.r.Namespace.Name)
		default:
			return sel, nil
		}
		if err != nil {
			return pool.Selection{}, err
		}
	}
}

// selected is selection by what is known already.
func (a *assigner) selected(w want) pool.Selection {
	reserved := a.r.reserved(w.family)
	return pool.Select(a.v.pools, pool.Request{
		Family: w.family, Requested: w.pools, Use: a.r.Use, Node: a.r.Host, Namespace: a.r.Namespace,
		NeedGateway: a.r.NeedGateway, BlockMask: a.r.BlockMask,
		ReservedStart: reserved.StartOfBlock, ReservedEnd: reserved.EndOfBlock,
	})
}

// lookUp sets labels to what get says. An object without labels has known ones: none.
func lookUp(
	ctx context.Context, labels *map[string]string, get func(context.Context) (map[string]string, error), kind, name string,
) error {
	got, err := get(ctx)
	if err != nil {
		return fmt.Errorf("look up the labels of %s %s, which the selector of an IP pool needs: %w", kind, name, err)
	}
	if got == nil {
		got = map[string]string{}
	}
	*labels = got
	return nil
}
