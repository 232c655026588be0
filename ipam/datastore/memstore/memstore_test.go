// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

func TestSmoke(t *testing.T) {
	s := New(Options{})
	st := s.Store()
	ctx := t.Context()
	p, err := st.Pools.Create(ctx, "default-v4", pool.Pool{Spec: pool.Spec{CIDR: netip.MustParsePrefix("10.64.0.0/24"), BlockSize: 29}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", p)
	b, err := block.New(netip.MustParsePrefix("10.64.0.64/29"), block.Host("node-a"), 5, time.Unix(100, 0))
	if err != nil {
		t.Fatal(err)
	}
	c, f := s.Client("a")
	f.Plan(1, LostReply)
	if _, err := c.Blocks.Create(ctx, b.CIDR, b.Relabel("default-v4", nil)); !errors.Is(err, ErrLost) {
		t.Fatal(err)
	}
	es, err := c.Blocks.List(ctx, datastore.Query{Node: "node-a", Pool: "default-v4", Space: []block.Space{block.SpaceFree}, Empty: true})
	t.Logf("%+v %v", es, err)
	if len(es) != 1 {
		t.Fatal("not found")
	}
	if err := st.Pools.Delete(ctx, p); err == nil {
		t.Fatal("deleted")
	} else {
		t.Log(err)
	}
	r, err := st.Reservations.Create(ctx, "r", pool.Reservation{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.64.0.64/29")}})
	t.Log(r, err)
	e, err := st.Blocks.Get(ctx, b.CIDR)
	t.Log(e.Value.Space, e.Rev, err)
}
