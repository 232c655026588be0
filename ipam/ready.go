// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"fmt"

	"github.com/allod/allod/ipam/pool"
)

// Ready returns why no workload could be given an address now: the store cannot be
// read, or no pool of either family hands out. It does not look at what is left.
func (c *Client) Ready(ctx context.Context) error {
	v, err := c.view(ctx)
	if err != nil {
		return err
	}
	var skipped []pool.Skipped
	for _, p := range v.pools {
		// Asked for by name and without selectors: what is left are the reasons
		// that hold for every pod.
		p.Spec.NodeSelector, p.Spec.NamespaceSelector = "", ""
		sel := pool.Select([]pool.Pool{p}, pool.Request{Family: p.Family(), Requested: []string{p.Name}, Use: pool.UseWorkload})
		if len(sel.Pools) > 0 {
			return nil
		}
		skipped = append(skipped, sel.Skipped...)
	}
	if len(skipped) == 0 {
		return fmt.Errorf("%w: there is no IPPool", ErrNoPool)
	}
	return fmt.Errorf("%w: %v", ErrNoPool, skipped)
}
