// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

// blockQueries checks every field of Query, alone and together, against the
// labels of the values themselves.
func blockQueries(t *testing.T, open Open) {
	table := open(t).Blocks
	slot := func(o int, state, more string) string {
		if state == "cooling" {
			return fmt.Sprintf("%d cooling - 5 type=workload released=2026-12-01T10:00:00Z last=h %s", o, more)
		}
		return fmt.Sprintf("%d allocated h 5 type=workload %s", o, more)
	}
	blocks := []block.Block{
		emptyBlock("10.0.0.0/30", "node-a", "v4"),
		mustBlock(block.Wire{
			CIDR: "10.0.0.4/30", Affinity: "host:node-a", Sequence: "5", Queue: "0,3",
			Slots: []string{slot(1, "allocated", "node=node-b"), slot(2, "cooling", "node=node-c")},
		}).Relabel("v4", nil),
		mustBlock(block.Wire{
			CIDR: "10.0.0.8/31", Affinity: "host:node-b", Sequence: "5",
			Slots: []string{slot(0, "allocated", "node=node-b"), slot(1, "cooling", "node=node-a")},
		}).Relabel("v4", nil),
		mustBlock(block.Wire{
			CIDR: "10.0.0.10/31", Affinity: "virtual:load-balancer", Sequence: "5",
			Slots: []string{slot(0, "allocated", "node=node-a"), slot(1, "allocated", "node=node-b alt-node=node-c")},
		}).Relabel("other", nil),
		// Free by content, full by its label: a reservation covers it.
		emptyBlock("10.0.0.12/30", "", "v4").Relabel("v4", func(netip.Addr) bool { return false }),
		emptyBlock("fd00::/126", "node-a", ""),
	}
	for _, b := range blocks {
		create(t, table, b.CIDR, b)
	}
	var queries []datastore.Query
	for _, node := range []string{"", "node-a", "node-b", "node-c", "node-x"} {
		for _, pool := range []string{"", "v4", "other", "no-such"} {
			for _, space := range [][]block.Space{
				nil, {block.SpaceFree}, {block.SpaceCooling}, {block.SpaceFull}, {block.SpaceFree, block.SpaceCooling},
			} {
				for _, empty := range []bool{false, true} {
					for _, stale := range []bool{false, true} {
						queries = append(queries, datastore.Query{Node: node, Pool: pool, Space: space, Empty: empty, MayBeStale: stale})
					}
				}
			}
		}
	}
	hits := 0
	for _, q := range queries {
		var want []netip.Prefix
		for _, b := range blocks {
			if selected(b.Labels(), q) {
				want = append(want, b.CIDR)
			}
		}
		hits += len(want)
		es, err := table.List(t.Context(), q)
		if err != nil {
			t.Fatalf("list %+v: %v", q, err)
		}
		var got []netip.Prefix
		for _, e := range es {
			got = append(got, e.Key)
		}
		if d := diff(want, got); d != "" {
			t.Errorf("list %+v (-want +got):\n%s", q, d)
		}
	}
	if hits < len(blocks) {
		t.Fatalf("the queries selected %d blocks in all: they test nothing", hits)
	}
}

// selected is the meaning of a query, by the labels of a value.
func selected(l block.Labels, q datastore.Query) bool {
	node, space := q.Node == "", len(q.Space) == 0
	for _, n := range l.Nodes {
		node = node || n == q.Node
	}
	for _, s := range q.Space {
		space = space || s == l.Space
	}
	return node && space && (q.Pool == "" || q.Pool == l.Pool) && (!q.Empty || l.Empty)
}

func claimQueries(t *testing.T, open Open) {
	table := open(t).Affinities
	lb := block.Affinity{Type: block.VirtualAffinity, Name: "load-balancer"}
	same := block.Affinity{Type: block.VirtualAffinity, Name: "node-a"} // no host of that name
	claims := []struct {
		owner block.Affinity
		cidr  string
		pool  string
	}{
		{block.Host("node-a"), "10.0.0.0/30", "v4"},
		{block.Host("node-a"), "fd00::/126", "v6"},
		{block.Host("node-b"), "10.0.0.4/30", "v4"},
		{lb, "10.0.0.8/30", "v4"},
		{same, "10.0.0.12/30", "v4"},
	}
	for _, c := range claims {
		create(t, table, datastore.AffinityKey{Owner: c.owner, CIDR: cidr(c.cidr)}, datastore.Affinity{State: datastore.Confirmed, Pool: c.pool})
	}
	for _, owner := range []block.Affinity{{}, block.Host("node-a"), {Name: "node-a"}, block.Host("node-b"), block.Host("node-x"), lb, same} {
		for _, pool := range []string{"", "v4", "v6", "no-such"} {
			want := map[netip.Prefix]bool{}
			for _, c := range claims {
				if (owner.IsZero() || owner.String() == c.owner.String()) && (pool == "" || pool == c.pool) {
					want[cidr(c.cidr)] = true
				}
			}
			got := map[netip.Prefix]bool{}
			es, err := table.List(t.Context(), datastore.Query{Owner: owner, Pool: pool})
			if err != nil {
				t.Fatalf("list of %v in %q: %v", owner, pool, err)
			}
			for _, e := range es {
				got[e.Key.CIDR] = true
			}
			if d := diff(want, got); d != "" {
				t.Errorf("list of %v in %q (-want +got):\n%s", owner, pool, d)
			}
		}
	}
	// An empty type reads as host: it is the same claim.
	_, err := table.Create(t.Context(), datastore.AffinityKey{Owner: block.Affinity{Name: "node-a"}, CIDR: cidr("10.0.0.0/30")},
		datastore.Affinity{State: datastore.Pending})
	wantErr(t, "create of the same claim without a type", err, datastore.ErrExists)
}

// INV-2, case R15: what this version cannot read it does not lose.
func unknown(t *testing.T, open Open, verbatim bool) {
	table := open(t).Blocks
	w := block.Wire{
		Format: 1, CIDR: "10.0.0.0/29", Affinity: "host:node-a", Sequence: "9", Queue: "7,0,4-6",
		Slots: []string{
			"1 allocated h 5 type=workload net=n cid=c if=eth0 node=node-a colour=green%20 size=",
			"2 allocated h 6 type=teleport node=node-a",
			"3 reserved-for-later",
			"utter nonsense <&>",
			"99 allocated h 6 type=workload",
		},
		Extra: []block.Extra{
			{Key: "zeta", JSON: []byte(`{"b":1,"a":[null,1.50,12345678901234567890,"<&>é"]}`)},
			{Key: "alpha", JSON: []byte(`true`)},
			{Key: "Format", JSON: []byte(`"not ours"`)},
		},
	}
	b := mustBlock(w).Relabel("v4", nil)
	if len(b.Problems()) == 0 {
		t.Fatal("the block has nothing unreadable in it: this tests nothing")
	}
	kept := func(what string, got block.Block) {
		t.Helper()
		want, have := blockView{block.Encode(b), b.Labels()}, blockView{block.Encode(got), got.Labels()}
		if !verbatim {
			canonical(t, want.Wire.Extra)
			canonical(t, have.Wire.Extra)
		}
		if d := diff(want, have); d != "" {
			t.Errorf("%s: lost or changed (-want +got):\n%s", what, d)
		}
		if d := diff(b.Problems(), got.Problems()); d != "" {
			t.Errorf("%s: other problems (-want +got):\n%s", what, d)
		}
	}
	e := create(t, table, b.CIDR, b)
	kept("create", e.Value)
	e = get(t, table, b.CIDR)
	kept("get", e.Value)
	e = update(t, table, e, e.Value)
	kept("update", e.Value)
	kept("get after update", get(t, table, b.CIDR).Value)
}

// canonical brings fields into one order and each into one text.
func canonical(t *testing.T, fields []block.Extra) {
	t.Helper()
	slices.SortFunc(fields, func(a, b block.Extra) int { return strings.Compare(a.Key, b.Key) })
	for i, f := range fields {
		var v any
		if err := json.Unmarshal(f.JSON, &v); err != nil {
			t.Fatalf("%s: %v", f.Key, err)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("%s: %v", f.Key, err)
		}
		fields[i].JSON = text
	}
}

// A block of a newer format is never written, and the refusal names the version.
func newerFormat(t *testing.T, open Open) {
	table := open(t).Blocks
	b := emptyBlock("10.0.0.0/29", "node-a", "v4")
	w := block.Encode(b)
	w.Format = block.Format + 41
	newer := mustBlock(w).Relabel("v4", nil)
	version := fmt.Sprint(w.Format)

	_, err := table.Create(t.Context(), newer.CIDR, newer)
	refusedBy(t, "create", err, block.ErrFormat, version)
	_, err = table.Get(t.Context(), newer.CIDR)
	wantErr(t, "get after a refused create", err, datastore.ErrNotFound)

	e := create(t, table, b.CIDR, b)
	changed := e
	changed.Value = newer
	_, err = table.Update(t.Context(), changed)
	refusedBy(t, "update", err, block.ErrFormat, version)
	unchanged(t, table, blockFixture(), e)
}

func refusedBy(t *testing.T, what string, err, want error, text string) {
	t.Helper()
	if !errors.Is(err, want) || !errors.Is(err, datastore.ErrRefused) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v; want %v naming %q, marked as refused", what, err, want, text)
	}
}

// Case S5: names of 253 characters and names that differ only by case are legal
// and distinct.
func names(t *testing.T, open Open) {
	s := open(t)
	long := strings.Repeat("n", 63) + strings.Repeat("."+strings.Repeat("o", 62), 3) + "."
	long = long[:253]
	odd := []string{
		"node-a", "Node-A", "NODE-A", "node.a", "node_a", "node-a-10-0-0-0-30", long[:252] + "x", long[:252] + "y",
		strings.Repeat("v", 1000), strings.Repeat("v", 999) + "w", "ü", "-", "a/b", "a b", "virtual-load-balancer",
	}
	for i, name := range odd {
		k := datastore.AffinityKey{Owner: block.Host(name), CIDR: cidr("10.0.0.0/30")}
		create(t, s.Affinities, k, datastore.Affinity{State: datastore.Pending, BlockSeq: uint64(i)})
		k.Owner.Type = block.VirtualAffinity
		create(t, s.Affinities, k, datastore.Affinity{State: datastore.Pending, BlockSeq: uint64(1000 + i)})
		create(t, s.Handles, block.HandleID(name), datastore.Handle{Releasing: i%2 == 0})
		b := emptyBlock(fmt.Sprintf("10.0.%d.0/30", i), name, name)
		create(t, s.Blocks, b.CIDR, b)
	}
	for i, name := range odd {
		k := datastore.AffinityKey{Owner: block.Host(name), CIDR: cidr("10.0.0.0/30")}
		if e := get(t, s.Affinities, k); e.Key != k || e.Value.BlockSeq != uint64(i) {
			t.Errorf("claim of %.40q: %v, %d", name, e.Key, e.Value.BlockSeq)
		}
		if e := get(t, s.Handles, block.HandleID(name)); e.Key != block.HandleID(name) || e.Value.Releasing != (i%2 == 0) {
			t.Errorf("handle %.40q: %.40v, %v", name, e.Key, e.Value)
		}
		for what, q := range map[string]datastore.Query{"node": {Node: name}, "pool": {Pool: name}} {
			es, err := s.Blocks.List(t.Context(), q)
			if err != nil || len(es) != 1 || es[0].Value.Affinity.Name != name || es[0].Value.Pool != name {
				t.Errorf("blocks of %s %.40q: %d, %v; want its one", what, name, len(es), err)
			}
		}
		if es, err := s.Affinities.List(t.Context(), datastore.Query{Owner: k.Owner}); err != nil || len(es) != 1 {
			t.Errorf("claims of %.40q: %d, %v; want 1", name, len(es), err)
		}
	}
}

// refused: values that are not for their key, and what no store may keep.
func refused(t *testing.T, open Open) {
	s := open(t)
	ctx := t.Context()
	b := emptyBlock("10.0.0.0/30", "node-a", "v4")
	_, blockErr := s.Blocks.Create(ctx, cidr("10.0.0.4/30"), b)
	_, hostBits := s.Affinities.Create(ctx, datastore.AffinityKey{Owner: block.Host("a"), CIDR: cidr("10.0.0.1/30")}, datastore.Affinity{})
	_, noOwner := s.Affinities.Create(ctx, datastore.AffinityKey{CIDR: cidr("10.0.0.0/30")}, datastore.Affinity{})
	_, noHandle := s.Handles.Create(ctx, "", datastore.Handle{})
	_, second := s.Config.Create(ctx, "second", datastore.ConfigDefaults())
	_, bounds := s.Config.Create(ctx, datastore.DefaultConfig, datastore.Config{})
	p := poolFixture().objects[0]
	_, poolName := s.Pools.Create(ctx, "another", p.one)
	for what, err := range map[string]error{
		"block under another CIDR": blockErr, "claim with host bits": hostBits, "claim of nobody": noOwner,
		"handle without an ID": noHandle, "second configuration": second, "configuration out of bounds": bounds,
		"pool under another name": poolName,
	} {
		if !errors.Is(err, datastore.ErrRefused) {
			t.Errorf("%s: %v; want it refused: whoever asked must not take the outcome for unknown", what, err)
		}
		wantErr(t, what, err, errOther)
	}
}

// errOther is any error but the sentinels.
var errOther = errors.New("an error that is no sentinel")
