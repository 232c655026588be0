// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/pool"
)

// Case R3: on a full /30 the restarted sandbox gets its pod's address; the late DEL
// of the old container releases nothing (case S1, INV-8).
func TestAttachTakesOver(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	for _, i := range []string{"1", "2", "3", "4"} {
		w.mustAttach(pod("node-a", "u"+i, "c"+i), 1, 0)
	}
	old, restarted := pod("node-a", "u2", "c2"), pod("node-a", "u2", "c2-again")
	want := w.ledger[old.Attachment()]
	before, _ := w.block("10.0.0.0/30").Slot(want[0])
	delete(w.ledger, old.Attachment())

	if got := w.mustAttach(restarted, 1, 0); !slices.Equal(got, want) {
		t.Fatalf("got %v, want the old address %v", got, want)
	}
	after, _ := w.block("10.0.0.0/30").Slot(want[0])
	if after.Seq <= before.Seq {
		t.Errorf("sequence %d after %d: an owner change gets a new one (INV-15)", after.Seq, before.Seq)
	}
	w.mustDetach(old)
	w.verify()
}

func TestAttachTakesOverOnlyTheSamePod(t *testing.T) {
	base := pod("node-a", "u1", "c1")
	tests := map[string]func(*block.Owner){
		"case S1: same name, other UID": func(o *block.Owner) { o.PodUID = "u2"; o.Pod = base.Pod },
		"no UID":                        func(o *block.Owner) { o.PodUID = "" },
		"other network":                 func(o *block.Owner) { o.Network = "net2" },
		"other interface":               func(o *block.Owner) { o.IfName = "net1" },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/30", size(30))
			first := w.mustAttach(base, 1, 0)
			o := pod("node-a", "u1", "c2")
			change(&o)
			if second := w.mustAttach(o, 1, 0); second[0] == first[0] {
				t.Fatalf("%s went to a stranger", first[0])
			}
			w.verify()
		})
	}
}

// The old address is given back when the request changed: another pool, given
// addresses, fewer families.
func TestAttachOldAddressMustSatisfy(t *testing.T) {
	tests := map[string]struct {
		change func(*AttachRequest)
		want   string // prefix the new address is in
	}{
		"other pool":        {func(r *AttachRequest) { r.Pools4 = []string{"other"} }, "10.1.0.0/30"},
		"given address":     {func(r *AttachRequest) { r.Addrs = []netip.Addr{netip.MustParseAddr("10.1.0.2")} }, "10.1.0.2/32"},
		"other family only": {func(r *AttachRequest) { r.Num4, r.Num6 = 0, 1 }, "fd00::/124"},
	}
	for name, tt := range tests {
		for _, container := range []string{"c1", "c2"} { // repeated, and restarted
			t.Run(name+" "+container, func(t *testing.T) {
				w := newWorld(t)
				w.pool("first", "10.0.0.0/30", size(30))
				w.pool("other", "10.1.0.0/30", size(30))
				w.pool("v6", "fd00::/124", size(124))
				w.mustAttach(pod("node-a", "u1", "c1"), 1, 0)
				w.ledger = map[block.Attachment][]netip.Addr{}
				r := request(pod("node-a", "u1", container), 1, 0)
				tt.change(&r)
				got, err := w.attach(w.c, r)
				if err != nil || len(got) != 1 || !netip.MustParsePrefix(tt.want).Contains(got[0]) {
					t.Fatalf("got %v, %v; want one address in %s", got, err, tt.want)
				}
				w.verify()
			})
		}
	}
}

func TestAttachGivenAddresses(t *testing.T) {
	tests := []struct {
		name  string
		addrs []string
		setup func(w *world)
		want  error
		says  string
	}{
		{"both families in order", []string{"fd00::9", "10.0.0.9"}, nil, nil, ""},
		{"reserved: given all the same", []string{"10.0.0.6"}, func(w *world) { w.reserve("r", "10.0.0.6/32") }, nil, ""},
		{"Manual pool: naming the address is enough", []string{"10.9.0.1"}, nil, nil, ""},
		{"gateway", []string{"10.0.0.1"}, nil, ErrReserved, "gateway"},
		{"outside every pool", []string{"192.0.2.1"}, nil, ErrNotInPool, "IPPool"},
		{"not selected", []string{"10.8.0.1"}, nil, ErrNoPool, "spec.nodeSelector"},
		{"twice", []string{"10.0.0.9", "10.0.0.9"}, nil, ErrInvalid, "twice"},
		{"in use", []string{"10.0.0.9"}, func(w *world) {
			if _, err := w.attach(w.c, with(request(pod("node-b", "ub", "cb"), 0, 0), "10.0.0.9")); err != nil {
				w.t.Fatal(err)
			}
		}, ErrAddressInUse, "pod shop/pod-ub on node node-b"},
		{"INV-11: second is in use, first is undone", []string{"10.0.0.5", "10.0.0.9"}, func(w *world) {
			if _, err := w.attach(w.c, with(request(pod("node-b", "ub", "cb"), 0, 0), "10.0.0.9")); err != nil {
				w.t.Fatal(err)
			}
		}, ErrAddressInUse, "10.0.0.9"},
		{"cooling for another", []string{"10.0.0.9"}, func(w *world) {
			w.config(func(c *datastore.Config) { c.IPCooldown = 20 * time.Minute })
			o := pod("node-b", "ub", "cb")
			if _, err := w.attach(w.c, with(request(o, 0, 0), "10.0.0.9")); err != nil {
				w.t.Fatal(err)
			}
			w.mustDetach(o)
		}, ErrAddressCooling, "released"},
		{"strict, block of another host", []string{"10.0.0.9"}, func(w *world) {
			w.config(func(c *datastore.Config) { c.StrictAffinity = true })
			if _, err := w.attach(w.c, with(request(pod("node-b", "ub", "cb"), 0, 0), "10.0.0.10")); err != nil {
				w.t.Fatal(err)
			}
		}, ErrStrictAffinity, "host:node-b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/24", func(s *pool.Spec) {
				s.BlockSize = 29
				s.Gateway = pool.Gateway{Addr: netip.MustParseAddr("10.0.0.1")}
			})
			w.pool("v6", "fd00::/120", size(124))
			w.pool("manual", "10.9.0.0/28", func(s *pool.Spec) { s.BlockSize = 29; s.AssignmentMode = pool.Manual })
			w.pool("zone", "10.8.0.0/28", func(s *pool.Spec) { s.BlockSize = 29; s.NodeSelector = "zone=b" })
			if tt.setup != nil {
				tt.setup(w)
			}
			r := with(request(pod("node-a", "u1", "c1"), 0, 0), tt.addrs...)
			got, err := w.attach(w.c, r)
			if !errors.Is(err, tt.want) {
				t.Fatalf("got %v, %v; want %v", got, err, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("the message does not say %q: %v", tt.says, err)
			}
			if err == nil && len(got) != len(tt.addrs) {
				t.Errorf("got %v", got)
			}
			w.verify()
			w.claims()
		})
	}
}

func TestAttachInvalidRequests(t *testing.T) {
	tests := map[string]func(*AttachRequest){
		"no container": func(r *AttachRequest) { r.Owner.ContainerID = "" },
		"no interface": func(r *AttachRequest) { r.Owner.IfName = "" },
		"no network":   func(r *AttachRequest) { r.Owner.Network = "" },
		"no node":      func(r *AttachRequest) { r.Host.Name = "" },
		"no addresses": func(r *AttachRequest) { r.Num4 = 0 },
		"negative":     func(r *AttachRequest) { r.Num6 = -1 },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/30", size(30))
			c, f := w.process("p")
			r := request(pod("node-a", "u1", "c1"), 1, 0)
			change(&r)
			if _, err := c.Attach(t.Context(), r); !errors.Is(err, ErrInvalid) {
				t.Fatalf("got %v, want ErrInvalid", err)
			}
			if reads, writes := calls(f); reads+writes != 0 {
				t.Error("an invalid request reached the store")
			}
		})
	}
}

// Case R8: the caller's context ends in the middle; what was taken is undone on a
// deadline of its own.
func TestAttachCleansUpAfterItsContextEnded(t *testing.T) {
	for k, done := 1, false; !done; k++ {
		w := newWorld(t)
		w.pool("v4", "10.0.0.0/28", size(30))
		w.pool("v6", "fd00::/124", size(124))
		o := pod("node-a", "u1", "c1")
		c, faults := w.process("p")
		ctx, cancel := context.WithCancel(t.Context())
		faults.Hook(func(ctx context.Context, op memstore.Op) error {
			if op.Write == k {
				cancel()
			}
			return ctx.Err()
		})
		_, err := c.Attach(ctx, request(o, 1, 1))
		if done = ctx.Err() == nil; done {
			if k != 7 || err != nil {
				t.Errorf("an undisturbed request ends at write %d with %v", k-1, err)
			}
			w.mustDetach(o)
		} else if !errors.Is(err, context.Canceled) && !errors.Is(err, ErrUnknownOutcome) {
			t.Fatalf("cancelled at write %d: %v", k, err)
		}
		w.verify()
		cancel()
	}
}

// INV-10: DEL twice, DEL of what never was, DEL without pod fields, DEL of one
// interface only.
func TestDetachIsIdempotent(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(30))
	eth0 := pod("node-a", "u1", "c1")
	net1 := eth0
	net1.IfName = "net1"
	w.mustAttach(eth0, 1, 0)
	w.mustAttach(net1, 1, 0)
	bare := block.Owner{Network: "net", ContainerID: "c1", IfName: "eth0"}
	for range 2 {
		w.mustDetach(bare)
		w.verify() // net1 keeps its address
	}
	w.mustDetach(pod("node-a", "never", "never"))
	if _, err := w.c.Detach(t.Context(), DetachRequest{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("DEL without a key: %v, want ErrInvalid", err)
	}
	w.mustDetach(net1)
	w.verify()
}

// The workload form: released by DEL only when the recorded pod UID is the DEL's.
func TestDetachWorkloadForm(t *testing.T) {
	for _, tt := range []struct {
		name, recorded, del string
		released            bool
	}{
		{"same UID", "u1", "u1", true},
		{"other UID", "u1", "u2", false},
		{"DEL without UID", "u1", "", false},
		{"slot without UID", "", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/30", size(30))
			r := auto("node-a", string(WorkloadHandle("shop", "web-0")), 1, 0)
			r.Type = block.Workload
			r.Owner = block.Owner{Network: "net", Namespace: "shop", Pod: "web-0", PodUID: tt.recorded, Node: "node-a"}
			if _, err := w.c.AutoAssign(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			got, err := w.c.Detach(t.Context(), DetachRequest{
				Attachment: block.Attachment{Network: "net", ContainerID: "c9", IfName: "eth0"},
				Namespace:  "shop", Pod: "web-0", PodUID: tt.del, Node: "node-a",
			})
			if err != nil || (len(got) == 1) != tt.released {
				t.Fatalf("released %v, %v; want released %v", got, err, tt.released)
			}
			others, err := w.c.DetachOthers(t.Context(), "net", "node-a", nil)
			if err != nil || len(others) != 0 {
				t.Errorf("GC released %v of the workload form, %v", others, err)
			}
		})
	}
}

// CNI GC releases what is not in the list, of this node and network only.
func TestDetachOthers(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/24", size(29))
	keep, gone, elsewhere := pod("node-a", "u1", "c1"), pod("node-a", "u2", "c2"), pod("node-b", "u3", "c3")
	otherNet := pod("node-a", "u4", "c4")
	otherNet.Network = "net2"
	for _, o := range []block.Owner{keep, gone, elsewhere, otherNet} {
		w.mustAttach(o, 1, 0)
	}
	if _, err := w.c.DetachOthers(t.Context(), "net", "node-a", []block.Attachment{keep.Attachment()}); err != nil {
		t.Fatal(err)
	}
	delete(w.ledger, gone.Attachment())
	w.verify()
}

// Transient errors never leave the library: a pool that closes, or a block that
// another host takes, under a given address is ErrContention or the reason why.
func TestAttachGivenIsNeverTransient(t *testing.T) {
	for _, limit := range []int{0, 1} { // claiming the block, and using it unclaimed
		for name, hook := range map[string]func(*world) func(context.Context, memstore.Op) error{
			"pool closes": func(w *world) func(context.Context, memstore.Op) error { return closePoolAfter(w, "affinities") },
			"block taken": func(w *world) func(context.Context, memstore.Op) error {
				return stealBlock(w, "node-z", new(netip.Prefix))
			},
		} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				w.pool("v4", "10.0.0.0/28", size(30))
				w.config(func(c *datastore.Config) { c.MaxBlocksPerHost = limit })
				w.mustAttach(pod("node-a", "u0", "c0"), 1, 0)
				c, faults := w.process("p")
				faults.Hook(hook(w))
				given := w.unclaimed("10.0.0.0/28", 30).Addr().Next().Next().String()
				_, err := w.attach(c, with(request(pod("node-a", "u1", "c1"), 0, 0), given))
				if errors.Is(err, errStaleAffinity) || errors.Is(err, errPoolClosed) || errors.Is(err, datastore.ErrConflict) {
					t.Errorf("a transient error reached the caller: %v", err)
				}
				if name == "pool closes" && !errors.Is(err, ErrNoPool) {
					t.Errorf("got %v, want ErrNoPool", err)
				}
				w.verify()
			})
		}
	}
}

// The host's name has changed: with a sole host a repeated ADD, a CHECK and a DEL
// still find what was recorded under the old one.
func TestAttachSurvivesARenamedHost(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/24", size(29))
	c := New(w.mem.Store(), Options{Clock: w.clock, SoleHost: true})
	before, err := w.attach(c, request(pod("old-name", "u1", "c1"), 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	renamed := pod("new-name", "u1", "c1")
	after, err := w.attach(c, request(renamed, 1, 0))
	if err != nil || !slices.Equal(before, after) {
		t.Fatalf("the repeated ADD got %v, %v; it holds %v", after, err, before)
	}
	if held, err := c.AttachmentIPs(t.Context(), renamed.Attachment(), "new-name"); err != nil || len(held) != 1 {
		t.Errorf("CHECK sees %v, %v", held, err)
	}
	w.verify()
	if err := w.detach(c, renamed); err != nil {
		t.Fatal(err)
	}
	w.verify()
}

// disable closes or opens a pool the way an operator does.
func (w *world) disable(name string, off bool) {
	w.t.Helper()
	e, err := w.mem.Store().Pools.Get(w.t.Context(), name)
	if err == nil {
		e.Value.Spec.Disabled = off
		_, err = w.mem.Store().Pools.Update(w.t.Context(), e)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// INV-2: a repeated ADD never costs the attachment the address it has: not because
// its pool was disabled since, and not because the repetition fails.
func TestAttachRepeatedKeepsWhatItHas(t *testing.T) {
	o := pod("node-a", "u1", "c1")
	tests := map[string]struct {
		setup  func(*world)
		change func(*AttachRequest)
		fails  error
	}{
		"pool disabled since":        {func(w *world) { w.disable("v4", true) }, func(*AttachRequest) {}, nil},
		"pool disabled, other asked": {func(w *world) { w.disable("v4", true) }, func(r *AttachRequest) { r.Pools4 = []string{"nope"} }, ErrNoPool},
		"given address in use": {func(w *world) { w.mustAttach(pod("node-b", "u2", "c2"), 1, 0) }, func(r *AttachRequest) {
			r.Addrs = []netip.Addr{netip.MustParseAddr("10.0.0.9")}
		}, ErrAddressInUse},
		"second family missing": {func(*world) {}, func(r *AttachRequest) { r.Num6 = 1 }, ErrNoPool},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/29", size(30))
			w.mustAttach(o, 1, 0)
			tt.setup(w)
			r := request(o, 1, 0)
			tt.change(&r)
			if len(r.Addrs) > 0 { // the address that the other pod got
				r.Addrs = w.ledger[pod("node-b", "u2", "c2").Attachment()]
			}
			if _, err := w.attach(w.c, r); !errors.Is(err, tt.fails) {
				t.Fatalf("got %v, want %v", err, tt.fails)
			}
			w.verify()
		})
	}
}

// A take-over that fails in the end puts the old sandbox's record back as it was.
func TestAttachFailedTakeOverIsUndone(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", size(30))
	w.pool("v6", "fd00::/124", size(124))
	old := pod("node-a", "u1", "s1")
	w.mustAttach(old, 1, 1)
	w.disable("v6", true)
	if _, err := w.attach(w.c, request(pod("node-a", "u1", "s2"), 1, 1)); !errors.Is(err, ErrNoPool) {
		t.Fatalf("got %v, want ErrNoPool", err)
	}
	w.verify() // both addresses are s1's still
	w.mustDetach(pod("node-a", "u1", "s2"))
	w.verify()
	w.mustDetach(old)
	w.verify()
}

// The record follows who the attachment is said to be: an old pod UID must not let
// a later sandbox of the old pod take the address over.
func TestAttachRepeatedUnderAnotherPodUID(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", size(30))
	first, second := pod("node-a", "u1", "c1"), pod("node-a", "u2", "c1")
	a := w.mustAttach(first, 1, 0)
	if b := w.mustAttach(second, 1, 0); !slices.Equal(a, b) {
		t.Fatalf("the attachment's address changed from %v to %v", a, b)
	}
	if c := w.mustAttach(pod("node-a", "u1", "c2"), 1, 0); c[0] == a[0] {
		t.Fatalf("%s was taken from u2 for u1 (INV-1)", a[0])
	}
	w.verify()
}

// A network and container ID that read like a namespace and pod do not make a
// sandbox's slot one of the workload form.
func TestDetachWorkloadFormIsNoSandbox(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", size(30))
	o := pod("node-a", "same", "p.q")
	o.Network = "n"
	w.mustAttach(o, 1, 0)
	got, err := w.c.Detach(t.Context(), DetachRequest{
		Attachment: block.Attachment{Network: "n", ContainerID: "other", IfName: "eth0"},
		Namespace:  "n", Pod: "p.q", PodUID: "same", Node: "node-a",
	})
	if err != nil || len(got) != 0 {
		t.Errorf("released %v, %v", got, err)
	}
	w.verify()
}

// Names that would make a block grow without bound, or that could not be found
// again in a list, are refused.
func TestAttachRefusesIllegibleNames(t *testing.T) {
	for name, set := range map[string]func(*block.Owner){
		"long network":     func(o *block.Owner) { o.Network = strings.Repeat("n", 254) },
		"long container":   func(o *block.Owner) { o.ContainerID = strings.Repeat("c", 1<<20) },
		"not UTF-8":        func(o *block.Owner) { o.IfName = "e\xff" },
		"host not in UTF8": func(o *block.Owner) { o.Node = "b\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/29", size(30))
			o := pod("node-a", "u", "c")
			set(&o)
			if _, err := w.attach(w.c, request(o, 1, 0)); !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
			w.verify()
		})
	}
}
