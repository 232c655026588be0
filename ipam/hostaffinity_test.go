// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/pool"
)

func prefixes(ss ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range ss {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestClaimAffinity(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(30))
	w.config(func(c *datastore.Config) { c.MaxBlocksPerHost = 1 }) // binds what a host claims by itself
	if _, err := w.attach(w.c, with(request(pod("node-b", "u1", "c1"), 0, 0), "10.0.0.5")); err != nil {
		t.Fatal(err)
	}
	node := pool.Node{Name: "node-a"}
	claimed, failed, err := w.c.ClaimAffinity(t.Context(), node, netip.MustParsePrefix("10.0.0.0/28"))
	if err != nil || !slices.Equal(claimed, prefixes("10.0.0.0/30", "10.0.0.8/30", "10.0.0.12/30")) ||
		!slices.Equal(failed, prefixes("10.0.0.4/30")) {
		t.Fatalf("claimed %v, failed %v, %v", claimed, failed, err)
	}
	w.claims()
	w.stray()
	w.verify()
	for _, cidr := range claimed {
		if b := w.block(cidr.String()); b.Pool != "v4" || b.Space != block.SpaceFree || b.Counts().Free != 4 {
			t.Errorf("block %s is %+v", cidr, b.Labels())
		}
	}
}

func TestClaimAffinityRefuses(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/8", size(26))
	w.pool("v6", "fd00::/48", size(122))
	w.pool("picky", "192.168.0.0/24", func(s *pool.Spec) {
		s.BlockSize, s.NodeSelector, s.NamespaceSelector, s.AllowedUses = 26, "zone == a", "team == x", []pool.Use{pool.UseWorkload}
	})
	node := pool.Node{Name: "node-a", Labels: map[string]string{"zone": "b"}}
	tests := []struct {
		name string
		node pool.Node
		cidr netip.Prefix
		want error
		says string
	}{
		{"no node", pool.Node{}, netip.MustParsePrefix("10.0.0.0/26"), ErrInvalid, "no node name"},
		{"no CIDR", node, netip.Prefix{}, ErrInvalid, "not a CIDR"},
		{"host bits", node, netip.MustParsePrefix("10.0.0.1/26"), ErrInvalid, "host bits"},
		{"no pool", node, netip.MustParsePrefix("172.16.0.0/26"), ErrNotInPool, "no IPPool contains"},
		{"wider than the pool", node, netip.MustParsePrefix("10.0.0.0/7").Masked(), ErrNotInPool, "no IPPool contains"},
		{"smaller than a block", node, netip.MustParsePrefix("10.0.0.0/27"), ErrInvalid, "smaller than a block of IP pool v4 (/26)"},
		{"too many", node, netip.MustParsePrefix("10.0.0.0/15"), ErrInvalid, "2^11 blocks of /26, at most 1024"},
		{"absurdly many", node, netip.MustParsePrefix("fd00::/48"), ErrInvalid, "2^74 blocks of /122"},
		{"the pool does not select the node", node, netip.MustParsePrefix("192.168.0.0/26"), ErrNoPool, "nodeSelector"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := w.c.ClaimAffinity(t.Context(), tt.node, tt.cidr)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %v that says %q", err, tt.want, tt.says)
			}
			if len(w.blocks()) != 0 {
				t.Error("it wrote")
			}
		})
	}
	node.Labels["zone"] = "a"
	if claimed, _, err := w.c.ClaimAffinity(t.Context(), node, netip.MustParsePrefix("192.168.0.0/25")); err != nil || len(claimed) != 2 {
		t.Errorf("a node that is selected: %v, %v", claimed, err)
	}
	if n := maxClaims; n > math.MaxUint16 {
		t.Errorf("%d blocks at once", n)
	}
}

// Case R14: one block that cannot be written does not keep the others from being
// claimed or released.
func TestAffinitiesTryAll(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(30))
	const bad = "10.0.0.4/30"
	c, faults := w.process("p")
	forbid := func(_ context.Context, op memstore.Op) error {
		if op.Write > 0 && op.Table == "blocks" && op.Key == bad {
			return errors.New("forbidden")
		}
		return nil
	}
	faults.Hook(forbid)
	node := pool.Node{Name: "node-a"}
	claimed, failed, err := c.ClaimAffinity(t.Context(), node, netip.MustParsePrefix("10.0.0.0/28"))
	if len(claimed) != 3 || !slices.Equal(failed, prefixes(bad)) || err == nil || !strings.Contains(err.Error(), bad) {
		t.Fatalf("claimed %v, failed %v, %v", claimed, failed, err)
	}
	faults.Hook(nil)
	if claimed, failed, err = c.ClaimAffinity(t.Context(), node, netip.MustParsePrefix("10.0.0.0/28")); len(claimed) != 4 {
		t.Fatalf("repeated: claimed %v, failed %v, %v", claimed, failed, err)
	}
	for name, release := range map[string]func() error{
		"host": func() error { return c.ReleaseHostAffinities(t.Context(), "node-a", true) },
		"pool": func() error { return c.ReleasePoolAffinities(t.Context(), "10.0.0.0/28") },
	} {
		faults.Hook(forbid)
		if err := release(); err == nil || !strings.Contains(err.Error(), bad) || strings.Contains(err.Error(), "10.0.0.8/30") {
			t.Errorf("%s: %v", name, err)
		}
		if es := w.blocks(); len(es) != 1 || es[0].Key.String() != bad {
			t.Errorf("%s: %d blocks are left", name, len(es))
		}
		faults.Hook(nil)
		w.claims()
	}
	w.create(nil, c.ReleaseHostAffinities(t.Context(), "node-a", true))
	w.stray()
	if len(w.blocks()) != 0 {
		t.Error("blocks are left")
	}
}

func TestReleaseHostAffinitiesMustBeEmpty(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(30))
	w.mustAttach(pod("node-a", "u1", "c1"), 5, 0) // two blocks
	_, _, err := w.c.ClaimAffinity(t.Context(), pool.Node{Name: "node-a"}, netip.MustParsePrefix("10.0.0.0/28"))
	w.create(nil, err)
	err = w.c.ReleaseHostAffinities(t.Context(), "node-a", true)
	if !errors.Is(err, ErrBlockNotEmpty) || strings.Count(err.Error(), ErrBlockNotEmpty.Error()) != 2 {
		t.Errorf("%v, want one ErrBlockNotEmpty for each of two blocks", err)
	}
	if n := len(w.blocks()); n != 2 {
		t.Errorf("%d blocks are left", n)
	}
	if err := w.c.ReleaseHostAffinities(t.Context(), "", true); !errors.Is(err, ErrInvalid) {
		t.Errorf("no node: %v", err)
	}
	w.claims()
	w.stray()
	w.verify()
}

// An affinity whose sequence no block of its CIDR has can be released all the same.
func TestReleaseAffinityWithForeignSequence(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	w.mustAttach(pod("node-a", "u1", "c1"), 1, 0)
	key := datastore.AffinityKey{Owner: block.Host("node-b"), CIDR: netip.MustParsePrefix("10.0.0.0/30")}
	w.create(w.mem.Store().Affinities.Create(t.Context(), key, datastore.Affinity{State: datastore.Confirmed, Pool: "v4", BlockSeq: math.MaxInt64}))
	w.releaseAffinity("node-b", "10.0.0.0/30")
	w.stray()
	w.claims()
	w.verify()
}

func TestReleasePoolAffinities(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", size(30))
	w.pool("other", "10.0.1.0/29", size(30))
	virtual := datastore.AffinityKey{Owner: block.Affinity{Type: block.VirtualAffinity, Name: "load-balancer"}, CIDR: netip.MustParsePrefix("10.0.0.4/30")}
	b, err := block.New(virtual.CIDR, virtual.Owner, 1, epoch)
	w.create(nil, err)
	w.create(w.mem.Store().Affinities.Create(t.Context(), virtual, datastore.Affinity{State: datastore.Confirmed, Pool: "v4", BlockSeq: 1}))
	w.create(w.mem.Store().Blocks.Create(t.Context(), virtual.CIDR, b.Relabel("v4", nil)))
	for _, addr := range []string{"10.0.0.1", "10.0.1.1"} {
		o := pod("node-a", addr, addr)
		if _, err := w.attach(w.c, with(request(o, 0, 0), addr)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.c.ReleasePoolAffinities(t.Context(), "nope"); !errors.Is(err, ErrNoPool) {
		t.Errorf("unknown pool: %v", err)
	}
	w.create(nil, w.c.ReleasePoolAffinities(t.Context(), "v4"))
	var left []string
	for _, e := range w.blocks() {
		left = append(left, e.Key.String()+" "+e.Value.Affinity.String())
	}
	if !slices.Equal(left, []string{"10.0.0.0/30 ", "10.0.1.0/30 host:node-a"}) {
		t.Errorf("blocks left: %q", left)
	}
	w.stray()
	w.verify()
}
