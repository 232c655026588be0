// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

func windowsRequest(node, handle string, n int) AutoAssignRequest {
	r := auto(node, handle, n, 0)
	r.Reserved4 = windowsHost
	return r
}

// What a host reserves is written with the claim, never handed out, and recorded
// under the handle and type that mark it.
func TestAutoAssignReservesOrdinals(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", size(29))
	c, faults := w.process("p")
	got, err := c.AutoAssign(t.Context(), windowsRequest("node-a", "h", 5))
	if err != nil {
		t.Fatal(err)
	}
	if faults.Writes() != 3 {
		t.Errorf("%d writes, want the 3 of a claim: %v", faults.Writes(), faults.Ops())
	}
	want := []string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"}
	for i, a := range got.V4 {
		if a.Addr.String() != want[i] {
			t.Errorf("address %d is %s, want %s", i, a.Addr, want[i])
		}
	}
	b := w.block("10.0.0.0/29")
	for _, a := range []string{"10.0.0.0", "10.0.0.1", "10.0.0.7"} {
		s, ok := b.Slot(netip.MustParseAddr(a))
		if !ok || s.Type != block.WindowsReserved || s.Handle != "windows-reserved-ipam-handle" || s.Active.Node != "node-a" {
			t.Errorf("%s is %+v", a, s)
		}
	}
	w.create(w.c.ReleaseByHandle(t.Context(), "h", ""))
	if b := w.block("10.0.0.0/29"); b.Empty() {
		t.Error("the block is called empty while addresses cool")
	}
	w.create(w.c.CollectBlocks(t.Context(), nil, 0))
	if b := w.block("10.0.0.0/29"); !b.Empty() || w.reserved() != 3 {
		t.Errorf("empty %v with %d reserved, want true with 3", b.Empty(), w.reserved())
	}
	r := AssignIPRequest{AutoAssignRequest: windowsRequest("node-a", "h", 1), Addr: netip.MustParseAddr("10.0.0.1")}
	if _, err := w.c.AssignIP(t.Context(), r); !errors.Is(err, ErrAddressInUse) {
		t.Errorf("a reserved ordinal by name: %v", err)
	}
}

// Reserved ordinals force strictAffinity, whatever is configured.
func TestAutoAssignReservedIsStrict(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", size(29))
	w.mustAttach(pod("node-b", "u1", "c1"), 1, 0)
	_, err := w.c.AutoAssign(t.Context(), windowsRequest("node-a", "h", 1))
	if !errors.Is(err, ErrStrictAffinity) || !errors.Is(err, ErrExhausted) {
		t.Errorf("another host's block: %v", err)
	}
	if _, err := w.c.AutoAssign(t.Context(), auto("node-a", "h", 1, 0)); err != nil {
		t.Errorf("without reserved ordinals it borrows: %v", err)
	}
	given := AssignIPRequest{AutoAssignRequest: windowsRequest("node-a", "h2", 1), Addr: netip.MustParseAddr("10.0.0.5")}
	if _, err := w.c.AssignIP(t.Context(), given); !errors.Is(err, ErrStrictAffinity) {
		t.Errorf("a given address of another host's block: %v", err)
	}
}

func TestAutoAssignReservedSkipsSmallBlocks(t *testing.T) {
	w := newWorld(t)
	w.pool("small", "10.0.0.0/29", size(31))
	_, err := w.c.AutoAssign(t.Context(), windowsRequest("node-a", "h", 1))
	if !errors.Is(err, ErrNoPool) || !strings.Contains(err.Error(), "too small") {
		t.Fatalf("only a small pool: %v", err)
	}
	w.pool("wide", "10.0.1.0/28", size(28))
	got, err := w.c.AutoAssign(t.Context(), windowsRequest("node-a", "h", 1))
	if err != nil || got.V4[0].Pool.Name != "wide" {
		t.Errorf("beside a wide pool: %+v, %v", got, err)
	}
	bad := windowsRequest("node-a", "h", 1)
	bad.Reserved4.EndOfBlock = -1
	if _, err := w.c.AutoAssign(t.Context(), bad); !errors.Is(err, ErrInvalid) {
		t.Errorf("a negative number: %v", err)
	}
}

// A block of which reservations leave only the reserved ordinals is not claimed.
func TestAutoAssignReservedPassesOverCoveredBlocks(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(29))
	w.reserve("middle", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32")
	c, faults := w.process("p")
	got, err := c.AutoAssign(t.Context(), windowsRequest("node-a", "h", 1))
	if err != nil || got.V4[0].Block.String() != "10.0.0.8/29" || faults.Writes() != 3 {
		t.Errorf("%+v, %v after %d writes", got, err, faults.Writes())
	}
}

// An ordinal in other hands keeps the block from being claimed by a host that
// reserves it, and the host's own block from being enough for EnsureBlock.
func TestReservedOrdinalInUse(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(29))
	o := pod("node-a", "u1", "c1")
	if _, err := w.attach(w.c, with(request(o, 0, 0), "10.0.0.1")); err != nil {
		t.Fatal(err)
	}
	req := EnsureBlockRequest{V4: true, Host: pool.Node{Name: "node-a"}, Reserved4: windowsHost}
	got, err := w.c.EnsureBlock(t.Context(), req)
	if err != nil || got.V4.String() != "10.0.0.8/29" {
		t.Fatalf("%+v, %v", got, err)
	}
	w.create(nil, w.c.ReleaseHostAffinities(t.Context(), "node-a", false))
	if got, err := w.c.EnsureBlock(t.Context(), req); err != nil || got.V4.String() != "10.0.0.8/29" {
		t.Errorf("after the release: %+v, %v", got, err)
	}
	// In its own block the host gets the ordinals that are free, and no more of them
	// are handed out.
	w.create(w.c.AutoAssign(t.Context(), windowsRequest("node-a", "h", 5)))
	w.create(w.c.ReleaseByHandle(t.Context(), "h", ""))
	w.verify()
}

// The only block there is, without an owner and with a reserved ordinal in use by the
// host's own pod, is not claimed: the host could not have what it reserves.
func TestReservedOrdinalInUseKeepsTheBlock(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", size(29))
	o := pod("node-a", "u1", "c1")
	if _, err := w.attach(w.c, with(request(o, 0, 0), "10.0.0.1")); err != nil {
		t.Fatal(err)
	}
	w.releaseAffinity("node-a", "10.0.0.0/29")
	req := EnsureBlockRequest{V4: true, Host: pool.Node{Name: "node-a"}, Reserved4: windowsHost}
	if got, err := w.c.EnsureBlock(t.Context(), req); !errors.Is(err, ErrExhausted) {
		t.Errorf("%+v, %v", got, err)
	}
	if a := w.block("10.0.0.0/29").Affinity; !a.IsZero() || w.reserved() != 0 {
		t.Errorf("the block is of %q, %d reserved", a, w.reserved())
	}
	w.stray()
	w.mustDetach(o)
	if got, err := w.c.EnsureBlock(t.Context(), req); err != nil || w.reserved() != 3 {
		t.Errorf("after its DEL: %+v, %v", got, err)
	}
	w.verify()
}

// An empty block of a host that reserves ordinals is another's after a minute, like
// any empty block; what was reserved cools and comes back (INV-3).
func TestReclaimFromAHostThatReserves(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", size(29))
	w.config(func(c *datastore.Config) { c.StrictAffinity, c.IPCooldown = true, 10*time.Second })
	w.create(w.c.EnsureBlock(t.Context(), EnsureBlockRequest{V4: true, Host: pool.Node{Name: "node-a"}, Reserved4: windowsHost}))
	w.pass(59 * time.Second)
	o := pod("node-b", "u1", "c1")
	if _, err := w.attach(w.c, request(o, 5, 0)); !errors.Is(err, ErrExhausted) {
		t.Fatalf("after 59 s: %v", err)
	}
	w.pass(2 * time.Second)
	w.mustAttach(o, 5, 0)
	if c := w.block("10.0.0.0/29").Counts(); c != (block.Counts{Allocated: 5, Cooling: 3}) {
		t.Errorf("%+v", c)
	}
	w.pass(11 * time.Second)
	w.mustAttach(pod("node-b", "u2", "c2"), 3, 0)
	w.verify()
}

func TestEnsureBlock(t *testing.T) {
	node := pool.Node{Name: "node-a"}
	tests := []struct {
		name  string
		setup func(*world)
		r     EnsureBlockRequest
		want  error
		says  []string
	}{
		{"neither family", func(*world) {}, EnsureBlockRequest{Host: node}, ErrInvalid, nil},
		{"no node", func(*world) {}, EnsureBlockRequest{V4: true}, ErrInvalid, []string{"node name"}},
		{"no pool of the family", func(w *world) { w.pool("v4", "10.0.0.0/29", size(30)) }, EnsureBlockRequest{V6: true, Host: node}, ErrNoPool, []string{"IPv6"}},
		{"a full block will do", func(w *world) { w.pool("v4", "10.0.0.0/30", size(30)); w.mustAttach(pod("node-a", "u", "c"), 4, 0) }, EnsureBlockRequest{V4: true, Host: node}, nil, nil},
		{
			"never borrows", func(w *world) { w.pool("v4", "10.0.0.0/30", size(30)); w.mustAttach(pod("node-b", "u", "c"), 1, 0) },
			EnsureBlockRequest{V4: true, Host: node},
			ErrExhausted,
			[]string{"node-a wanted 1 IPv4 block of its own, found 0", "release the affinity"},
		},
		{"at the limit, of a pool asked for", func(w *world) {
			w.pool("v4", "10.0.0.0/29", size(30))
			w.config(func(c *datastore.Config) { c.MaxBlocksPerHost = 1 })
			w.mustAttach(pod("node-a", "u", "c"), 4, 0)
			w.reserve("r", "10.0.0.0/29")
		}, EnsureBlockRequest{V4: true, Host: node, Reserved4: windowsHost}, ErrBlockLimit, []string{"raise maxBlocksPerHost"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.setup(w)
			before := len(w.blocks())
			_, err := w.c.EnsureBlock(t.Context(), tt.r)
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
				t.Fatalf("%v, want %v", err, tt.want)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if n := len(w.blocks()); n != before {
				t.Errorf("%d blocks, were %d", n, before)
			}
			w.verify()
			w.stray()
		})
	}
}

// AssignIP: the uses of a pool bind a given address as they bind any, also where the
// pool is Manual or named.
func TestAssignIPAllowedUses(t *testing.T) {
	for _, mode := range []pool.AssignmentMode{pool.Automatic, pool.Manual} {
		for _, named := range []bool{false, true} {
			w := newWorld(t)
			w.pool("tunnels", "10.0.0.0/30", func(s *pool.Spec) {
				s.BlockSize, s.AllowedUses, s.AssignmentMode = 30, []pool.Use{pool.UseTunnel}, mode
			})
			for _, use := range []pool.Use{pool.UseWorkload, pool.UseLoadBalancer, pool.UseTunnel} {
				r := AssignIPRequest{AutoAssignRequest: auto("node-a", "lb-1", 1, 0), Addr: netip.MustParseAddr("10.0.0.2")}
				if r.Use = use; named {
					r.Pools4 = []string{"tunnels"}
				}
				got, err := w.c.AssignIP(t.Context(), r)
				switch allowed := use == pool.UseTunnel; {
				case allowed && (err != nil || got.Addr != r.Addr):
					t.Errorf("%s, named %v, use %s: %+v, %v", mode, named, use, got, err)
				case !allowed && (!errors.Is(err, ErrNoPool) || !strings.Contains(err.Error(), "allowedUses")):
					t.Errorf("%s, named %v, use %s: %v; want ErrNoPool that names allowedUses", mode, named, use, err)
				case !allowed && len(w.blocks()) != 0:
					t.Errorf("a refused use made a block")
				}
			}
		}
	}
}
