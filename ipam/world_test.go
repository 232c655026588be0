// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/pool"
)

// world is a store, a clock, and the ledger of what the test itself knows to be
// attached. The ledger is never read from the store.
type world struct {
	t      *testing.T
	mem    *memstore.Store
	clock  *clocktesting.FakePassiveClock
	c      *Client // without faults
	ledger map[block.Attachment][]netip.Addr
}

var epoch = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

func newWorld(t *testing.T) *world {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(epoch)
	mem := memstore.New(memstore.Options{Clock: clock})
	w := &world{t: t, mem: mem, clock: clock, ledger: make(map[block.Attachment][]netip.Addr)}
	w.c = New(mem.Store(), Options{Clock: clock})
	return w
}

// process is a client with faults of its own, as a newly started process has.
func (w *world) process(name string) (*Client, *memstore.Faults) {
	s, f := w.mem.Client(name)
	return New(s, Options{Clock: w.clock}), f
}

func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

func (w *world) pool(name, cidr string, set func(*pool.Spec)) pool.Pool {
	w.t.Helper()
	s := pool.Spec{CIDR: netip.MustParsePrefix(cidr)}
	if set != nil {
		set(&s)
	}
	e, err := w.mem.Store().Pools.Create(w.t.Context(), name, pool.Pool{Name: name, Spec: s.WithDefaults()})
	if err != nil {
		w.t.Fatalf("create pool %s: %v", name, err)
	}
	return e.Value
}

func size(bits int) func(*pool.Spec) { return func(s *pool.Spec) { s.BlockSize = bits } }

func (w *world) reserve(name string, cidrs ...string) {
	w.t.Helper()
	r := pool.Reservation{Name: name}
	for _, c := range cidrs {
		r.CIDRs = append(r.CIDRs, netip.MustParsePrefix(c))
	}
	if _, err := w.mem.Store().Reservations.Create(w.t.Context(), name, r); err != nil {
		w.t.Fatalf("create reservation %s: %v", name, err)
	}
}

func (w *world) config(set func(*datastore.Config)) {
	w.t.Helper()
	c, err := w.c.Config(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	set(&c)
	if err := w.c.SetConfig(w.t.Context(), c); err != nil {
		w.t.Fatalf("set config: %v", err)
	}
}

// pod is an attachment of a pod on a node; container may change while uid stays.
func pod(node, uid, container string) block.Owner {
	return block.Owner{
		Network: "net", Namespace: "shop", Pod: "pod-" + uid, PodUID: uid,
		ContainerID: container, IfName: "eth0", Node: node,
	}
}

func request(o block.Owner, n4, n6 int) AttachRequest {
	return AttachRequest{AutoAssignRequest: AutoAssignRequest{
		Num4: n4, Num6: n6, Owner: o, Host: pool.Node{Name: o.Node},
		Namespace: pool.Namespace{Name: o.Namespace}, Use: pool.UseWorkload,
	}}
}

func auto(node, handle string, n4, n6 int) AutoAssignRequest {
	return AutoAssignRequest{
		Num4: n4, Num6: n6, Handle: block.HandleID(handle), Type: block.LoadBalancer,
		Owner: block.Owner{Node: node, Namespace: "shop", Pod: handle}, Host: pool.Node{Name: node}, Use: pool.UseWorkload,
	}
}

// attach does an ADD and enters it into the ledger.
func (w *world) attach(c *Client, r AttachRequest) ([]netip.Addr, error) {
	w.t.Helper()
	got, err := c.Attach(w.t.Context(), r)
	if err != nil {
		return nil, err
	}
	w.ledger[r.Owner.Attachment()] = addrs(got.All())
	return addrs(got.All()), nil
}

func (w *world) mustAttach(o block.Owner, n4, n6 int) []netip.Addr {
	w.t.Helper()
	got, err := w.attach(w.c, request(o, n4, n6))
	if err != nil {
		w.t.Fatalf("attach %s: %v", o.ContainerID, err)
	}
	return got
}

func (w *world) detach(c *Client, o block.Owner) error {
	w.t.Helper()
	_, err := c.Detach(w.t.Context(), DetachRequest{
		Attachment: o.Attachment(), Namespace: o.Namespace, Pod: o.Pod, PodUID: o.PodUID, Node: o.Node,
	})
	if err == nil {
		delete(w.ledger, o.Attachment())
	}
	return err
}

func (w *world) mustDetach(o block.Owner) {
	w.t.Helper()
	if err := w.detach(w.c, o); err != nil {
		w.t.Fatalf("detach %s: %v", o.ContainerID, err)
	}
}

func addrs(as []Assignment) []netip.Addr {
	out := make([]netip.Addr, 0, len(as))
	for _, a := range as {
		out = append(out, a.Addr)
	}
	return out
}

func (w *world) blocks() []blockEntry {
	w.t.Helper()
	es, err := w.mem.Store().Blocks.List(w.t.Context(), datastore.Query{})
	if err != nil {
		w.t.Fatal(err)
	}
	return es
}

func (w *world) block(cidr string) block.Block {
	w.t.Helper()
	e, err := w.mem.Store().Blocks.Get(w.t.Context(), netip.MustParsePrefix(cidr))
	if err != nil {
		w.t.Fatalf("block %s: %v", cidr, err)
	}
	return e.Value
}

func (w *world) affinity(node, cidr string) (datastore.Affinity, bool) {
	w.t.Helper()
	key := datastore.AffinityKey{Owner: block.Host(node), CIDR: netip.MustParsePrefix(cidr)}
	e, err := w.mem.Store().Affinities.Get(w.t.Context(), key)
	return e.Value, err == nil
}

// verify compares the store with the ledger: every block passes Check (INV-4,
// INV-15), no address is held twice (INV-1), what is in blocks is what is attached
// (INV-2, INV-3), and labels agree with content.
func (w *world) verify() {
	w.t.Helper()
	for _, p := range w.wrong() {
		w.t.Error(p)
	}
}

func (w *world) wrong() (problems []string) {
	w.t.Helper()
	inStore := make(map[netip.Addr]block.Attachment)
	for _, e := range w.blocks() {
		if err := e.Value.Check(); err != nil {
			problems = append(problems, err.Error())
		}
		for a, s := range e.Value.All() {
			if s.State == block.Allocated && s.Type == block.WindowsReserved {
				if e.Value.Affinity != block.Host(s.Active.Node) {
					problems = append(problems, fmt.Sprintf("%s is reserved by %s and the block is of %q", a, s.Active.Node, e.Value.Affinity))
				}
				continue
			}
			if s.State != block.Allocated {
				continue
			}
			if _, twice := inStore[a]; twice {
				problems = append(problems, fmt.Sprintf("%s is in two blocks", a))
			}
			inStore[a] = s.Active.Attachment()
		}
	}
	for key, as := range w.ledger {
		for _, a := range as {
			if got, ok := inStore[a]; !ok || got != key {
				problems = append(problems, fmt.Sprintf("%s is attached to %v; the store says %v", a, key, got))
			}
			delete(inStore, a)
		}
	}
	for a, key := range inStore {
		problems = append(problems, fmt.Sprintf("%s leaked: the store says %v, nobody is attached", a, key))
	}
	slices.Sort(problems)
	return problems
}

// claims checks INV-6 at rest: every block with a host affinity has a confirmed
// affinity object of that host, and no other affinity object is confirmed for it.
func (w *world) claims() {
	w.t.Helper()
	es, err := w.mem.Store().Affinities.List(w.t.Context(), datastore.Query{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, b := range w.blocks() {
		if b.Value.Affinity.IsZero() {
			continue
		}
		i := slices.IndexFunc(es, func(e affinityEntry) bool {
			return e.Key == datastore.AffinityKey{Owner: b.Value.Affinity, CIDR: b.Key}
		})
		if i < 0 || es[i].Value.State != datastore.Confirmed {
			w.t.Errorf("block %s names %s, whose affinity is missing or not confirmed", b.Key, b.Value.Affinity)
		}
	}
}
