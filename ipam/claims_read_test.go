// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"testing"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// claimLists counts the lists of affinities by whose they are.
type claimLists struct {
	datastore.Table[datastore.AffinityKey, datastore.Affinity]
	own, all int
}

func (c *claimLists) List(ctx context.Context, q datastore.Query) ([]affinityEntry, error) {
	if q.Owner.IsZero() {
		c.all++
	} else {
		c.own++
	}
	return c.Table.List(ctx, q)
}

// Everybody's affinities are listed for a claim and for nothing else: there is one for
// each block of the cluster.
func TestEverybodysClaimsAreReadForAClaimOnly(t *testing.T) {
	held := pod("node-a", "held", "held")
	attach := func(r AttachRequest) func(*Client) error {
		return func(c *Client) error { _, err := c.Attach(t.Context(), r); return err }
	}
	one := attach(request(pod("node-a", "x", "x"), 1, 0))
	capped := request(pod("node-a", "x", "x"), 1, 0)
	capped.MaxBlocksPerHost = 1
	for name, tt := range map[string]struct {
		full     bool // the host's block has no room
		config   func(*datastore.Config)
		run      func(*Client) error
		own, all int
		err      error
	}{
		"room":                               {run: one, own: 1},
		"no room":                            {full: true, run: one, all: 1},
		"at the limit":                       {full: true, config: func(c *datastore.Config) { c.MaxBlocksPerHost = 1 }, run: one, own: 1},
		"at the request's limit":             {full: true, run: attach(capped), own: 1},
		"given":                              {full: true, run: attach(with(request(pod("node-a", "x", "x"), 0, 0), "10.0.0.9")), own: 1},
		"repeated":                           {full: true, run: attach(request(held, 1, 0)), own: 1},
		"a sandbox again":                    {full: true, run: attach(request(pod("node-a", "held", "new"), 1, 0)), own: 1},
		"a block is there":                   {full: true, run: func(c *Client) error { return ensure4(t, c, "node-a") }, own: 1},
		"no block is there":                  {run: func(c *Client) error { return ensure4(t, c, "node-x") }, all: 1},
		"no claims (exhaustion looks again)": {full: true, config: func(c *datastore.Config) { c.StrictAffinity, c.AutoAllocateBlocks = true, false }, run: one, own: 1, all: 1, err: ErrExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/28", size(30))
			w.create(w.attach(w.c, with(request(pod("node-b", "b", "b"), 0, 0), "10.0.0.8")))
			w.mustAttach(held, 1, 0)
			if tt.full {
				w.mustAttach(pod("node-a", "rest", "rest"), 3, 0)
			}
			if tt.config != nil {
				w.config(tt.config)
			}
			s := w.mem.Store()
			lists := &claimLists{Table: s.Affinities}
			s.Affinities = lists
			if err := tt.run(New(s, Options{Clock: w.clock})); !errors.Is(err, tt.err) {
				t.Error(err)
			}
			if lists.own != tt.own || lists.all != tt.all {
				t.Errorf("the host's were listed %d times, everybody's %d times; want %d and %d", lists.own, lists.all, tt.own, tt.all)
			}
		})
	}
}

func ensure4(t *testing.T, c *Client, node string) error {
	t.Helper()
	_, err := c.EnsureBlock(t.Context(), EnsureBlockRequest{V4: true, Host: pool.Node{Name: node}})
	return err
}
