// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/pool"
)

// scenario is one operation of Client in one situation. Its run is repeated with
// every fault at every write; after each, a new process retries it, and then
// everything is given back.
type scenario struct {
	method string // of Client: every exported one needs a scenario
	name   string
	setup  func(w *world)
	// run is the operation. It enters what it attached into the ledger and takes
	// out what it detached, on success only.
	run func(w *world, c *Client) error
	// want is the error that run ends with when nothing goes wrong; nil: none.
	want error
	// reads: the operation must not write at all (INV-12).
	reads bool
	// recover is what a new process does first when it does not know how the
	// operation ended.
	recover func(w *world, c *Client) error
	// refused is what a runtime does after an operation that failed as it should.
	refused func(w *world, c *Client) error
	// after compares the outcome of a completed run with what it should be.
	after func(w *world)
}

func attachRun(r AttachRequest) func(*world, *Client) error {
	return func(w *world, c *Client) error {
		_, err := w.attach(c, r)
		return err
	}
}

// leave has host have claimed a block, and everything in it released, two minutes ago.
func leave(w *world, node string, n int) {
	o := pod(node, "old-"+node, "old-"+node)
	w.mustAttach(o, n, 0)
	w.mustDetach(o)
	w.pass(2 * time.Minute)
}

func with(r AttachRequest, addrs ...string) AttachRequest {
	for _, a := range addrs {
		r.Addrs = append(r.Addrs, netip.MustParseAddr(a))
	}
	return r
}

func attachScenarios() []scenario {
	a := pod("node-a", "u1", "c1")
	small := func(w *world) { w.pool("v4", "10.0.0.0/28", size(30)) }
	dual := func(w *world) {
		small(w)
		w.pool("v6", "fd00::/122", size(124))
	}
	one := func(w *world) { w.pool("v4", "10.0.0.0/30", size(30)) }
	return []scenario{
		{name: "first block", setup: small, run: attachRun(request(a, 1, 0))},
		{name: "warm", setup: func(w *world) { small(w); w.mustAttach(pod("node-a", "u0", "c0"), 1, 0) }, run: attachRun(request(a, 1, 0))},
		{name: "dual stack, first blocks", setup: dual, run: attachRun(request(a, 1, 1))},
		{name: "five addresses over two blocks", setup: small, run: attachRun(request(a, 5, 0))},
		{name: "repeated", setup: func(w *world) { small(w); w.mustAttach(a, 1, 0) }, run: attachRun(request(a, 1, 0)), reads: true},
		{name: "a family is missing", setup: func(w *world) { dual(w); w.mustAttach(a, 1, 0) }, run: attachRun(request(a, 1, 1))},
		{name: "case R3: taken over", setup: func(w *world) {
			one(w)
			w.mustAttach(pod("node-a", "u1", "c0"), 4, 0)
			w.ledger = map[block.Attachment][]netip.Addr{}
		}, run: attachRun(request(a, 4, 0))},
		{name: "old address does not satisfy", setup: func(w *world) {
			w.pool("v4", "10.0.0.0/30", size(30))
			w.mustAttach(pod("node-a", "u1", "c0"), 4, 0)
			w.ledger = map[block.Attachment][]netip.Addr{}
		}, run: attachRun(with(request(a, 0, 0), "10.0.0.2"))},
		{name: "given, new block", setup: small, run: attachRun(with(request(a, 0, 0), "10.0.0.6"))},
		{name: "given, block of another host", setup: func(w *world) { one(w); w.mustAttach(pod("node-b", "u0", "c0"), 1, 0) }, run: attachRun(with(request(a, 0, 0), "10.0.0.3"))},
		{name: "given, at the block limit", setup: func(w *world) {
			small(w)
			w.config(func(c *datastore.Config) { c.MaxBlocksPerHost = 1 })
			w.mustAttach(pod("node-a", "u0", "c0"), 1, 0)
		}, run: func(w *world, c *Client) error {
			_, err := w.attach(c, with(request(a, 0, 0), w.unclaimed("10.0.0.0/28", 30).Addr().Next().String()))
			return err
		}},
		{name: "borrowed", setup: func(w *world) { one(w); w.mustAttach(pod("node-b", "u0", "c0"), 1, 0) }, run: attachRun(request(a, 1, 0))},
		{name: "reclaimed from another host", setup: func(w *world) { one(w); leave(w, "node-b", 2) }, run: attachRun(request(a, 1, 0))},
		{name: "case E6: block without an owner", setup: func(w *world) {
			one(w)
			w.mustAttach(pod("node-b", "u0", "c0"), 1, 0)
			w.releaseAffinity("node-b", "10.0.0.0/30")
		}, run: attachRun(request(a, 1, 0))},
		{name: "INV-11: the second family is exhausted", setup: func(w *world) {
			small(w)
			w.pool("v6", "fd00::/128", nil)
			w.mustAttach(pod("node-b", "u0", "c0"), 0, 1)
		}, run: attachRun(request(a, 1, 1)), want: ErrExhausted, refused: func(w *world, c *Client) error { return w.detach(c, a) }},
		{name: "confirmed affinity without a block", setup: func(w *world) {
			one(w)
			key := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: netip.MustParsePrefix("10.0.0.0/30")}
			w.create(w.mem.Store().Affinities.Create(w.t.Context(), key, datastore.Affinity{State: datastore.Confirmed, Pool: "v4", BlockSeq: 1}))
		}, run: attachRun(request(a, 1, 0))},
	}
}

func (w *world) create(_ any, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) releaseAffinity(node, cidr string) {
	w.t.Helper()
	key := datastore.AffinityKey{Owner: block.Host(node), CIDR: netip.MustParsePrefix(cidr)}
	if err := w.c.ReleaseAffinity(w.t.Context(), key, false); err != nil {
		w.t.Fatal(err)
	}
}

// unclaimed returns a block of the pool that does not exist.
func (w *world) unclaimed(cidr string, bits int) netip.Prefix {
	for a := netip.MustParsePrefix(cidr).Addr(); ; a = a.Next() {
		p := netip.PrefixFrom(a, bits)
		if p.Masked() != p {
			continue
		}
		if _, err := w.mem.Store().Blocks.Get(w.t.Context(), p); errors.Is(err, datastore.ErrNotFound) {
			return p
		}
	}
}

// handleRun is for operations that are not of an attachment: what they take is
// entered under the attachment their owner stands for.
func handleRun(fn func(w *world, c *Client) ([]netip.Addr, error)) func(*world, *Client) error {
	return func(w *world, c *Client) error {
		got, err := fn(w, c)
		if err == nil {
			key := block.Attachment{}
			w.ledger[key] = got
		}
		return err
	}
}

func otherScenarios() []scenario {
	a, b := pod("node-a", "u1", "c1"), pod("node-b", "u2", "c2")
	both := func(w *world) {
		w.pool("v4", "10.0.0.0/28", size(30))
		w.mustAttach(a, 5, 0) // two blocks
		w.mustAttach(b, 1, 0)
	}
	forget := func(w *world, o block.Owner, err error) error {
		if err == nil {
			delete(w.ledger, o.Attachment())
		}
		return err
	}
	return []scenario{
		{method: "Detach", name: "two blocks", setup: both, run: func(w *world, c *Client) error { return w.detach(c, a) }},
		{method: "Detach", name: "nothing there", setup: both, run: func(w *world, c *Client) error {
			return w.detach(c, pod("node-a", "u9", "c9"))
		}, reads: true},
		{
			method: "DetachOthers", name: "one is valid", setup: func(w *world) { both(w); w.mustAttach(pod("node-a", "u3", "c3"), 1, 0) },
			run: func(w *world, c *Client) error {
				_, err := c.DetachOthers(w.t.Context(), "net", "node-a", []block.Attachment{pod("node-a", "u3", "c3").Attachment()})
				return forget(w, a, err)
			},
		},
		{method: "ReleaseByHandle", name: "two blocks", setup: both, run: func(w *world, c *Client) error {
			_, err := c.ReleaseByHandle(w.t.Context(), SandboxHandle("net", "c1"), "")
			return forget(w, a, err)
		}},
		{method: "ReleaseIPs", name: "case D16: two blocks", setup: both, run: func(w *world, c *Client) error {
			var rs []Release
			for _, addr := range w.ledger[a.Attachment()] {
				rs = append(rs, Release{Release: block.Release{Addr: addr, Handle: SandboxHandle("net", "c1")}})
			}
			_, err := c.ReleaseIPs(w.t.Context(), rs)
			return forget(w, a, err)
		}},
		{
			method: "ReleaseAffinity", name: "in use", setup: func(w *world) { w.pool("v4", "10.0.0.0/30", size(30)); w.mustAttach(a, 1, 0) },
			run: func(w *world, c *Client) error {
				key := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: netip.MustParsePrefix("10.0.0.0/30")}
				return c.ReleaseAffinity(w.t.Context(), key, false)
			}, after: func(w *world) {
				if _, there := w.affinity("node-a", "10.0.0.0/30"); there || !w.block("10.0.0.0/30").Affinity.IsZero() {
					w.t.Error("the affinity is still there")
				}
			},
		},
		{
			method: "ReleaseAffinity", name: "empty", setup: func(w *world) { w.pool("v4", "10.0.0.0/30", size(30)); leave(w, "node-a", 1) },
			run: func(w *world, c *Client) error {
				key := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: netip.MustParsePrefix("10.0.0.0/30")}
				return c.ReleaseAffinity(w.t.Context(), key, true)
			}, after: func(w *world) {
				if n := len(w.blocks()); n != 0 {
					w.t.Errorf("%d blocks are left", n)
				}
			},
		},
		{method: "SetConfig", name: "first", setup: func(*world) {}, run: func(w *world, c *Client) error {
			cfg := datastore.ConfigDefaults()
			cfg.MaxBlocksPerHost = 7
			return c.SetConfig(w.t.Context(), cfg)
		}, after: func(w *world) {
			if cfg, err := w.c.Config(w.t.Context()); err != nil || cfg.MaxBlocksPerHost != 7 {
				w.t.Errorf("config is %+v, %v", cfg, err)
			}
		}},
		{method: "AutoAssign", name: "dual stack", setup: func(w *world) {
			w.pool("v4", "10.0.0.0/28", size(30))
			w.pool("v6", "fd00::/122", size(124))
		}, run: handleRun(func(w *world, c *Client) ([]netip.Addr, error) {
			got, err := c.AutoAssign(w.t.Context(), auto("node-a", "lb-1", 2, 2))
			return addrs(got.All()), err
		}), recover: func(w *world, c *Client) error {
			_, err := c.ReleaseByHandle(w.t.Context(), "lb-1", "")
			delete(w.ledger, block.Attachment{})
			return err
		}},
		{method: "AssignIP", name: "case E7: the last holder takes it back while it cools", setup: func(w *world) {
			w.pool("v4", "10.0.0.0/30", size(30))
			w.config(func(c *datastore.Config) { c.IPCooldown = 10 * time.Minute })
			r := AssignIPRequest{AutoAssignRequest: auto("node-a", "lb-1", 1, 0), Addr: netip.MustParseAddr("10.0.0.2")}
			w.create(w.c.AssignIP(w.t.Context(), r))
			w.create(w.c.ReleaseByHandle(w.t.Context(), "lb-1", ""))
		}, run: handleRun(func(w *world, c *Client) ([]netip.Addr, error) {
			r := AssignIPRequest{AutoAssignRequest: auto("node-a", "lb-1", 1, 0), Addr: netip.MustParseAddr("10.0.0.2")}
			got, err := c.AssignIP(w.t.Context(), r)
			return []netip.Addr{got.Addr}, err
		})},
		{method: "Config", name: "none stored (case R16)", setup: func(*world) {}, reads: true, run: func(w *world, c *Client) error {
			_, err := c.Config(w.t.Context())
			return err
		}},
		{method: "IPsByHandle", name: "two blocks", setup: both, reads: true, run: func(w *world, c *Client) error {
			got, err := c.IPsByHandle(w.t.Context(), SandboxHandle("net", "c1"), "")
			if err == nil && len(got) != 5 {
				return fmt.Errorf("%d addresses", len(got))
			}
			return err
		}},
		{method: "AttachmentIPs", name: "case R11", setup: both, reads: true, run: func(w *world, c *Client) error {
			got, err := c.AttachmentIPs(w.t.Context(), a.Attachment(), "node-a")
			if err == nil && len(got) != 5 {
				return fmt.Errorf("%d addresses", len(got))
			}
			return err
		}},
		{method: "AssignmentAttributes", name: "in use", setup: both, reads: true, run: func(w *world, c *Client) error {
			got, err := c.AssignmentAttributes(w.t.Context(), w.ledger[b.Attachment()][0])
			if err == nil && got.Active.PodUID != "u2" {
				return fmt.Errorf("owner %+v", got.Active)
			}
			return err
		}},
		{method: "Ready", name: "a pool", setup: both, reads: true, run: func(w *world, c *Client) error {
			return c.Ready(w.t.Context(), AutoAssignRequest{Num4: 1, Host: pool.Node{Name: "node-a"}, Use: pool.UseWorkload})
		}},
	}
}

func scenarios() []scenario {
	out := append(otherScenarios(), libraryScenarios()...)
	for _, s := range attachScenarios() {
		s.method = "Attach"
		out = append(out, s)
	}
	return out
}

// TestFaultEveryOperationHasAScenario fails when Client gets a method that nobody
// has thought about.
func TestFaultEveryOperationHasAScenario(t *testing.T) {
	have := make(map[string]int)
	for _, s := range scenarios() {
		have[s.method]++
	}
	typ := reflect.TypeFor[*Client]()
	for i := range typ.NumMethod() {
		name := typ.Method(i).Name
		if have[name] == 0 {
			t.Errorf("Client.%s has no fault scenario", name)
		}
		delete(have, name)
	}
	for name := range have {
		t.Errorf("a scenario is for Client.%s, which does not exist", name)
	}
}

// TestFaultAtEveryWrite runs every scenario with every fault at every write
// (INV-7, INV-10, INV-11; cases R5, R6, D12, D17).
func TestFaultAtEveryWrite(t *testing.T) {
	var tally faultTally
	for _, s := range scenarios() {
		t.Run(s.method+"/"+s.name, func(t *testing.T) {
			writes := s.undisturbed(t)
			points := 0
			for k := 1; k <= writes; k++ {
				for _, fault := range memstore.WriteFaults() {
					points++
					t.Run(fmt.Sprintf("%s at write %d", fault, k), func(t *testing.T) { s.disturbed(t, k, fault, true) })
					if fault == memstore.LateRequest {
						points++
						t.Run(fmt.Sprintf("%s at write %d, landing last", fault, k), func(t *testing.T) { s.disturbed(t, k, fault, false) })
					}
				}
			}
			tally.add(s, writes, points)
		})
	}
	tally.report(t)
}

// faultTally counts, for the log, what was tried of each operation.
type faultTally struct{ rows map[string]*faultCount }

type faultCount struct{ scenarios, writes, points, reads int }

func (f *faultTally) add(s scenario, writes, points int) {
	if f.rows == nil {
		f.rows = make(map[string]*faultCount)
	}
	c := f.rows[s.method]
	if c == nil {
		c = new(faultCount)
		f.rows[s.method] = c
	}
	c.scenarios++
	c.writes += writes
	c.points += points
	if s.reads {
		c.reads++
	}
}

func (f *faultTally) report(t *testing.T) {
	var total faultCount
	var sb strings.Builder
	w := tabwriter.NewWriter(&sb, 0, 8, 2, ' ', tabwriter.AlignRight)
	row := func(name string, c faultCount) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t\n", name, c.scenarios, c.writes, c.points, c.reads)
	}
	fmt.Fprint(w, "operation\tscenarios\twrites\tfault points\tthat may not write\t\n")
	for _, name := range slices.Sorted(maps.Keys(f.rows)) {
		c := *f.rows[name]
		row(name, c)
		total = faultCount{total.scenarios + c.scenarios, total.writes + c.writes, total.points + c.points, total.reads + c.reads}
	}
	row("all", total)
	_ = w.Flush() // to a Builder
	t.Attr("figures", fmt.Sprintf("%d operations, %d scenarios, %d writes, %d fault points, all tried",
		len(f.rows), total.scenarios, total.writes, total.points))
	t.Logf("conflict, crash before and after, lost reply, lost and late request at every write:\n%s", sb.String())
	for name, c := range f.rows {
		if c.points == 0 && c.reads != c.scenarios {
			t.Errorf("%s writes and was tried with no fault", name)
		}
	}
}

// undisturbed runs s without a fault and returns how often it wrote.
func (s scenario) undisturbed(t *testing.T) int {
	w := newWorld(t)
	s.setup(w)
	c, faults := w.process("first")
	if err := s.run(w, c); !errors.Is(err, s.want) {
		t.Fatalf("without faults: %v, want %v", err, s.want)
	}
	if s.reads && faults.Writes() != 0 {
		t.Fatalf("it writes %d times and should only read (INV-12)", faults.Writes())
	}
	if !s.reads && faults.Writes() == 0 {
		t.Fatal("it does not write: no fault is tested")
	}
	w.settled(s)
	return faults.Writes()
}

// disturbed runs s with one fault, then lets a new process retry it and give
// everything back. A late request lands right after the first process ends, or
// after everything else.
func (s scenario) disturbed(t *testing.T, k int, fault memstore.Fault, lateFirst bool) {
	w := newWorld(t)
	s.setup(w)
	c, faults := w.process("first")
	faults.Plan(k, fault)
	err := s.run(w, c)
	switch fault {
	case memstore.Crash, memstore.CrashBefore:
		// The process is gone; what it may have said nobody heard.
	case memstore.Conflict:
		if !errors.Is(err, s.want) {
			t.Errorf("a lost compare-and-swap reached the caller: %v", err)
		}
	default:
		if err != nil && s.want == nil && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, memstore.ErrLost) {
			t.Errorf("an unknown outcome is not called so: %v", err)
		}
	}
	if lateFirst {
		faults.Deliver()
	}
	w.pass(time.Second)
	again, _ := w.process("second")
	for _, step := range []struct {
		name string
		do   func(*world, *Client) error
		want error
	}{{"recovery", s.recover, nil}, {"retry", s.run, s.want}, {"DEL", s.refused, nil}} {
		if step.do == nil {
			continue
		}
		if err := step.do(w, again); !errors.Is(err, step.want) {
			t.Fatalf("the %s of a new process: %v, want %v", step.name, err, step.want)
		}
	}
	w.settled(s)
	if !lateFirst {
		faults.Deliver()
		w.settled(s)
	}
}

// settled compares store and ledger, gives everything back, and compares again.
func (w *world) settled(s scenario) {
	w.t.Helper()
	w.verify()
	w.claims()
	if s.after != nil {
		s.after(w)
	}
	for key := range w.ledger {
		o := block.Owner{Network: key.Network, ContainerID: key.ContainerID, IfName: key.IfName}
		if key == (block.Attachment{}) {
			w.create(w.c.ReleaseByHandle(w.t.Context(), "lb-1", ""))
			delete(w.ledger, key)
		} else if err := w.detach(w.c, o); err != nil {
			w.t.Errorf("give back %v: %v", key, err)
		}
	}
	w.verify()
}
