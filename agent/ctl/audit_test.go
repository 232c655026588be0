// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// Lines of slots: .1 allocated to a pod, .4 cooling.
const (
	lineWeb0  = "1 allocated net.3f9c 1020 type=workload since=2026-12-01T10:02:00Z net=net pod=shop/web-0 uid=95f1 cid=3f9c if=eth0 node=node-a"
	lineCold  = "4 cooling - 1010 type=workload released=2026-12-01T10:03:11Z last=net.77aa net=net pod=shop/web-9 uid=c20b cid=77aa if=eth0 node=node-a"
	lineOther = "1 allocated net.beef 2020 type=workload net=net pod=shop/web-1 uid=77 cid=beef if=eth0 node=node-b"
)

// wire is block A: of node-a, with one address allocated and one cooling.
func wire(edit func(*block.Wire)) block.Wire {
	w := block.Wire{
		Format: 1, CIDR: "10.64.0.64/29", Affinity: "host:node-a", ClaimedAt: "2026-12-01T10:00:00Z",
		Sequence: "1020", Queue: "0,2-3,5-7", Slots: []string{lineWeb0, lineCold},
	}
	if edit != nil {
		edit(&w)
	}
	return w
}

// stored is a block as a store would hold it: its labels are right.
func stored(t *testing.T, w block.Wire, rs ...pool.Reservation) StoredBlock {
	t.Helper()
	b, err := block.Decode(w)
	if err != nil {
		t.Fatal(err)
	}
	u := pool.NewUnassignable(testPool(), rs)
	b = b.Relabel("default-v4", func(a netip.Addr) bool { return !u.Contains(a) })
	return StoredBlock{Block: b, Labels: v1alpha1.FromBlock(b).Labels}
}

func testPool() pool.Pool {
	return pool.Pool{
		Name: "default-v4", Generation: 1,
		Spec: pool.Spec{CIDR: netip.MustParsePrefix("10.64.0.0/16"), BlockSize: 29}.WithDefaults(),
	}
}

func claim(owner, cidr string, state datastore.AffinityState, seq uint64) StoredAffinity {
	return StoredAffinity{
		Key:      datastore.AffinityKey{Owner: block.Host(owner), CIDR: netip.MustParsePrefix(cidr)},
		Affinity: datastore.Affinity{State: state, Pool: "default-v4", BlockSeq: seq},
	}
}

// sound is a snapshot in which nothing is wrong.
func sound(t *testing.T) Snapshot {
	return Snapshot{
		Pools:  pool.Admit([]pool.Pool{testPool()}, nil),
		Blocks: []StoredBlock{stored(t, wire(nil))},
		Affinities: []StoredAffinity{
			claim("node-a", "10.64.0.64/29", datastore.Confirmed, 1000),
		},
	}
}

// finding is what a case expects of a Problem; why and action are of its kind.
type finding struct {
	Code   Code
	Object string
	What   string
}

func TestAudit(t *testing.T) {
	for _, tc := range auditCases {
		t.Run(tc.name, func(t *testing.T) {
			s := sound(t)
			tc.plant(t, &s)
			r := Audit(s)
			got := []finding{}
			for _, p := range r.Problems {
				got = append(got, finding{p.Code, p.Object, p.What})
				if p.Why == "" || p.Action == "" || p.Severity != kinds[p.Code].severity {
					t.Errorf("%s: severity %q, why %q, action %q", p.Code, p.Severity, p.Why, p.Action)
				}
			}
			if tc.want == nil {
				tc.want = []finding{}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if n := r.Summary.Problems + r.Summary.Notices; n != len(r.Problems) {
				t.Errorf("summary counts %d findings, there are %d", n, len(r.Problems))
			}
		})
	}
}

// Every kind of problem is planted by some case above.
func TestAuditCasesAreComplete(t *testing.T) {
	planted := map[Code]bool{}
	for _, tc := range auditCases {
		for _, f := range tc.want {
			planted[f.Code] = true
		}
	}
	for code := range kinds {
		if !planted[code] {
			t.Errorf("no case plants %s", code)
		}
	}
}

// The snapshot is only read (INV-12).
func TestAuditDoesNotChangeItsInput(t *testing.T) {
	s, same := sound(t), sound(t)
	Audit(s)
	if diff := cmp.Diff(snapshotText(same), snapshotText(s)); diff != "" {
		t.Errorf("snapshot changed:\n%s", diff)
	}
}

func snapshotText(s Snapshot) []any {
	var out []any
	for _, b := range s.Blocks {
		out = append(out, v1alpha1.FromBlock(b.Block), b.Labels)
	}
	for _, p := range s.Pools {
		out = append(out, v1alpha1.FromPool(p))
	}
	return append(out, len(s.Affinities), s.Affinities[0].State)
}
