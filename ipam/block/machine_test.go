// SPDX-License-Identifier: Apache-2.0

package block

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// oracle is the dumb second implementation: the FIFO as a slice, the other
// states as maps from ordinal to record. It copies everything and knows no text.
type oracle struct {
	free     []int
	held     map[int]Slot
	cooling  map[int]Slot
	seq      uint64
	affinity Affinity
	claimed  time.Time
}

func (o *oracle) next(now time.Time) uint64 {
	o.seq = max(o.seq+1, uint64(now.UnixNano()))
	return o.seq
}

func (o *oracle) take(i int, r Request) uint64 {
	delete(o.cooling, i)
	o.free = slices.DeleteFunc(o.free, func(f int) bool { return f == i })
	seq := o.next(r.Now)
	o.held[i] = Slot{
		State: Allocated, Type: r.Type, Handle: r.Handle, Seq: seq,
		Since: r.Now.UTC().Truncate(time.Second), Active: r.Owner,
	}
	return seq
}

func (o *oracle) cool(i int, now time.Time) {
	s := o.held[i]
	delete(o.held, i)
	o.cooling[i] = Slot{
		State: Cooling, Type: s.Type, Seq: s.Seq, Active: s.Active,
		Released: now.UTC(), LastHandle: s.Handle,
	}
}

// machine drives a Block and the oracle together. old holds earlier values of
// the block with what they encoded to: none may ever change (D12, R15).
type machine struct {
	b     Block
	o     oracle
	clock time.Time
	old   []snapshot
}

type snapshot struct {
	b Block
	w Wire
}

var (
	handles = []HandleID{"net.c1", "net.c2", "ns.pod one", "-", "vm/%"}
	owners  = []Owner{
		{Network: "net", Namespace: "ns", Pod: "p1", PodUID: "u1", ContainerID: "c1", IfName: "eth0", Node: "node-a"},
		{Network: "net", Namespace: "ns", Pod: "p1", PodUID: "u1", ContainerID: "c2", IfName: "eth0", Node: "node-a"},
		{Network: "net", Namespace: "ns", Pod: "p1", PodUID: "u2", ContainerID: "c3", IfName: "eth0", Node: "node-a"},
		{Node: "node-b", NodeUID: "n2"},
		{},
	}
	affinities = []Affinity{{}, Host("node-a"), Host("node-b"), {VirtualAffinity, "lb"}}
)

// now moves the clock: mostly on, sometimes back (another host's, C10).
func (m *machine) now(t *rapid.T) time.Time {
	m.clock = m.clock.Add(time.Duration(rapid.Int64Range(-30e9, 60e9).Draw(t, "step")))
	return m.clock
}

func (m *machine) addr(t *rapid.T) (netip.Addr, int) {
	i := rapid.IntRange(0, m.b.Size()-1).Draw(t, "ordinal")
	return m.b.Addr(i), i
}

func (m *machine) request(t *rapid.T) Request {
	return Request{
		N:      rapid.IntRange(-1, min(m.b.Size()+1, 40)).Draw(t, "n"),
		Handle: rapid.SampledFrom(handles).Draw(t, "handle"),
		Type:   rapid.SampledFrom([]Type{Workload, VM, WindowsReserved, "satellite", ""}).Draw(t, "type"),
		Owner:  rapid.SampledFrom(owners).Draw(t, "owner"),
		Now:    m.now(t),
	}
}

// set makes next the current value and keeps the one before.
func (m *machine) set(next Block, before Wire) {
	m.old = append(m.old, snapshot{m.b, before})
	if len(m.old) > 3 {
		m.old = m.old[1:]
	}
	m.b = next
}

func (m *machine) Allocate(t *rapid.T) {
	r := m.request(t)
	mod := rapid.IntRange(0, 5).Draw(t, "unusable modulo")
	usable := func(i int) bool { return mod == 0 || i%mod != 0 }
	if mod != 0 {
		r.Usable = func(a netip.Addr) bool { i, _ := m.b.Ordinal(a); return usable(i) }
	}
	before := Encode(m.b)
	next, got := m.b.Allocate(r)
	var want []Allocation
	for _, i := range slices.Clone(m.o.free) {
		if len(want) < r.N && usable(i) {
			want = append(want, Allocation{Addr: m.b.Addr(i), Seq: m.o.take(i, r)})
		}
	}
	same(t, "allocated", want, got)
	m.set(next, before)
}

func (m *machine) Assign(t *rapid.T) {
	r := m.request(t)
	a, i := m.addr(t)
	before := Encode(m.b)
	next, got, err := m.b.Assign(a, r)
	c, isCooling := m.o.cooling[i]
	_, isHeld := m.o.held[i]
	mine := c.LastHandle == r.Handle ||
		(c.Active.PodUID != "" && c.Active.PodUID == r.Owner.PodUID) // owners differ in no other way
	switch {
	case isHeld && !errors.Is(err, ErrInUse), isCooling && !mine && !errors.Is(err, ErrCooling):
		t.Fatalf("assign %v: %v, %v", a, got, err)
	case isHeld, isCooling && !mine:
	case err != nil:
		t.Fatal(err)
	default:
		same(t, "assigned", Allocation{Addr: a, Seq: m.o.take(i, r)}, got)
	}
	m.set(next, before)
}

func (m *machine) Release(t *rapid.T) {
	now := m.now(t)
	var rs []Release
	var want []Outcome
	for range rapid.IntRange(0, 5).Draw(t, "releases") {
		a, i := m.addr(t)
		r := Release{Addr: a}
		s, held := m.o.held[i]
		wrong := rapid.SampledFrom([]Outcome{Released, StaleSeq, OtherHandle, OtherOwner}).Draw(t, "wrong")
		if held {
			r.Seq, r.Handle, r.Owner = s.Seq, s.Handle, &s.Active
		}
		switch wrong {
		case StaleSeq:
			r.Seq += 1 + m.o.seq
		case OtherHandle:
			r.Handle += "x"
		case OtherOwner:
			r.Owner = &Owner{PodUID: "other"}
		}
		if !held {
			wrong = AlreadyFree
		}
		rs, want = append(rs, r), append(want, wrong)
		if wrong == Released {
			m.o.cool(i, now)
		}
	}
	before := Encode(m.b)
	next, got := m.b.Release(rs, now)
	same(t, "outcomes", want, got)
	m.set(next, before)
}

func (m *machine) ReleaseWhere(t *rapid.T) {
	now := m.now(t)
	node := rapid.SampledFrom([]string{"node-a", "node-b", ""}).Draw(t, "node")
	before := Encode(m.b)
	next, got := m.b.ReleaseWhere(func(_ netip.Addr, s Slot) bool { return s.Active.Node == node }, now)
	m.sameReleased(t, got, now, func(s Slot) bool { return s.Active.Node == node })
	m.set(next, before)
}

func (m *machine) ReleaseHandle(t *rapid.T) {
	now := m.now(t)
	h := rapid.SampledFrom(append([]HandleID{"", "none"}, handles...)).Draw(t, "handle")
	before := Encode(m.b)
	next, got := m.b.ReleaseHandle(h, now)
	m.sameReleased(t, got, now, func(s Slot) bool { return s.Handle == h })
	m.set(next, before)
}

func (m *machine) sameReleased(t *rapid.T, got []netip.Addr, now time.Time, match func(Slot) bool) {
	var want []netip.Addr
	for _, i := range slices.Sorted(maps.Keys(m.o.held)) {
		if match(m.o.held[i]) {
			want = append(want, m.b.Addr(i))
			m.o.cool(i, now)
		}
	}
	if !slices.Equal(want, got) {
		t.Fatalf("released %v, want %v", got, want)
	}
}

func (m *machine) Collect(t *rapid.T) {
	now := m.now(t)
	cooldown := time.Duration(rapid.SampledFrom([]int{0, 10, 60, 1200}).Draw(t, "cooldown")) * time.Second
	before := Encode(m.b)
	next, n := m.b.Collect(now, cooldown)
	var due []int
	for i, s := range m.o.cooling {
		if s.Released.After(now) {
			s.Released = now
			m.o.cooling[i] = s
		}
		if now.Sub(s.Released) >= cooldown {
			due = append(due, i)
		}
	}
	slices.SortFunc(due, func(x, y int) int {
		sx, sy := m.o.cooling[x], m.o.cooling[y]
		if c := sx.Released.Compare(sy.Released); c != 0 {
			return c
		}
		if sx.Seq < sy.Seq {
			return -1
		}
		return 1
	})
	for _, i := range due {
		delete(m.o.cooling, i)
		m.o.free = append(m.o.free, i)
	}
	same(t, "collected", len(due), n)
	m.set(next, before)
}

func (m *machine) SetOwner(t *rapid.T) {
	now := m.now(t)
	a, i := m.addr(t)
	owner := rapid.Ptr(rapid.SampledFrom(owners), true)
	s, held := m.o.held[i]
	u := OwnerUpdate{
		Handle: rapid.Ptr(rapid.SampledFrom(handles), true).Draw(t, "handle"),
		Active: owner.Draw(t, "active"), Alternate: owner.Draw(t, "alternate"),
	}
	p := OwnerPrecondition{Active: owner.Draw(t, "if active"), Alternate: owner.Draw(t, "if alternate")}
	if rapid.Bool().Draw(t, "if as seen") {
		p.Seq, p.Handle = s.Seq, s.Handle
	}
	if rapid.IntRange(0, 9).Draw(t, "stale") == 0 {
		p.Seq = m.o.seq + 1
	}
	holds := held && (p.Seq == 0 || p.Seq == s.Seq) &&
		(p.Active == nil || *p.Active == s.Active) && (p.Alternate == nil || *p.Alternate == s.Alternate)
	before := Encode(m.b)
	next, got, err := m.b.SetOwner(a, u, p, now)
	switch {
	case !holds && !errors.Is(err, ErrStale), holds && err != nil:
		t.Fatalf("set owner of %v (held %v): %v", a, holds, err)
	case holds:
		if u.Handle != nil {
			s.Handle = *u.Handle
		}
		if u.Active != nil {
			s.Active = *u.Active
		}
		if u.Alternate != nil {
			s.Alternate = *u.Alternate
		}
		s.Seq = m.o.next(now)
		m.o.held[i] = s
		same(t, "owner set", Allocation{Addr: a, Seq: s.Seq}, got)
	}
	m.set(next, before)
}

func (m *machine) WithAffinity(t *rapid.T) {
	now := m.now(t)
	a := rapid.SampledFrom(affinities).Draw(t, "affinity")
	before := Encode(m.b)
	next := m.b.WithAffinity(a, now)
	if a != m.o.affinity {
		for i, s := range maps.Clone(m.o.held) {
			if s.Type == WindowsReserved {
				m.o.cool(i, now)
			}
		}
	}
	m.o.next(now)
	m.o.affinity, m.o.claimed = a, time.Time{}
	if a != (Affinity{}) {
		m.o.claimed = now
	}
	m.set(next, before)
}

// Reserve takes both ends of the block, as one host.
func (m *machine) Reserve(t *rapid.T) {
	h := HostReserved{rapid.IntRange(0, 3).Draw(t, "start"), rapid.IntRange(0, 3).Draw(t, "end")}
	r := m.request(t)
	before := Encode(m.b)
	next, missing := m.b.Reserve(h, r)
	r.Type = WindowsReserved
	want := 0
	for i := range m.b.Size() {
		if i >= h.StartOfBlock && i < m.b.Size()-h.EndOfBlock {
			continue
		}
		if s, held := m.o.held[i]; held {
			if s.Type != WindowsReserved || s.Handle != r.Handle || s.Active != r.Owner {
				want++
			}
			continue
		}
		if s, cooling := m.o.cooling[i]; cooling && s.LastHandle != r.Handle && !s.Active.SamePod(r.Owner) {
			want++
			continue
		}
		m.o.take(i, r)
	}
	same(t, "not to be had", want, missing)
	m.set(next, before)
	again, missing := m.b.Reserve(h, r)
	same(t, "not to be had again", want, missing)
	if w := Encode(again); !sameWire(Encode(m.b), w) {
		t.Fatalf("reserving again changed the block:\n%s", diffWire(Encode(m.b), w))
	}
}

func (m *machine) Fence(t *rapid.T) {
	now := m.now(t)
	before := Encode(m.b)
	next := m.b.Fence(now)
	m.o.next(now)
	m.set(next, before)
}

func (m *machine) EncodeDecode(t *rapid.T) {
	w := Encode(m.b)
	next, err := Decode(w)
	if err != nil {
		t.Fatal(err)
	}
	if p := next.Problems(); len(p) != 0 {
		t.Fatalf("own writing is called damaged: %q", p)
	}
	m.set(next, w)
}

// Check compares every observable of the block with the oracle.
func (m *machine) Check(t *rapid.T) {
	if err := m.b.Check(); err != nil {
		t.Fatal(err)
	}
	for _, s := range m.old {
		if w := Encode(s.b); !sameWire(s.w, w) {
			t.Fatalf("an earlier value changed (D12, R15):\n%s", diffWire(s.w, w))
		}
	}
	var queue []int
	for a := range m.b.Free() {
		i, _ := m.b.Ordinal(a)
		queue = append(queue, i)
	}
	if !slices.Equal(m.o.free, queue) {
		t.Fatalf("queue %v, want %v (INV-5)", queue, m.o.free)
	}
	want := maps.Clone(m.o.held)
	maps.Copy(want, m.o.cooling)
	got := map[int]Slot{}
	for a, s := range m.b.All() {
		i, _ := m.b.Ordinal(a)
		got[i] = s
	}
	if !maps.Equal(want, got) { // cmp.Diff at each step would take most of the run
		t.Fatalf("slots (-want +got):\n%s", cmp.Diff(want, got))
	}
	same(t, "counts", Counts{Free: len(m.o.free), Allocated: len(m.o.held), Cooling: len(m.o.cooling)}, m.b.Counts())
	same(t, "sequence (INV-15)", m.o.seq, m.b.Seq)
	same(t, "affinity", m.o.affinity, m.b.Affinity)
	if !m.o.claimed.Equal(m.b.ClaimedAt) {
		t.Fatalf("claimed %v, want %v", m.b.ClaimedAt, m.o.claimed)
	}
	m.checkLabels(t)
}

func (m *machine) checkLabels(t *rapid.T) {
	want := Labels{Pool: "p", Space: SpaceFull, Empty: len(m.o.cooling) == 0}
	if len(m.o.cooling) > 0 {
		want.Space = SpaceCooling
	}
	if len(m.o.free) > 0 {
		want.Space = SpaceFree
	}
	nodes := map[string]bool{}
	if m.o.affinity.Type == HostAffinity {
		nodes[m.o.affinity.Name] = true
	}
	for _, s := range m.o.held {
		nodes[s.Active.Node], nodes[s.Alternate.Node] = true, true
		want.Empty = want.Empty && s.Type == WindowsReserved
	}
	delete(nodes, "")
	want.Nodes = slices.Sorted(maps.Keys(nodes))
	same(t, "labels", want, m.b.Relabel("p", nil).Labels())
}

func sameWire(a, b Wire) bool {
	return a.Format == b.Format && a.CIDR == b.CIDR && a.Affinity == b.Affinity && a.ClaimedAt == b.ClaimedAt &&
		a.Sequence == b.Sequence && a.Queue == b.Queue && slices.Equal(a.Slots, b.Slots) && len(a.Extra) == len(b.Extra)
}

func same[V any](t *rapid.T, what string, want, got V) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

// TestMachine: whatever is done in whatever order, a block is what the oracle
// says: INV-4, INV-5, INV-7, INV-8, INV-15; cases C10, D12, D13, E7, R15.
func TestMachine(t *testing.T) {
	cidrs := map[string][]string{"v4": nil, "v6": nil}
	for bits := range 9 {
		cidrs["v4"] = append(cidrs["v4"], fmt.Sprintf("10.1.2.0/%d", 24+bits))
		cidrs["v6"] = append(cidrs["v6"], fmt.Sprintf("fd00:0:0:7::/%d", 120+bits))
	}
	for family, list := range cidrs {
		t.Run(family, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := machine{clock: t0, o: oracle{held: map[int]Slot{}, cooling: map[int]Slot{}}}
				m.o.affinity = rapid.SampledFrom(affinities).Draw(t, "affinity")
				m.o.seq = rapid.SampledFrom([]uint64{0, 5, uint64(t0.UnixNano()), uint64(t0.Add(time.Hour).UnixNano())}).Draw(t, "seq")
				if !m.o.affinity.IsZero() {
					m.o.claimed = t0
				}
				var err error
				m.b, err = New(netip.MustParsePrefix(rapid.SampledFrom(list).Draw(t, "cidr")), m.o.affinity, m.o.seq, t0)
				if err != nil {
					t.Fatal(err)
				}
				for i := range m.b.Size() {
					m.o.free = append(m.o.free, i)
				}
				t.Repeat(rapid.StateMachineActions(&m))
			})
		})
	}
}
