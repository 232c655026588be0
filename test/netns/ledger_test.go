// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/test/fixture"
)

// ledger is the test's own record of who was told to have which addresses. It is
// written from the answers of plugin processes and never read from Allod, so that
// a mistake in Allod's record cannot hide. Safe for concurrent use.
type ledger struct {
	mu    sync.Mutex
	lines []line
}

// line is one answered ADD.
type line struct {
	owner string
	addrs []netip.Addr
}

func (l *ledger) add(owner string, addrs []netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line{owner, addrs})
}

// faults compares the record with what must hold: every owner has exactly n
// addresses, and (INV-1) no address has two owners. An owner may have been told
// the same address twice, by a retried ADD.
func (l *ledger) faults(owners []string, n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	has := map[string]map[netip.Addr]bool{}
	whose := map[netip.Addr]string{}
	var faults []string
	for _, e := range l.lines {
		for _, a := range e.addrs {
			if prev, taken := whose[a]; taken && prev != e.owner {
				faults = append(faults, fmt.Sprintf("%s belongs to %s and to %s", a, prev, e.owner))
			}
			whose[a] = e.owner
			if has[e.owner] == nil {
				has[e.owner] = map[netip.Addr]bool{}
			}
			has[e.owner][a] = true
		}
	}
	for _, o := range owners {
		if len(has[o]) != n {
			faults = append(faults, fmt.Sprintf("%s has %d addresses, want %d", o, len(has[o]), n))
		}
	}
	return faults
}

// held lists "address owner" of the record, in the order of addresses.
func (l *ledger) held() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, e := range l.lines {
		for _, a := range e.addrs {
			out = append(out, a.String()+" "+e.owner)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// stored lists the same from the store, to be compared with held.
func (r *rig) stored() []string {
	r.t.Helper()
	holdings, err := r.agent.Holdings(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, h := range holdings {
		if h.State == fixture.Allocated {
			out = append(out, h.Address.String()+" "+h.Pod)
		}
	}
	slices.Sort(out)
	return out
}

// TestLedger: the oracle notices what it is there for.
func TestLedger(t *testing.T) {
	a, b, c := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::1")
	owners := []string{"x", "y"}
	for _, tc := range []struct {
		name  string
		lines []line
		n     int
		want  []string // what the faults name, one by one
	}{
		{"nothing wrong", []line{{"x", []netip.Addr{a}}, {"y", []netip.Addr{b}}}, 1, nil},
		{"a retried ADD", []line{{"x", []netip.Addr{a}}, {"y", []netip.Addr{b}}, {"x", []netip.Addr{a}}}, 1, nil},
		{"a planted duplicate", []line{{"x", []netip.Addr{a}}, {"y", []netip.Addr{a}}}, 1, []string{"10.0.0.1 belongs to x and to y"}},
		{"a duplicate in one family", []line{{"x", []netip.Addr{a, c}}, {"y", []netip.Addr{b, c}}}, 2, []string{"fd00::1 belongs to x and to y"}},
		{"an owner without an address", []line{{"x", []netip.Addr{a}}}, 1, []string{"y has 0"}},
		{"a retried ADD with another address", []line{{"x", []netip.Addr{a}}, {"x", []netip.Addr{c}}, {"y", []netip.Addr{b}}}, 1, []string{"x has 2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &ledger{lines: tc.lines}
			got := l.faults(owners, tc.n)
			match := func(want, got string) bool { return strings.HasPrefix(got, want) }
			if !slices.EqualFunc(tc.want, got, match) {
				t.Errorf("faults %q, want %q", got, tc.want)
			}
		})
	}
	l := &ledger{lines: []line{{"y", []netip.Addr{b}}, {"x", []netip.Addr{a}}, {"x", []netip.Addr{a}}}}
	if diff := cmp.Diff([]string{"10.0.0.1 x", "10.0.0.2 y"}, l.held()); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}
