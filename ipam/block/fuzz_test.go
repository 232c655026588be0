// SPDX-License-Identifier: Apache-2.0

package block

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func alwaysRelease(netip.Addr, Slot) bool { return true }

func contains(lines []string, line string) bool { return slices.Contains(lines, line) }

var seedLines = []string{
	"",
	"0",
	"0 allocated - 0",
	"3 allocated %2D 5 type=vm vm=a%20b vmi=u alt-pod=ns/b alt-node=m later=1",
	"4 cooling - 17 type=workload released=2026-12-01T10:03:11.5Z last=net.c1 net=net pod=shop/web-9 uid=u cid=c1 if=eth0 node=n",
	"6 allocated net.c2 18 type=workload since=2026-12-01T10:02:00+01:00 net=net pod=shop/web-0 uid=v cid=c2 if=eth0 node=n",
	"6 allocated net.c2 18446744073709551615 uid=a uid=b",
	"65535 allocated h 1 pod=/ x=%zz",
	"1 cooling h 5",
}

// FuzzLine: no panic; what parses is written in one canonical way that means the
// same; what does not parse is written back verbatim.
func FuzzLine(f *testing.F) {
	for _, s := range seedLines {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		o, s, err := parseLine(line)
		if err != nil {
			kept := Slot{State: Allocated, Raw: line}
			if line != "" && formatLine(0, &kept) != line { // "" has no ordinal: never in a slot
				t.Fatalf("%q is not kept", line)
			}
			return
		}
		out := formatLine(o, &s)
		o2, s2, err := parseLine(out)
		if err != nil || o2 != o {
			t.Fatalf("%q became %q: ordinal %d, %v", line, out, o2, err)
		}
		if d := cmp.Diff(s, s2); d != "" {
			t.Fatalf("%q became %q:\n%s", line, out, d)
		}
		if again := formatLine(o2, &s2); again != out {
			t.Fatalf("no fixpoint: %q, %q", out, again)
		}
		if d := cmp.Diff(unknownFields(line), strings.Fields(s.Extra), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%q: unknown fields (-in the line +kept):\n%s", line, d)
		}
	})
}

// unknownFields lists the fields of a good line that the grammar does not name,
// from a list of its own.
func unknownFields(line string) (out []string) {
	owner := []string{"net", "pod", "uid", "cid", "if", "node", "vm", "vmi", "nodeuid"}
	for _, token := range strings.Split(line, " ")[4:] {
		key, _, _ := strings.Cut(token, "=")
		if slices.Contains([]string{"type", "since", "released", "last"}, key) ||
			slices.Contains(owner, strings.TrimPrefix(key, "alt-")) {
			continue
		}
		out = append(out, token)
	}
	return out
}

// FuzzQueue: no panic, bounded, and a fixpoint.
func FuzzQueue(f *testing.F) {
	for _, s := range []string{"", "0-255", "7,0-3,5", "3,2,1", "0-2,3-5", "1-", "5-3", "256", "0-255,0-255,0-255"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := parseQueue(text)
		if len(q) > 2*MaxSize {
			t.Fatalf("%d ordinals", len(q))
		}
		out := formatQueue(q)
		back, err2 := parseQueue(out)
		if err2 != nil || !slices.Equal(q, back) {
			t.Fatalf("%q (%v) became %q: %v, %v", text, err, out, back, err2)
		}
	})
}

// FuzzDecode: total for every CIDR that is a block; the value passes Check; no
// address that any readable line names is free; no line and no unknown field is
// lost, also not by changes to other ordinals (INV-2, INV-4).
func FuzzDecode(f *testing.F) {
	all := strings.Join(seedLines, "\n")
	f.Add("10.64.0.64/29", 1, "host:node-a", "2026-12-01T10:00:00Z", "17", "7,0-3,5", all)
	f.Add("fd00::40/125", 2, "virtual:lb", "", "99", "0-7", "")
	f.Add("10.0.0.0/24", 0, "", "x", "", "0-255,0-255", "1 allocated a 1\n1 allocated b 2\n1 bad\n1 cooling - 3")
	f.Add("255.255.255.255/32", -1, ":", "", "18446744073709551615", "", "0 allocated h 18446744073709551615")
	f.Add("10.0.0.0/33", 1, "", "", "", "", "")
	f.Fuzz(func(t *testing.T, cidr string, format int, affinity, claimed, seq, queue, lines string) {
		w := Wire{
			Format: format, CIDR: cidr, Affinity: affinity, ClaimedAt: claimed, Sequence: seq, Queue: queue,
			Extra: []Extra{{Key: "later", JSON: []byte(`{"a":[1]}`)}},
		}
		if lines != "" {
			w.Slots = strings.Split(lines, "\n")
		}
		b, err := Decode(w)
		if err != nil {
			p, perr := netip.ParsePrefix(cidr)
			if perr != nil {
				return
			}
			if _, nerr := New(p, Affinity{}, 0, t0); nerr == nil {
				t.Fatalf("a block of %v can be made but not decoded: %v", p, err)
			}
			return
		}
		examine(t, w, b)
	})
}

func examine(t *testing.T, w Wire, b Block) {
	t.Helper()
	check := func(what string, b Block) {
		t.Helper()
		if err := b.Check(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		keepsLines(t, w.Slots, Encode(b))
	}
	check("decoded", b)
	lineOf := map[int]string{}
	for _, line := range w.Slots {
		if o, err := lineOrdinal(line); err == nil {
			lineOf[o] = line
		}
	}
	queue, _ := parseQueue(w.Queue)
	for a := range b.Free() {
		o, _ := b.Ordinal(a)
		if line, ok := lineOf[o]; ok || !slices.Contains(queue, uint16(o)) {
			t.Fatalf("%v is free: line %q, queue %q", a, line, w.Queue)
		}
	}
	stored := Encode(b)
	back, err := Decode(stored)
	if err != nil {
		t.Fatal(err)
	}
	if d := diffWire(stored, Encode(back)); d != "" {
		t.Fatalf("no fixpoint:\n%s", d)
	}
	before := b.Counts()
	if c := back.Counts(); c != before {
		t.Fatalf("counts %+v, written and read %+v", before, c)
	}
	next, got := b.Allocate(Request{N: MaxSize, Handle: "new", Now: t0})
	if len(got) != before.Free {
		t.Fatalf("%d of %d free addresses handed out", len(got), before.Free)
	}
	check("allocated", next)
	for _, g := range got {
		if g.Seq <= b.Seq {
			t.Fatalf("%v has sequence %d, the block had %d (INV-15)", g.Addr, g.Seq, b.Seq)
		}
	}
	var rs []Release
	for _, g := range got {
		rs = append(rs, Release{Addr: g.Addr, Seq: g.Seq})
	}
	next, outcomes := next.Release(rs, t0)
	for i, o := range outcomes {
		if o != Released {
			t.Fatalf("%v: %v", rs[i], o)
		}
	}
	check("released", next)
	if d := diffWire(stored, Encode(b)); d != "" {
		t.Fatalf("receiver changed (INV-7, D12):\n%s", d)
	}
	freed, _ := back.Collect(t0.Add(time.Hour), 0)
	if err := freed.Check(); err != nil {
		t.Fatal(err)
	}
}

// keepsLines demands that every line that can't be read is in w verbatim, and of
// the lines that can, that none is dropped: its canonical form is there.
func keepsLines(t *testing.T, lines []string, w Wire) {
	t.Helper()
	have := map[string]int{}
	for _, l := range w.Slots {
		have[l]++
	}
	for _, l := range lines {
		if o, s, err := parseLine(l); err == nil && have[l] == 0 {
			l = formatLine(o, &s)
		}
		if have[l]--; have[l] < 0 {
			t.Fatalf("line %q is lost; have %q", l, w.Slots)
		}
	}
	if len(w.Extra) != 1 || w.Extra[0].Key != "later" || string(w.Extra[0].JSON) != `{"a":[1]}` {
		t.Fatalf("unknown spec field is %v", w.Extra)
	}
}
