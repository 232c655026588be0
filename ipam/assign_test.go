// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/pool"
)

// calls counts what a request asked of the store, as "list blocks 1" and so on.
func calls(f *memstore.Faults) (reads, writes int) { return f.Reads(), f.Writes() }

func TestAssignOrderOfStages(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", size(30)) // two blocks
	a0 := w.mustAttach(pod("node-a", "a0", "a0"), 1, 0)[0]
	own := netip.PrefixFrom(a0, 30).Masked()

	for i := range 3 { // the rest of the node's own block
		if got := w.mustAttach(pod("node-a", fmt.Sprint("a", i+1), fmt.Sprint("a", i+1)), 1, 0)[0]; !own.Contains(got) {
			t.Fatalf("address %d is %s, not of the affine block %s", i+1, got, own)
		}
	}
	next := w.mustAttach(pod("node-a", "a4", "a4"), 1, 0)[0] // a new claim
	if own.Contains(next) {
		t.Fatalf("%s is from the full block", next)
	}
	if got := w.block(netip.PrefixFrom(next, 30).Masked().String()).Affinity; got != block.Host("node-a") {
		t.Fatalf("the second block belongs to %v", got)
	}
	borrowed := w.mustAttach(pod("node-b", "b0", "b0"), 1, 0)[0] // no block is left: borrow
	if netip.PrefixFrom(borrowed, 30).Masked() != netip.PrefixFrom(next, 30).Masked() {
		t.Fatalf("%s is not borrowed from the block with space", borrowed)
	}
	w.verify()
	w.claims()
}

// An empty block is another host's for a minute, then it may be reclaimed; the old
// owner notices and drops its affinity (INV-6, case E6).
func TestAssignReclaimsEmptyBlockAfterAMinute(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	w.config(func(c *datastore.Config) { c.StrictAffinity = true })
	old := pod("node-b", "u0", "c0")
	w.mustAttach(old, 1, 0)
	w.mustDetach(old)

	w.pass(59 * time.Second)
	if _, err := w.attach(w.c, request(pod("node-a", "u1", "c1"), 1, 0)); !errors.Is(err, ErrStrictAffinity) {
		t.Fatalf("after 59 s: %v, want ErrStrictAffinity", err)
	}
	before := w.block("10.0.0.0/30")
	w.pass(2 * time.Second)
	w.mustAttach(pod("node-a", "u1", "c1"), 1, 0)
	if b := w.block("10.0.0.0/30"); b.Affinity != block.Host("node-a") || b.Seq <= before.Seq {
		t.Fatalf("block is of %v with sequence %d after %d (INV-15)", b.Affinity, b.Seq, before.Seq)
	}
	stale, _ := w.affinity("node-b", "10.0.0.0/30")
	ours, _ := w.affinity("node-a", "10.0.0.0/30")
	if ours.State != datastore.Confirmed || ours.BlockSeq <= stale.BlockSeq {
		t.Fatalf("ours is %+v, the stale one %+v: the higher sequence routes", ours, stale)
	}
	if _, err := w.attach(w.c, request(pod("node-b", "u2", "c2"), 1, 0)); !errors.Is(err, ErrExhausted) {
		t.Fatalf("the old owner got something: %v", err)
	}
	if _, there := w.affinity("node-b", "10.0.0.0/30"); there {
		t.Error("the old owner kept its stale affinity")
	}
	w.verify()
}

// Case C10: a claim stamped far in the future by a wrong clock does not keep an
// empty block for ever.
func TestAssignReclaimsDespiteAWrongClock(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	w.config(func(c *datastore.Config) { c.StrictAffinity = true })
	w.pass(365 * 24 * time.Hour)
	old := pod("node-b", "u0", "c0")
	w.mustAttach(old, 1, 0)
	w.mustDetach(old)
	w.clock.SetTime(epoch)
	w.mustAttach(pod("node-a", "u1", "c1"), 1, 0)
	w.verify()
}

// Pending and pendingDeletion count as absent (INV-6): a block that names the host
// makes the host confirm, a pending affinity without a block is completed.
func TestAssignRepairsHalfAClaim(t *testing.T) {
	for _, state := range []datastore.AffinityState{datastore.Pending, datastore.PendingDeletion, ""} {
		t.Run("block with affinity "+string(state), func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/30", size(30))
			w.mustAttach(pod("node-a", "u0", "c0"), 1, 0)
			key := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: netip.MustParsePrefix("10.0.0.0/30")}
			e, err := w.mem.Store().Affinities.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if e.Value.State = state; state == "" {
				err = w.mem.Store().Affinities.Delete(t.Context(), e)
			} else {
				_, err = w.mem.Store().Affinities.Update(t.Context(), e)
			}
			if err != nil {
				t.Fatal(err)
			}
			w.mustAttach(pod("node-a", "u1", "c1"), 1, 0)
			w.verify()
			w.claims()
		})
	}
}

func TestAssignStrictAndCaps(t *testing.T) {
	tests := []struct {
		name   string
		config func(*datastore.Config)
		cap    int // of the request
		want   error
		says   []string
	}{
		{"not strict, at the cap: borrows", func(c *datastore.Config) { c.MaxBlocksPerHost = 1 }, 0, nil, nil},
		{"the request's cap is lower", func(*datastore.Config) {}, 1, nil, nil},
		{
			"case E1: strict, at the cap", func(c *datastore.Config) { c.MaxBlocksPerHost = 1; c.StrictAffinity = true }, 0,
			ErrBlockLimit,
			[]string{"node-a", "1 of 1", "maxBlocksPerHost", "strictAffinity"},
		},
		{
			"strict without claims", func(c *datastore.Config) { c.StrictAffinity = true; c.AutoAllocateBlocks = false }, 0,
			ErrExhausted,
			[]string{"autoAllocateBlocks"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/28", size(30))
			w.mustAttach(pod("node-a", "a", "a"), 4, 0)
			w.mustAttach(pod("node-b", "b", "b"), 1, 0)
			w.config(tt.config)
			r := request(pod("node-a", "u1", "c1"), 1, 0)
			r.MaxBlocksPerHost = tt.cap
			got, err := w.attach(w.c, r)
			if !errors.Is(err, tt.want) {
				t.Fatalf("got %v, %v; want %v", got, err, tt.want)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("the message does not say %q:\n%v", s, err)
				}
			}
			w.verify()
		})
	}
}

func TestAssignDefaultCapIsTwenty(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/24", size(32))
	w.config(func(c *datastore.Config) { c.StrictAffinity = true })
	w.mustAttach(pod("node-a", "a", "a"), 20, 0)
	if _, err := w.attach(w.c, request(pod("node-a", "u", "c"), 1, 0)); !errors.Is(err, ErrBlockLimit) {
		t.Fatalf("block 21: %v, want ErrBlockLimit", err)
	}
}

// Case E2: an exhausted search names the pools it considered, why each gave
// nothing, what is reserved and cooling and until when, and the setting to change.
func TestAssignExhaustionExplains(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", func(s *pool.Spec) {
		s.BlockSize = 30
		s.Gateway = pool.Gateway{Addr: netip.MustParseAddr("10.0.0.1")}
	})
	w.pool("zone-b", "10.1.0.0/29", func(s *pool.Spec) { s.BlockSize = 30; s.NodeSelector = "zone=b" })
	w.pool("by-name", "10.2.0.0/29", func(s *pool.Spec) { s.BlockSize = 30; s.AssignmentMode = pool.Manual })
	w.reserve("r", "10.0.0.6/31")
	w.config(func(c *datastore.Config) { c.IPCooldown = 5 * time.Minute })
	w.mustAttach(pod("node-a", "a", "a"), 4, 0)
	cooling := pod("node-a", "b", "b")
	w.mustAttach(cooling, 1, 0)
	w.mustDetach(cooling)

	_, err := w.attach(w.c, request(pod("node-a", "u", "c"), 1, 0))
	var e *ExhaustedError
	if !errors.As(err, &e) || !errors.Is(err, ErrExhausted) {
		t.Fatalf("got %v", err)
	}
	want := []PoolReport{{Name: "v4", CIDR: "10.0.0.0/29", Blocks: 1, Free: 0, Cooling: 1, Reserved: "3"}}
	if d := cmp.Diff(want, e.Pools); d != "" {
		t.Errorf("report (-want +got):\n%s", d)
	}
	for _, s := range []string{
		"node-a", "pool v4 (10.0.0.0/29)", "1 cooling", "3 reserved", "pool zone-b", "spec.nodeSelector", "pool by-name",
		"Manual", "2026-12-01T10:05:00Z", "ipCooldownSeconds", "add a pool",
	} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("the message does not say %q:\n%v", s, err)
		}
	}
	w.pass(5*time.Minute + time.Second)
	w.mustAttach(pod("node-a", "u", "c"), 1, 0)
	w.verify()
}

// INV-5: longest free first, and none before its cooldown.
func TestAssignReusesInOrderAfterCooldown(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	w.config(func(c *datastore.Config) { c.IPCooldown = time.Minute })
	var order []netip.Addr
	for _, i := range []int{2, 0, 3, 1} {
		o := pod("node-a", fmt.Sprint("u", i), fmt.Sprint("c", i))
		w.mustAttach(o, 1, 0)
		order = append(order, w.ledger[o.Attachment()][0])
	}
	for _, i := range []int{3, 1, 2, 0} { // released in another order, 10 s apart
		w.mustDetach(pod("node-a", fmt.Sprint("u", i), fmt.Sprint("c", i)))
		w.pass(10 * time.Second)
	}
	released := []netip.Addr{order[2], order[3], order[0], order[1]}
	for i, want := range released {
		early := request(pod("node-a", fmt.Sprint("n", i), fmt.Sprint("n", i)), 1, 0)
		w.clock.SetTime(epoch.Add(time.Minute + time.Duration(10*i)*time.Second - time.Nanosecond))
		if got, err := w.attach(w.c, early); !errors.Is(err, ErrExhausted) {
			t.Fatalf("address %d was handed out before its cooldown: %v, %v", i, got, err)
		}
		w.pass(time.Nanosecond)
		if got, err := w.attach(w.c, early); err != nil || got[0] != want {
			t.Fatalf("address %d is %v, %v; want %s", i, got, err, want)
		}
	}
	w.verify()
}

// INV-13: reservations and gateways are not handed out, whatever path is taken.
func TestAssignNeverHandsOutReserved(t *testing.T) {
	for _, gateway := range []pool.Gateway{{First: true}, {Addr: netip.MustParseAddr("10.0.0.5")}} {
		w := newWorld(t)
		w.pool("v4", "10.0.0.0/28", func(s *pool.Spec) { s.BlockSize = 30; s.Gateway = gateway })
		w.reserve("nested", "10.0.0.8/30", "10.0.0.10/32")
		w.reserve("end", "10.0.0.15/32")
		u := pool.NewUnassignable(pool.Pool{Name: "v4", Spec: pool.Spec{
			CIDR: netip.MustParsePrefix("10.0.0.0/28"), BlockSize: 30, Gateway: gateway,
		}}, []pool.Reservation{
			{Name: "nested", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.8/30")}},
			{Name: "end", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.15/32")}},
		})
		n := 0
		for {
			node := fmt.Sprint("node-", n%3)
			got, err := w.attach(w.c, request(pod(node, fmt.Sprint(n), fmt.Sprint(n)), 1, 0))
			if errors.Is(err, ErrExhausted) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if u.Contains(got[0]) {
				t.Errorf("%v: %s is reserved and was handed out", gateway, got[0])
			}
			n++
		}
		want := 16 - int(u.Count(netip.MustParsePrefix("10.0.0.0/28")).Int64())
		if n != want {
			t.Errorf("%v: %d addresses handed out, %d are assignable", gateway, n, want)
		}
		w.verify()
	}
}

func TestAssignNoPoolSaysWhy(t *testing.T) {
	w := newWorld(t)
	_, err := w.attach(w.c, request(pod("node-a", "u", "c"), 1, 0))
	if !errors.Is(err, ErrNoPool) || !strings.Contains(err.Error(), "create an IPPool") {
		t.Errorf("no pool at all: %v", err)
	}
	w.pool("off", "10.0.0.0/28", func(s *pool.Spec) { s.BlockSize = 30; s.Disabled = true })
	r := request(pod("node-a", "u", "c"), 1, 0)
	r.Pools4 = []string{"off", "missing"}
	_, err = w.attach(w.c, r)
	for _, s := range []string{"pool off", "disabled", "pool missing"} {
		if !errors.Is(err, ErrNoPool) || !strings.Contains(err.Error(), s) {
			t.Errorf("want ErrNoPool that says %q: %v", s, err)
		}
	}
}

// A pool that is closed between its selection and the creation of a block gives
// nothing, and leaves no affinity behind (design, pool admission; INV-6).
func TestClaimReadsThePoolLive(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(30))
	c, faults := w.process("claimer")
	faults.Hook(closePoolAfter(w, "affinities"))
	if _, err := w.attach(c, request(pod("node-a", "u", "c"), 1, 0)); !errors.Is(err, ErrNoPool) {
		t.Fatalf("got %v, want ErrNoPool: the pool was read again", err)
	}
	if n := len(w.blocks()); n != 0 {
		t.Errorf("%d blocks were created in a closed pool", n)
	}
	if es, _ := w.mem.Store().Affinities.List(t.Context(), datastore.Query{}); len(es) != 0 {
		t.Errorf("affinities are left: %v", es)
	}
}

// Another host creates the candidate block first: the claim is withdrawn and the
// next candidate taken (INV-6, case D9).
func TestClaimLosesToAnotherHost(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", size(30))
	c, faults := w.process("loser")
	var stolen netip.Prefix
	faults.Hook(stealBlock(w, "node-z", &stolen))
	got, err := w.attach(c, request(pod("node-a", "u", "c"), 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if stolen.Contains(got[0]) {
		t.Errorf("%s is from the block that node-z won", got[0])
	}
	if _, there := w.affinity("node-a", stolen.String()); there {
		t.Error("the lost claim was not withdrawn")
	}
	w.claims()
}

// Case E2: when others were quicker, the counts are of what they left.
func TestExhaustionCountsWhatOthersLeft(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/30", size(30))
	w.mustAttach(pod("node-b", "b", "b"), 3, 0)
	c, faults := w.process("late")
	faults.Hook(takeAddress(w, "node-b"))
	_, err := w.attach(c, request(pod("node-a", "a", "a"), 1, 0))
	const want = "0 free and 0 cooling in blocks that are not full (0)"
	if !errors.Is(err, ErrExhausted) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v; want that it says %q", err, want)
	}
}

// Case E3: what a request costs in calls (design section 11; the Kubernetes store counts
// the same calls).
func TestAssignCalls(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/24", size(31)) // 128 blocks
	count := func(node, id string, n int, want error) (reads, writes int) {
		c, f := w.process(id)
		if _, err := w.attach(c, request(pod(node, id, id), n, 0)); !errors.Is(err, want) {
			t.Fatalf("%s: %v", id, err)
		}
		return calls(f)
	}
	const warm = 5 // configuration, pools, reservations, the host's blocks and affinities
	if r, wr := count("node-a", "cold", 1, nil); r != warm+1 || wr != 3 {
		t.Errorf("new block: %d reads, %d writes; want %d and 3", r, wr, warm+1)
	}
	if r, wr := count("node-a", "warm", 1, nil); r != warm || wr != 1 {
		t.Errorf("warm: %d reads, %d writes; want %d and 1", r, wr, warm)
	}
	if r, wr := count("node-a", "warm", 1, nil); r != warm || wr != 0 {
		t.Errorf("repeated: %d reads, %d writes; want %d and 0", r, wr, warm)
	}
	for i := range 127 {
		n := 2
		if i == 126 {
			n = 1
		}
		count(fmt.Sprint("node-", i), fmt.Sprint("fill-", i), n, nil)
	}
	if r, wr := count("node-x", "last", 1, nil); r+wr > warm+3 {
		t.Errorf("last free address of 128 blocks: %d reads, %d writes; want at most %d calls", r, wr, warm+3)
	}
	if r, wr := count("node-x", "full", 1, ErrExhausted); r > warm+3 || wr != 0 {
		t.Errorf("pool is full: %d reads, %d writes; want at most %d and 0", r, wr, warm+3)
	}
	w.verify()
}

// Exhaustion is not concluded from labels that were made while a reservation or a gateway
// was there that is gone (design, section 3).
func TestExhaustionIsNotConcludedFromOldLabels(t *testing.T) {
	for name, strict := range map[string]bool{"borrowed": false, "without an owner, strict": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.admitLater() // labels are their writer's
			w.pool("v4", "10.0.0.0/30", size(30))
			w.reconcile()
			w.config(func(c *datastore.Config) { c.StrictAffinity = strict })
			first := pod("node-b", "b", "b")
			if strict {
				first = pod("node-a", "b", "b")
			}
			w.reserve("r", "10.0.0.0/31")
			w.mustAttach(first, 2, 0)
			if strict {
				w.releaseAffinity("node-a", "10.0.0.0/30")
			}
			if got := w.space("10.0.0.0/30"); got != block.SpaceFull {
				t.Fatalf("the block is labelled %s", got)
			}
			if _, err := w.attach(w.c, request(pod("node-a", "u", "c"), 1, 0)); !errors.Is(err, ErrExhausted) {
				t.Errorf("what is free is reserved: %v", err)
			}
			e, err := w.mem.Store().Reservations.Get(t.Context(), "r")
			w.create(nil, err)
			w.create(nil, w.mem.Store().Reservations.Delete(t.Context(), e))
			w.mustAttach(pod("node-a", "u", "c"), 1, 0)
			if got := w.space("10.0.0.0/30"); got != block.SpaceFree {
				t.Errorf("the block is labelled %s by then", got)
			}
			w.verify()
		})
	}
}
