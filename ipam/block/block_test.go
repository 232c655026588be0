// SPDX-License-Identifier: Apache-2.0

package block

import (
	"errors"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var t0 = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

func mustNew(t testing.TB, cidr string) Block {
	t.Helper()
	b, err := New(netip.MustParsePrefix(cidr), Host("node-a"), 0, t0)
	if err != nil {
		t.Fatalf("New(%s): %v", cidr, err)
	}
	return b
}

func mustDecode(t testing.TB, w Wire) Block {
	t.Helper()
	b, err := Decode(w)
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	if err := b.Check(); err != nil {
		t.Fatalf("Check after Decode: %v", err)
	}
	return b
}

// diffWire compares stored forms; nil and empty are the same text.
func diffWire(want, got Wire) string { return cmp.Diff(want, got, cmpopts.EquateEmpty()) }

// addrs collects the free addresses in their order.
func free(b Block) []string {
	var out []string
	for a := range b.Free() {
		out = append(out, a.String())
	}
	return out
}

func TestNewRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		cidr netip.Prefix
		want string
	}{
		"zero prefix":    {netip.Prefix{}, "not a CIDR"},
		"host bits":      {netip.MustParsePrefix("10.0.0.1/26"), "want 10.0.0.0/26"},
		"v4 too large":   {netip.MustParsePrefix("10.0.0.0/23"), "more than 256"},
		"v6 too large":   {netip.MustParsePrefix("fd00::/119"), "more than 256"},
		"whole v6":       {netip.MustParsePrefix("::/0"), "more than 256"},
		"v4 mapped (C2)": {netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 122), "not a CIDR"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(tc.cidr, Affinity{}, 0, t0)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("err = %v, want it to say %q", err, tc.want)
			}
		})
	}
}

// Case C1 and C5: blocks at both ends of the address space, and the smallest
// ones, hand out every address they have, once.
func TestEndsOfAddressSpaceC1C5(t *testing.T) {
	for _, tc := range []struct {
		cidr, first, last string
		size              int
	}{
		{"0.0.0.0/24", "0.0.0.0", "0.0.0.255", 256},
		{"255.255.255.0/24", "255.255.255.0", "255.255.255.255", 256},
		{"255.255.255.192/26", "255.255.255.192", "255.255.255.255", 64},
		{"255.255.255.254/31", "255.255.255.254", "255.255.255.255", 2},
		{"255.255.255.255/32", "255.255.255.255", "255.255.255.255", 1},
		{"::/120", "::", "::ff", 256},
		{
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffc0/122", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffc0",
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 64,
		},
		{"fd00::2/127", "fd00::2", "fd00::3", 2},
		{"fd00::7/128", "fd00::7", "fd00::7", 1},
	} {
		t.Run(tc.cidr, func(t *testing.T) {
			b := mustNew(t, tc.cidr)
			if b.Size() != tc.size {
				t.Fatalf("Size = %d, want %d", b.Size(), tc.size)
			}
			r := b.Range()
			if r.From().String() != tc.first || r.To().String() != tc.last {
				t.Fatalf("Range = %v, want %s-%s", r, tc.first, tc.last)
			}
			a := r.From()
			for i := range b.Size() {
				if got := b.Addr(i); got != a {
					t.Fatalf("Addr(%d) = %v, want %v", i, got, a)
				}
				if got, ok := b.Ordinal(a); !ok || got != i {
					t.Fatalf("Ordinal(%v) = %d, %v, want %d", a, got, ok, i)
				}
				a = a.Next()
			}
			full, got := b.Allocate(Request{N: MaxSize + 1, Handle: "h", Now: t0})
			if len(got) != tc.size || got[0].Addr != r.From() || got[tc.size-1].Addr != r.To() {
				t.Fatalf("allocated %d addresses, want the %d of the block", len(got), tc.size)
			}
			if err := full.Check(); err != nil {
				t.Fatal(err)
			}
			if d := diffWire(Encode(full), Encode(mustDecode(t, Encode(full)))); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestOutsideOfTheBlock(t *testing.T) {
	v4, v6 := mustNew(t, "10.0.0.64/26"), mustNew(t, "fd00::/122")
	for name, tc := range map[string]struct {
		b Block
		a netip.Addr
	}{
		"below":         {v4, netip.MustParseAddr("10.0.0.63")},
		"above":         {v4, netip.MustParseAddr("10.0.0.128")},
		"zero address":  {v4, netip.Addr{}},
		"v4 mapped":     {v4, netip.MustParseAddr("::ffff:10.0.0.64")},
		"other family":  {v4, netip.MustParseAddr("fd00::1")},
		"with a zone":   {v6, netip.MustParseAddr("fd00::1%eth0")},
		"of zero block": {Block{}, netip.MustParseAddr("10.0.0.64")},
	} {
		t.Run(name, func(t *testing.T) {
			if _, ok := tc.b.Ordinal(tc.a); ok || tc.b.Contains(tc.a) {
				t.Errorf("%v counts as inside %v", tc.a, tc.b.CIDR)
			}
			if _, ok := tc.b.Slot(tc.a); ok {
				t.Errorf("%v has a slot", tc.a)
			}
			if _, _, err := tc.b.Assign(tc.a, Request{Handle: "h", Now: t0}); !errors.Is(err, ErrNotInBlock) {
				t.Errorf("Assign: %v, want ErrNotInBlock", err)
			}
			if _, out := tc.b.Release([]Release{{Addr: tc.a}}, t0); out[0] != AlreadyFree {
				t.Errorf("Release: %v, want %v (INV-10)", out[0], AlreadyFree)
			}
			if _, _, err := tc.b.SetOwner(tc.a, OwnerUpdate{}, OwnerPrecondition{}, t0); !errors.Is(err, ErrStale) {
				t.Errorf("SetOwner: %v, want ErrStale", err)
			}
		})
	}
}

func TestAllocateOfNothing(t *testing.T) {
	for _, n := range []int{0, -1, math.MinInt} {
		b, got := mustNew(t, "10.0.0.0/30").Allocate(Request{N: n, Handle: "h", Now: t0})
		if len(got) != 0 || b.Counts().Free != 4 {
			t.Errorf("N=%d handed out %v", n, got)
		}
	}
}

// An attachment without a container ID identifies nobody, so a DEL of it must not
// meet slots that have none either: tunnels, services, or an absent alternate
// owner (INV-2, INV-8).
func TestHoldsNeedsAContainer(t *testing.T) {
	at := Attachment{Network: "net", ContainerID: "c1", IfName: "eth0"}
	pod := Owner{Network: "net", ContainerID: "c1", IfName: "eth0", Pod: "p"}
	target := Owner{Network: "net", ContainerID: "c2", IfName: "eth0"}
	for name, tc := range map[string]struct {
		s    Slot
		a    Attachment
		want bool
	}{
		"active":                {Slot{State: Allocated, Handle: "h", Active: pod}, at, true},
		"alternate":             {Slot{State: Allocated, Handle: "h", Active: target, Alternate: pod}, at, true},
		"other container":       {Slot{State: Allocated, Handle: "h", Active: target}, at, false},
		"cooling":               {Slot{State: Cooling, LastHandle: "h", Active: pod}, at, false},
		"no handle: unknown":    {Slot{State: Allocated, Active: pod}, at, false},
		"nobody, no alternate":  {Slot{State: Allocated, Handle: "h", Active: pod}, Attachment{}, false},
		"nobody, tunnel":        {Slot{State: Allocated, Handle: "h", Active: Owner{Node: "n"}}, Attachment{}, false},
		"network, imported pod": {Slot{State: Allocated, Handle: "h", Active: Owner{Network: "net"}}, Attachment{Network: "net"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.s.Holds(tc.a); got != tc.want {
				t.Errorf("Holds = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestSamePodNeedsAUID(t *testing.T) {
	pod := Owner{Network: "net", PodUID: "u1", IfName: "eth0", Node: "n", Pod: "web-0", ContainerID: "c1"}
	change := func(f func(*Owner)) Owner { o := pod; f(&o); return o }
	for name, tc := range map[string]struct {
		o    Owner
		want bool
	}{
		"itself":                  {pod, true},
		"new sandbox (R3)":        {change(func(o *Owner) { o.ContainerID = "c2" }), true},
		"other UID, same name S1": {change(func(o *Owner) { o.PodUID = "u2" }), false},
		"other interface":         {change(func(o *Owner) { o.IfName = "net1" }), false},
		"other network":           {change(func(o *Owner) { o.Network = "n2" }), false},
		"other node":              {change(func(o *Owner) { o.Node = "m" }), false},
		"no UID":                  {change(func(o *Owner) { o.PodUID = "" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := pod.SamePod(tc.o); got != tc.want {
				t.Errorf("SamePod = %v, want %v", got, tc.want)
			}
		})
	}
	if pod.IsZero() || !(Owner{}).IsZero() {
		t.Error("IsZero")
	}
	noUID := change(func(o *Owner) { o.PodUID = "" })
	if noUID.SamePod(noUID) {
		t.Error("a name alone is taken for an identity (INV-8)")
	}
}

// INV-15: a sequence can't wrap: one that leaves no room to grow is damage.
func TestSequenceCannotWrapINV15(t *testing.T) {
	top := "18446744073709551615"
	b := mustDecode(t, Wire{CIDR: "10.0.0.0/30", Sequence: top, Queue: "0-2", Slots: []string{"3 allocated h " + top}})
	b2, got := b.Allocate(Request{N: 2, Handle: "h", Now: t0})
	if len(got) != 2 || got[0].Seq <= b.Seq || got[1].Seq <= got[0].Seq || b2.Seq != got[1].Seq {
		t.Errorf("sequences %v after %d", got, b.Seq)
	}
	if len(b.Problems()) == 0 {
		t.Error("not reported")
	}
	if w := Encode(b2); w.Slots[2] != "3 allocated h "+top {
		t.Errorf("slots %q: a line that can't be right is not kept", w.Slots)
	}
}

// A wrong clock may not write what the grammar does not read: the address would
// come back as an unknown owner's and stay for ever (INV-3, C10).
func TestClockOutsideOfTheGrammarC10(t *testing.T) {
	for _, now := range []time.Time{
		{},
		time.Date(1969, 12, 31, 23, 59, 59, 1, time.UTC),
		time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 30, 0, 0, time.FixedZone("west", -3600)),
		time.Date(1970, 1, 1, 0, 30, 0, 0, time.FixedZone("east", 3600)),
	} {
		t.Run(now.String(), func(t *testing.T) {
			b, err := New(netip.MustParsePrefix("10.0.0.0/30"), Host("node-a"), 7, now)
			if err != nil {
				t.Fatal(err)
			}
			b, _ = b.Allocate(Request{N: 2, Handle: "h", Now: now})
			b, _ = b.Release([]Release{{Addr: b.Addr(0)}}, now)
			b = b.WithAffinity(Host("node-b"), now).Fence(now)
			if err := b.Check(); err != nil {
				t.Error(err)
			}
			back := mustDecode(t, Encode(b))
			if p := back.Problems(); len(p) != 0 {
				t.Errorf("problems: %q", p)
			}
			if want := (Counts{Free: 2, Allocated: 1, Cooling: 1}); back.Counts() != want {
				t.Errorf("counts %+v, want %+v", back.Counts(), want)
			}
			if back.ClaimedAt.IsZero() {
				t.Error("claim time lost")
			}
		})
	}
}

// E7 gives an address back to who last held it. "Nobody knows who" is no one.
func TestNobodyTakesBackACoolingAddressE7(t *testing.T) {
	b := mustDecode(t, Wire{
		CIDR: "10.0.0.0/32", Sequence: "9",
		Slots: []string{"0 cooling - 9 released=2026-12-01T10:00:00Z"},
	})
	if _, _, err := b.Assign(b.Addr(0), Request{Now: t0}); !errors.Is(err, ErrCooling) {
		t.Errorf("err = %v, want ErrCooling", err)
	}
}

func TestLabels(t *testing.T) {
	full := []string{
		`0 allocated h 1 type=workload node=node-c`,
		`1 allocated h 2 type=vm node=node-b alt-node=node-c`,
		`2 cooling - 3 released=2026-12-01T10:00:00Z node=node-z`,
	}
	only := func(want string) func(netip.Addr) bool {
		return func(a netip.Addr) bool { return a.String() == want }
	}
	none := func(netip.Addr) bool { return false }
	for name, tc := range map[string]struct {
		w      Wire
		usable func(netip.Addr) bool
		want   Labels
	}{
		"fresh": {
			Wire{Queue: "0-3", Affinity: "host:node-a"},
			nil,
			Labels{Space: SpaceFree, Empty: true, Nodes: []string{"node-a"}},
		},
		"no affinity":      {Wire{Queue: "0-3"}, nil, Labels{Space: SpaceFree, Empty: true}},
		"virtual affinity": {Wire{Queue: "0-3", Affinity: "virtual:lb"}, nil, Labels{Space: SpaceFree, Empty: true}},
		"bare affinity":    {Wire{Queue: "0-3", Affinity: "n"}, nil, Labels{Space: SpaceFree, Empty: true, Nodes: []string{"n"}}},
		"mixed": {
			Wire{Queue: "3", Slots: full, Affinity: "host:node-c"},
			nil,
			Labels{Space: SpaceFree, Nodes: []string{"node-b", "node-c"}},
		},
		"free one is reserved": {Wire{Queue: "3", Slots: full}, only("10.0.0.2"), Labels{Space: SpaceCooling, Nodes: []string{"node-b", "node-c"}}},
		"all are reserved":     {Wire{Queue: "3", Slots: full}, none, Labels{Space: SpaceFull, Nodes: []string{"node-b", "node-c"}}},
		"full":                 {Wire{Slots: []string{"0 allocated h 1", "1 allocated h 1", "2 allocated h 1", "3 allocated h 1"}}, nil, Labels{Space: SpaceFull}},
		"only cooling":         {Wire{Queue: "0-1,3", Slots: full[2:]}, nil, Labels{Space: SpaceFree}},
		"windows reserved": {
			Wire{Queue: "0-2", Slots: []string{"3 allocated windows-reserved-ipam-handle 1 type=windowsReserved"}},
			nil,
			Labels{Space: SpaceFree, Empty: true},
		},
		"unreadable line":   {Wire{Queue: "0-2", Slots: []string{"3 allocated"}}, nil, Labels{Space: SpaceFree}},
		"line of no place":  {Wire{Queue: "0-3", Slots: []string{"?"}}, nil, Labels{Space: SpaceFree}},
		"ordinal forgotten": {Wire{Queue: "0-2"}, nil, Labels{Space: SpaceFree}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.w.CIDR, tc.w.Sequence = "10.0.0.0/30", "9"
			tc.want.Pool = "p"
			b := mustDecode(t, tc.w).Relabel("p", tc.usable)
			if d := cmp.Diff(tc.want, b.Labels(), cmpopts.EquateEmpty()); d != "" {
				t.Errorf("labels (-want +got):\n%s", d)
			}
		})
	}
}

// A release needs no pool to keep the label honest: a full block with something
// cooling must be found by who looks for space (INV-3); a free one stays free.
func TestReleaseMovesTheSpaceLabel(t *testing.T) {
	for before, want := range map[Space]Space{SpaceFull: SpaceCooling, SpaceCooling: SpaceCooling, SpaceFree: SpaceFree} {
		b, _ := mustNew(t, "10.0.0.0/31").Allocate(Request{N: 2, Handle: "h", Now: t0})
		b.Space = before
		next, _ := b.ReleaseHandle("h", t0)
		if next.Space != want || b.Space != before {
			t.Errorf("%s became %s, want %s; receiver %s", before, next.Space, want, b.Space)
		}
		if same, _ := b.ReleaseHandle("other", t0); same.Space != before {
			t.Errorf("%s became %s although nothing was released", before, same.Space)
		}
	}
}

// An affinity without a type reads as host, also in the labels of a value that
// never went through a store: a node that misses its block would leak it (INV-3).
func TestNodesOfAnAffinityWithoutType(t *testing.T) {
	b := mustNew(t, "10.0.0.0/30")
	b.Affinity = Affinity{Name: "node-b"}
	if got := b.Nodes(); !slices.Equal(got, []string{"node-b"}) {
		t.Errorf("nodes %q", got)
	}
	if got := b.WithAffinity(Affinity{Name: "node-c"}, t0).Affinity; got != Host("node-c") {
		t.Errorf("affinity %+v", got)
	}
}

func TestAffinityText(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want Affinity
		out  string // "" = text
		bad  bool
	}{
		"none":          {text: "", want: Affinity{}},
		"host":          {text: "host:node-a", want: Host("node-a")},
		"virtual":       {text: "virtual:load-balancer", want: Affinity{VirtualAffinity, "load-balancer"}},
		"bare":          {text: "node-a", want: Host("node-a"), out: "host:node-a"},
		"empty type":    {text: ":node-a", want: Host("node-a"), out: "host:node-a"},
		"unknown type":  {text: "rack:r7", want: Affinity{"rack", "r7"}},
		"colon in name": {text: "host:a:b", want: Host("a:b")},
		"no name":       {text: "host:", bad: true},
		"colon only":    {text: ":", bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseAffinity(tc.text)
			if (err != nil) != tc.bad {
				t.Fatalf("err = %v", err)
			}
			if tc.bad {
				return
			}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if out := got.String(); out != tc.text && out != tc.out {
				t.Errorf("written as %q", out)
			}
		})
	}
	if got := (Affinity{Name: "n"}).String(); got != "host:n" {
		t.Errorf("empty type is written as %q", got)
	}
}

// An affinity that can't be read still is somebody's: the block must not look
// unclaimed, and the text must survive an update (INV-2).
func TestUnreadableAffinityIsNotNoneINV2(t *testing.T) {
	for _, text := range []string{"host:", "virtual:", ":"} {
		b := mustDecode(t, Wire{CIDR: "10.0.0.0/30", Affinity: text, Sequence: "1", Queue: "0-3"})
		if b.Affinity.IsZero() {
			t.Errorf("%q: looks unclaimed", text)
		}
		if len(b.Problems()) != 1 {
			t.Errorf("%q: problems %q", text, b.Problems())
		}
		b, _ = b.Allocate(Request{N: 1, Handle: "h", Now: t0})
		if got := Encode(b).Affinity; got != text {
			t.Errorf("%q: written back as %q", text, got)
		}
	}
}

func TestNewerFormat(t *testing.T) {
	for name, tc := range map[string]struct {
		format int
		want   error
	}{
		"absent (R15)": {0, nil},
		"negative":     {-3, nil},
		"this":         {Format, nil},
		"newer":        {Format + 1, ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			b := mustDecode(t, Wire{Format: tc.format, CIDR: "10.0.0.0/30", Sequence: "1", Queue: "0-3"})
			if err := b.Writable(); !errors.Is(err, tc.want) {
				t.Fatalf("Writable = %v, want %v", err, tc.want)
			}
			if got := Encode(b).Format; got != max(tc.format, 1) {
				t.Errorf("written as format %d", got)
			}
		})
	}
}

// Check must be able to fail, or no test that calls it says anything.
func TestCheckFindsEachFaultINV4INV15(t *testing.T) {
	good, _ := mustNew(t, "10.0.0.0/30").Allocate(Request{N: 1, Handle: "h", Now: t0})
	set := func(s Slot) func(*Block) { return func(b *Block) { b.slots[0] = &s } }
	for name, tc := range map[string]struct {
		damage func(*Block)
		want   string
	}{
		"none":              {func(*Block) {}, ""},
		"free and in use":   {func(b *Block) { b.queue = append(b.queue, 0) }, "also in the queue"},
		"free twice":        {func(b *Block) { b.queue = append(b.queue, 1) }, "2 times in the queue"},
		"lost":              {func(b *Block) { b.queue = b.queue[1:] }, "0 times in the queue"},
		"outside":           {func(b *Block) { b.queue = append(b.queue, 4) }, "queue holds ordinal 4"},
		"short":             {func(b *Block) { b.slots = b.slots[:3] }, "3 slots for 4"},
		"slot is free":      {set(Slot{State: Free}), "state free"},
		"unknown state":     {set(Slot{State: 9}), "state unknown"},
		"sequence above":    {set(Slot{State: Allocated, Handle: "h", Seq: math.MaxUint64}), "INV-15"},
		"cooling, handle":   {set(Slot{State: Cooling, Handle: "h", Released: t0}), "still has handle"},
		"cooling, no time":  {set(Slot{State: Cooling}), "without a release time"},
		"CIDR of host bits": {func(b *Block) { b.CIDR = netip.MustParsePrefix("10.0.0.1/30") }, "host bits"},
	} {
		t.Run(name, func(t *testing.T) {
			b := good.own()
			tc.damage(&b)
			err := b.Check()
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Check = %v, want it to say %q", err, tc.want)
			}
		})
	}
}

func TestAllAndFreeStopEarly(t *testing.T) {
	b, _ := mustNew(t, "10.0.0.0/29").Allocate(Request{N: 3, Handle: "h", Now: t0})
	var seen []string
	for a, s := range b.All() {
		if s.Handle != "h" {
			t.Errorf("slot %+v", s)
		}
		seen = append(seen, a.String())
		if len(seen) == 2 {
			break
		}
	}
	for a := range b.Free() {
		seen = append(seen, a.String())
		break
	}
	if d := cmp.Diff([]string{"10.0.0.0", "10.0.0.1", "10.0.0.3"}, seen); d != "" {
		t.Error(d)
	}
}

func TestNextFree(t *testing.T) {
	b := mustNew(t, "10.0.0.0/30")
	if _, ok := b.NextFree(time.Minute); ok {
		t.Error("nothing cools, yet there is a time")
	}
	b, _ = b.Allocate(Request{N: 2, Handle: "h", Now: t0})
	b, _ = b.Release([]Release{{Addr: b.Addr(0)}}, t0.Add(9*time.Second))
	b, _ = b.Release([]Release{{Addr: b.Addr(1)}}, t0.Add(3*time.Second))
	if at, ok := b.NextFree(time.Minute); !ok || !at.Equal(t0.Add(63*time.Second)) {
		t.Errorf("NextFree = %v, %v", at, ok)
	}
}

func TestOutcomeText(t *testing.T) {
	seen := map[string]bool{}
	for o := range UnknownOwner + 2 {
		seen[o.String()] = true
	}
	// 0 and UnknownOwner+1 are the two that are no outcome.
	if want := int(UnknownOwner) + 1; len(seen) != want || !seen["unknown outcome"] {
		t.Errorf("%d distinct texts, want %d: %v", len(seen), want, seen)
	}
}
