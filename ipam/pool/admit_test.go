// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// born sets the age of a pool: minutes after an arbitrary start.
func born(minute int) func(*Pool) {
	return func(p *Pool) { p.Created = epoch.Add(time.Duration(minute) * time.Minute) }
}

// was gives a pool the status of an earlier admission.
func was(reason string) func(*Pool) {
	return func(p *Pool) {
		p.Generation = 1
		p.Status = Status{Finalizer: true, Allocatable: reason == ReasonOK, Reason: reason, ObservedGeneration: 1}
	}
}

func deleting(p *Pool) { p.Deleting = true }

func disabled(p *Pool) { p.Spec.Disabled = true }

func blockSize(n int) func(*Pool) { return spec(func(s *Spec) { s.BlockSize = n }) }

func TestAdmit(t *testing.T) {
	for _, c := range []struct {
		name   string
		pools  []Pool
		blocks []netip.Prefix
		want   []string // "name reason", in the order given
	}{
		{"nothing", nil, nil, nil},
		{"one", []Pool{valid("a", "10.0.0.0/16")}, cidrs("10.0.0.0/26"), []string{"a OK"}},
		{"both families, side by side", []Pool{valid("a", "10.0.0.0/16"), valid("b", "fd00::/64"), valid("c", "10.1.0.0/16")}, nil, []string{"a OK", "b OK", "c OK"}},
		{"disabled", []Pool{valid("a", "10.0.0.0/16", disabled)}, nil, []string{"a Disabled"}},
		{"being deleted", []Pool{valid("a", "10.0.0.0/16", deleting, was(ReasonOK))}, nil, []string{"a Terminating"}},
		{"invalid", []Pool{valid("a", "10.0.0.0/16", spec(func(s *Spec) { s.NodeSelector = "all()" }))}, nil, []string{"a Invalid"}},

		{"case D10: the older of two", []Pool{valid("a", "10.0.0.0/16", born(2)), valid("b", "10.0.1.0/24", born(1))}, nil, []string{"a CIDROverlap", "b OK"}},
		{"of the same age: by name", []Pool{valid("b", "10.0.0.0/16"), valid("a", "10.0.0.0/16")}, nil, []string{"b CIDROverlap", "a OK"}},
		{"admitted goes before older", []Pool{valid("a", "10.0.0.0/16", born(1)), valid("b", "10.0.0.0/16", born(2), was(ReasonOK))}, nil, []string{"a CIDROverlap", "b OK"}},
		{
			"both admitted: the older",
			[]Pool{valid("a", "10.0.0.0/16", born(2), was(ReasonOK)), valid("b", "10.0.0.0/16", born(1), was(ReasonOK))},
			nil,
			[]string{"a CIDROverlap", "b OK"},
		},
		{
			"admitted goes before deleted, deleted before new",
			[]Pool{valid("a", "10.0.0.0/8", born(1)), valid("b", "10.0.0.0/16", born(2), deleting, was(ReasonOK)), valid("c", "10.0.1.0/24", born(3), was(ReasonOK))},
			nil,
			[]string{"a CIDROverlap", "b Terminating", "c OK"},
		},
		{
			"a deleted pool keeps what an admitted one leaves",
			[]Pool{valid("new", "10.0.2.0/24", born(3)), valid("b", "10.0.0.0/16", born(2), deleting, was(ReasonOK)), valid("c", "10.0.1.0/24", born(1), was(ReasonOK))},
			nil,
			[]string{"new CIDROverlap", "b Terminating", "c OK"},
		},
		{
			"a pool that lost keeps nothing",
			[]Pool{valid("a", "10.0.0.0/24", born(1)), valid("b", "10.0.0.0/8", born(2)), valid("c", "10.1.0.0/16", born(3))},
			nil,
			[]string{"a OK", "b CIDROverlap", "c OK"},
		},
		{
			"disabling does not give the range away",
			[]Pool{valid("a", "10.0.0.0/16", born(1)), valid("b", "10.0.0.0/16", born(2), disabled, was(ReasonOK))},
			nil,
			[]string{"a CIDROverlap", "b Disabled"},
		},
		{
			"nor does another pass while it is disabled",
			[]Pool{valid("a", "10.0.0.0/16", born(1)), valid("b", "10.0.0.0/16", born(2), disabled, was(ReasonDisabled))},
			nil,
			[]string{"a CIDROverlap", "b Disabled"},
		},
		{
			"a pool that once lost is no longer admitted",
			[]Pool{valid("a", "10.0.0.0/16", born(1)), valid("b", "10.0.0.0/16", born(2), was(ReasonCIDROverlap))},
			nil,
			[]string{"a OK", "b CIDROverlap"},
		},
		{
			"a finalizer alone is no admission",
			[]Pool{valid("a", "10.0.0.0/16", born(1)), valid("b", "10.0.0.0/16", born(2), was(""))},
			nil,
			[]string{"a OK", "b CIDROverlap"},
		},

		{"case C8: smaller blocks", []Pool{valid("a", "10.0.0.0/16")}, cidrs("10.0.0.64/26", "10.0.5.0/28"), []string{"a BlockSizeConflict"}},
		{"case C8: larger blocks", []Pool{valid("a", "10.0.0.0/16", blockSize(28))}, cidrs("10.0.0.64/26"), []string{"a BlockSizeConflict"}},
		{"case C8: a block wider than the pool", []Pool{valid("a", "10.0.0.128/28")}, cidrs("10.0.0.128/26"), []string{"a BlockSizeConflict"}},
		{"case C8: blocks of other pools", []Pool{valid("a", "10.0.0.0/16"), valid("b", "10.1.0.0/16", blockSize(28))}, cidrs("10.0.0.0/26", "10.1.0.0/28", "fd00::/122"), []string{"a OK", "b OK"}},
		{"case C8: the size was changed while blocks exist", []Pool{valid("a", "10.0.0.0/16", blockSize(28), was(ReasonOK))}, cidrs("10.0.0.0/26"), []string{"a BlockSizeConflict"}},
		{
			"the overlap is told before the block size, the block size before disabled",
			[]Pool{valid("a", "10.0.0.0/16", blockSize(28), disabled), valid("b", "10.0.0.0/16", blockSize(28))},
			cidrs("10.0.0.0/26"),
			[]string{"a BlockSizeConflict", "b CIDROverlap"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for i, p := range Admit(c.pools, c.blocks) {
				got = append(got, p.Name+" "+p.Status.Reason)
				if ok := p.Status.Reason == ReasonOK; p.Status.Allocatable != ok || ok && !p.Status.Finalizer ||
					p.Status.ObservedGeneration != p.Generation || c.pools[i].Status.Finalizer && !p.Status.Finalizer || p.Status.Message == "" {
					t.Errorf("%s: status %+v", p.Name, p.Status)
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("reasons (-want +got):\n%s", d)
			}
		})
	}
}

func TestAdmitMessages(t *testing.T) {
	pools := Admit([]Pool{
		valid("first", "10.0.0.0/24", born(1)),
		valid("second", "10.0.0.0/16", born(2)),
		valid("third", "10.1.0.0/16", born(3)),
		valid("fourth", "10.2.0.0/16", born(4), spec(func(s *Spec) { s.NodeSelector, s.IPIPMode, s.VXLANMode = "all()", Always, Always })),
	}, cidrs("10.1.9.0/28", "10.1.0.16/28", "10.1.3.0/26"))
	for i, want := range [][]string{
		{"hands out"},
		{"10.0.0.0/16", "pool first (10.0.0.0/24)", "delete"},
		{"block 10.1.0.16/28", "spec.blockSize 26", "(blocks of other sizes: 2)", "set spec.blockSize to 28"},
		{"spec.nodeSelector", "leave it empty", "; spec.ipipMode"},
	} {
		for _, part := range want {
			if m := pools[i].Status.Message; !strings.Contains(m, part) || strings.Contains(m, "\n") {
				t.Errorf("%s: message %q; want %q in it, on one line", pools[i].Name, m, part)
			}
		}
	}
}

// drawPools returns up to six valid pools in one small space, with any past.
func drawPools(t *rapid.T) []Pool {
	var out []Pool
	for _, name := range []string{"a", "b", "c", "d", "e", "f"}[:rapid.IntRange(0, 6).Draw(t, "pools")] {
		corner := rapid.SampledFrom([]string{"10.9.8.0", "fd00:1::"}).Draw(t, "family")
		p := Pool{Name: name, Spec: Spec{CIDR: drawPrefix(t, corner, 8)}}
		p.Spec.BlockSize = rapid.IntRange(p.Spec.CIDR.Bits(), p.Spec.CIDR.Addr().BitLen()).Draw(t, "block size")
		p.Spec.Disabled = rapid.IntRange(0, 4).Draw(t, "disabled") == 0
		p.Spec = p.Spec.WithDefaults()
		p.Deleting = rapid.IntRange(0, 4).Draw(t, "deleting") == 0
		p.Generation = int64(rapid.IntRange(1, 2).Draw(t, "generation"))
		born(rapid.IntRange(0, 2).Draw(t, "age"))(&p)
		p.Status = Status{
			Finalizer:          rapid.Bool().Draw(t, "finalizer"),
			Reason:             rapid.SampledFrom([]string{"", ReasonOK, ReasonDisabled, ReasonCIDROverlap, ReasonTerminating, ReasonBlockSizeConflict}).Draw(t, "reason"),
			ObservedGeneration: int64(rapid.IntRange(0, 2).Draw(t, "observed")),
		}
		p.Status.Allocatable = p.Status.Reason == ReasonOK
		out = append(out, p)
	}
	return out
}

// TestAdmitProperties: of overlapping pools at most one is allocatable, no block
// of another size is in it (case C8), a refused range has a holder, and the
// decision depends neither on the order of the pools nor on having been made
// before.
func TestAdmitProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pools := drawPools(t)
		var blocks []netip.Prefix
		for range rapid.IntRange(0, 3).Draw(t, "blocks") {
			blocks = append(blocks, drawPrefix(t, "10.9.8.0", 8))
		}
		before := slices.Clone(pools)
		got := Admit(pools, blocks)
		if d := cmp.Diff(before, pools, comparers); d != "" {
			t.Fatalf("the argument changed (-before +after):\n%s", d)
		}
		for i, p := range got {
			for j, q := range got {
				if i != j && p.Status.Allocatable && q.Status.Allocatable && p.Spec.CIDR.Overlaps(q.Spec.CIDR) {
					t.Fatalf("%s and %s overlap and both hand out", p.Name, q.Name)
				}
			}
			for _, b := range blocks {
				if p.Status.Allocatable && b.Overlaps(p.Spec.CIDR) && b.Bits() != p.Spec.BlockSize {
					t.Fatalf("%s hands out over block %v", p.Name, b)
				}
			}
			if p.Status.Reason == ReasonCIDROverlap && !slices.ContainsFunc(got, func(q Pool) bool {
				return q.Name != p.Name && q.Spec.CIDR.Overlaps(p.Spec.CIDR) && q.Status.Reason != ReasonCIDROverlap
			}) {
				t.Fatalf("%s lost its range to nobody", p.Name)
			}
		}
		second := Admit(got, blocks)
		noMessage := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Message" }, cmp.Ignore())
		if d := cmp.Diff(got, second, comparers, noMessage); d != "" {
			t.Fatalf("admitted again (-first +second):\n%s", d)
		}
		if d := cmp.Diff(second, Admit(second, blocks), comparers); d != "" {
			t.Fatalf("admitted a third time (-second +third):\n%s", d)
		}
		shuffled := Admit(rapid.Permutation(pools).Draw(t, "order"), blocks)
		slices.SortFunc(shuffled, func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
		if d := cmp.Diff(got, shuffled, comparers); d != "" {
			t.Fatalf("in another order (-first +second):\n%s", d)
		}
	})
}
