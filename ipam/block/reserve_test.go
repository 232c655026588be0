// SPDX-License-Identifier: Apache-2.0

package block

import (
	"net/netip"
	"testing"
	"time"
)

var windows = Request{Handle: "windows-reserved-ipam-handle", Owner: Owner{Node: "node-a"}}

// What a host reserves is neither handed out nor in the way of calling the block
// empty, and is given back when the block changes hands (INV-3, INV-4).
func TestReserve(t *testing.T) {
	t0 := time.Unix(1000, 0)
	b, err := New(netip.MustParsePrefix("10.0.0.0/29"), Host("node-a"), 1, t0)
	if err != nil {
		t.Fatal(err)
	}
	r := windows
	r.Now = t0
	b, missing := b.Reserve(HostReserved{StartOfBlock: 3, EndOfBlock: 1}, r)
	if missing != 0 || !b.Empty() || b.Counts() != (Counts{Free: 4, Allocated: 4}) {
		t.Fatalf("missing %d, empty %v, %+v", missing, b.Empty(), b.Counts())
	}
	full, got := b.Allocate(Request{N: 8, Handle: "h", Now: t0})
	for i, a := range got {
		if want := b.Addr(3 + i); a.Addr != want {
			t.Errorf("address %d is %s, want %s", i, a.Addr, want)
		}
	}
	if len(got) != 4 || full.Empty() {
		t.Fatalf("%d addresses, empty %v", len(got), full.Empty())
	}
	for _, to := range []Affinity{{}, Host("node-b")} {
		next := full.WithAffinity(to, t0.Add(time.Second))
		if c := next.Counts(); c != (Counts{Allocated: 4, Cooling: 4}) || next.Check() != nil {
			t.Errorf("to %v: %+v, %v", to, c, next.Check())
		}
	}
	if c := full.WithAffinity(Host("node-a"), t0).Counts(); c.Cooling != 0 {
		t.Errorf("the same owner lost what it had reserved: %+v", c)
	}
}

// An ordinal in other hands stays there, one that this host released comes back
// while it cools (case E7).
func TestReserveMissing(t *testing.T) {
	t0 := time.Unix(1000, 0)
	b, _ := New(netip.MustParsePrefix("10.0.0.0/29"), Host("node-a"), 1, t0)
	r := windows
	r.Now = t0
	b, _ = b.Reserve(HostReserved{EndOfBlock: 1}, r)
	b = b.WithAffinity(Affinity{}, t0).WithAffinity(Host("node-a"), t0)
	b, _, err := b.Assign(b.Addr(0), Request{Handle: "h", Now: t0})
	if err != nil {
		t.Fatal(err)
	}
	b, missing := b.Reserve(HostReserved{StartOfBlock: 2, EndOfBlock: 1}, r)
	if c := b.Counts(); missing != 1 || c != (Counts{Free: 5, Allocated: 3}) {
		t.Errorf("missing %d, %+v; want the one ordinal that h holds", missing, c)
	}
	for _, bad := range []HostReserved{{-1, 0}, {0, -1}, {255, 1}, {1 << 62, 1 << 62}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
