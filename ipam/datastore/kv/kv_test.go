// SPDX-License-Identifier: Apache-2.0

package kv_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kv"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

func cidr(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func emptyBlock(t *testing.T, c string) block.Block {
	t.Helper()
	b, err := block.New(cidr(c), block.Host("node-a"), 7, time.Unix(1_800_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	return b.Relabel("v4", nil)
}

// put stores raw bytes below the engine.
func put(t *testing.T, db kv.DB, table, key, val string) {
	t.Helper()
	if err := db.Update(t.Context(), func(tx kv.Tx) error { return tx.Put(table, key, []byte(val)) }); err != nil {
		t.Fatal(err)
	}
}

// raw reads what the engine stored.
func raw(t *testing.T, db kv.DB, table, key string) string {
	t.Helper()
	var out string
	if err := db.View(t.Context(), func(tx kv.Tx) error {
		v, _ := tx.Get(table, key)
		out = string(v)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

const newer = `{"apiVersion":"ipam.allod.io/v1alpha1","kind":"IPAMBlock","metadata":{"name":"10-0-0-0-30","uid":"u","resourceVersion":"1",` +
	`"labels":{"ipam.allod.io/pool":"v4","ipam.allod.io/space":"free"}},"spec":{"format":42,"cidr":"10.0.0.0/30","sequence":7,"queue":"0-3"}}`

// A block of a newer format is read, and no write of it goes through: not its own
// value, not one of this version's, not a delete, not a new label.
func TestNewerFormat(t *testing.T) {
	db := memstore.New(memstore.Options{})
	s := db.Store()
	if _, err := s.Pools.Create(t.Context(), "v4", pool.Pool{Spec: pool.Spec{CIDR: cidr("10.0.0.0/24"), BlockSize: 30}}); err != nil {
		t.Fatal(err)
	}
	put(t, db, kv.Blocks, "10-0-0-0-30", newer)
	e, err := s.Blocks.Get(t.Context(), cidr("10.0.0.0/30"))
	if err != nil || e.Value.Counts().Free != 4 {
		t.Fatalf("get: %+v, %v; want it read", e.Value, err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, block.ErrFormat) || !strings.Contains(err.Error(), "42") {
			t.Errorf("%s: %v; want %v naming 42", what, err, block.ErrFormat)
		}
	}
	_, err = s.Blocks.Update(t.Context(), e)
	refused("update", err)
	old := e
	old.Value = emptyBlock(t, "10.0.0.0/30")
	_, err = s.Blocks.Update(t.Context(), old)
	refused("update with a value of this version", err)
	refused("delete", s.Blocks.Delete(t.Context(), e))
	if _, err := s.Reservations.Create(t.Context(), "r", pool.Reservation{CIDRs: []netip.Prefix{cidr("10.0.0.0/24")}}); err != nil {
		t.Errorf("a reservation beside it: %v", err)
	}
	if got := raw(t, db, kv.Blocks, "10-0-0-0-30"); got != newer {
		t.Errorf("stored:\n%s\nwant it untouched:\n%s", got, newer)
	}
}

// A query reads no more than the metadata of what it does not select: the spec
// here could not be read at all.
func TestQueriesDecodeOnlyWhatTheySelect(t *testing.T) {
	db := memstore.New(memstore.Options{})
	s := db.Store()
	if _, err := s.Blocks.Create(t.Context(), cidr("10.0.0.0/30"), emptyBlock(t, "10.0.0.0/30")); err != nil {
		t.Fatal(err)
	}
	put(t, db, kv.Blocks, "10-0-0-4-30", `{"metadata":{"labels":{"ipam.allod.io/pool":"other"}},"spec":{cut off`)
	es, err := s.Blocks.List(t.Context(), datastore.Query{Pool: "v4", Node: "node-a"})
	if err != nil || len(es) != 1 {
		t.Errorf("list that passes over it: %d, %v; want 1", len(es), err)
	}
	for what, q := range map[string]datastore.Query{"all": {}, "its pool": {Pool: "other"}} {
		if es, err := s.Blocks.List(t.Context(), q); err == nil || !strings.Contains(err.Error(), "10-0-0-4-30") {
			t.Errorf("list of %s: %d, %v; want an error that names the block", what, len(es), err)
		}
	}
}

// What cannot be read is a fault, never "not found", and nothing is written over it.
func TestUnreadableObjects(t *testing.T) {
	name := v1alpha1.BlockName(cidr("10.0.0.0/30"))
	for what, val := range map[string]string{
		"no JSON":               "garbage",
		"empty":                 "",
		"no object":             "[]",
		"cut":                   newer[:len(newer)-20],
		"another block":         strings.Replace(newer, `"cidr":"10.0.0.0/30"`, `"cidr":"10.0.0.4/30"`, 1),
		"a block under no name": strings.Replace(newer, `"cidr":"10.0.0.0/30"`, `"cidr":"10.0.0.0/8"`, 1),
	} {
		t.Run(what, func(t *testing.T) {
			db := memstore.New(memstore.Options{})
			s := db.Store()
			put(t, db, kv.Blocks, name, val)
			_, getErr := s.Blocks.Get(t.Context(), cidr("10.0.0.0/30"))
			_, listErr := s.Blocks.List(t.Context(), datastore.Query{})
			_, updateErr := s.Blocks.Update(t.Context(), datastore.Entry[netip.Prefix, block.Block]{
				Key: cidr("10.0.0.0/30"), Value: emptyBlock(t, "10.0.0.0/30"), Rev: "1", UID: "u",
			})
			var watchErr error
			for _, err := range s.Blocks.Watch(t.Context()) {
				watchErr = err
				break
			}
			for verb, err := range map[string]error{"get": getErr, "list": listErr, "update": updateErr, "watch": watchErr} {
				if err == nil || errors.Is(err, datastore.ErrNotFound) || errors.Is(err, datastore.ErrConflict) || !strings.Contains(err.Error(), name) {
					t.Errorf("%s: %v; want a fault that names %s", verb, err, name)
				}
			}
			if _, err := s.Blocks.Create(t.Context(), cidr("10.0.0.0/30"), emptyBlock(t, "10.0.0.0/30")); !errors.Is(err, datastore.ErrExists) {
				t.Errorf("create: %v; want %v", err, datastore.ErrExists)
			}
			if got := raw(t, db, kv.Blocks, name); got != val {
				t.Errorf("stored %q; want it untouched", got)
			}
		})
	}
}

// What other writers put into metadata stays: through updates, new labels and
// admission.
func TestForeignMetadataSurvives(t *testing.T) {
	db := memstore.New(memstore.Options{})
	s := db.Store()
	mark := func(table, name string) {
		t.Helper()
		var o map[string]any
		if err := json.Unmarshal([]byte(raw(t, db, table, name)), &o); err != nil {
			t.Fatal(err)
		}
		m := o["metadata"].(map[string]any)
		labels, _ := m["labels"].(map[string]any)
		if labels == nil {
			labels = map[string]any{}
		}
		labels["team"] = "shop"
		m["labels"], m["annotations"] = labels, map[string]any{"note": "keep"}
		m["finalizers"] = append([]any{"example.com/theirs"}, anys(m["finalizers"])...)
		out, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		put(t, db, table, name, string(out))
	}
	marked := func(what, table, name string) {
		t.Helper()
		text := raw(t, db, table, name)
		for _, want := range []string{`"team":"shop"`, `"note":"keep"`} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %s is gone from %s", what, want, text)
			}
		}
	}
	p, err := s.Pools.Create(t.Context(), "v4", pool.Pool{Spec: pool.Spec{CIDR: cidr("10.0.0.0/24"), BlockSize: 30}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Blocks.Create(t.Context(), cidr("10.0.0.0/30"), emptyBlock(t, "10.0.0.0/30")); err != nil {
		t.Fatal(err)
	}
	mark(kv.Pools, "v4")
	mark(kv.Blocks, "10-0-0-0-30")
	if _, err := s.Reservations.Create(t.Context(), "r", pool.Reservation{CIDRs: []netip.Prefix{cidr("10.0.0.0/30")}}); err != nil {
		t.Fatal(err)
	}
	b, err := s.Blocks.Get(t.Context(), cidr("10.0.0.0/30"))
	if err != nil || b.Value.Space != block.SpaceFull {
		t.Fatalf("block %+v, %v; want it labelled full", b.Value, err)
	}
	marked("new label", kv.Blocks, "10-0-0-0-30")
	if _, err := s.Blocks.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	marked("update", kv.Blocks, "10-0-0-0-30")
	p.Value.Spec.Disabled = true
	if _, err := s.Pools.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	marked("update and admission", kv.Pools, "v4")
	if text := raw(t, db, kv.Pools, "v4"); !strings.Contains(text, `"finalizers":["example.com/theirs","ipam.allod.io/pool"]`) {
		t.Errorf("finalizers: %s", text)
	}
}

func anys(v any) []any {
	a, _ := v.([]any)
	return a
}

// The stored value is the custom resource: what a cluster would hold.
func TestStoredForm(t *testing.T) {
	start := time.Date(2026, 12, 1, 10, 0, 0, 999, time.UTC)
	clock := clocktesting.NewFakePassiveClock(start)
	db := memstore.New(memstore.Options{Clock: clock, NewUID: func() string { return "uid-1" }})
	s := db.Store()
	p := pool.Pool{Spec: pool.Spec{CIDR: cidr("10.0.0.0/24"), BlockSize: 30}}
	e, err := s.Pools.Create(t.Context(), "v4", p)
	if err != nil {
		t.Fatal(err)
	}
	var o v1alpha1.IPPool
	if err := json.Unmarshal([]byte(raw(t, db, kv.Pools, "v4")), &o); err != nil {
		t.Fatal(err)
	}
	if o.Kind != v1alpha1.KindPool || o.APIVersion != v1alpha1.APIVersion || o.UID != types.UID("uid-1") ||
		o.ResourceVersion != string(e.Rev) || o.Generation != 1 || !o.CreationTimestamp.Time.Equal(start.Truncate(time.Second)) {
		t.Errorf("stored object: %+v", o)
	}
	transition := func() time.Time {
		t.Helper()
		var o v1alpha1.IPPool
		if err := json.Unmarshal([]byte(raw(t, db, kv.Pools, "v4")), &o); err != nil {
			t.Fatal(err)
		}
		if len(o.Status.Conditions) != 1 || o.Status.Conditions[0].Type != v1alpha1.ConditionAllocatable {
			t.Fatalf("conditions %+v", o.Status.Conditions)
		}
		return o.Status.Conditions[0].LastTransitionTime.Time
	}
	first := transition()
	change := func(f func(*pool.Spec)) {
		t.Helper()
		clock.SetTime(clock.Now().Add(time.Hour))
		f(&e.Value.Spec)
		if e, err = s.Pools.Update(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	change(func(s *pool.Spec) { s.NATOutgoing = true })
	if !transition().Equal(first) {
		t.Errorf("the condition moved with its status unchanged: %v; want %v", transition(), first)
	}
	change(func(s *pool.Spec) { s.Disabled = true })
	if want := start.Truncate(time.Second).Add(2 * time.Hour); !transition().Equal(want) {
		t.Errorf("condition since %v; want %v", transition(), want)
	}
}

// The engine's own UIDs are UUIDs and differ.
func TestRandomUIDs(t *testing.T) {
	s := memstore.New(memstore.Options{}).Store()
	seen := map[string]bool{}
	for _, id := range []block.HandleID{"a", "b", "c"} {
		e, err := s.Handles.Create(t.Context(), id, datastore.Handle{})
		if err != nil || len(e.UID) != 36 || e.UID[14] != '4' || seen[e.UID] {
			t.Errorf("UID %q, %v; want another UUID of version 4", e.UID, err)
		}
		seen[e.UID] = true
	}
}

// A claim that names a pool which is not there holds the pool that contains it.
func TestPoolIsHeldByWhatNamesNoPoolThatIsThere(t *testing.T) {
	s := memstore.New(memstore.Options{}).Store()
	spec := pool.Spec{CIDR: netip.MustParsePrefix("10.0.0.0/24")}
	e, err := s.Pools.Create(t.Context(), "v4", pool.Pool{Name: "v4", Spec: spec.WithDefaults()})
	if err != nil {
		t.Fatal(err)
	}
	k := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: netip.MustParsePrefix("10.0.0.0/26")}
	claim, err := s.Affinities.Create(t.Context(), k, datastore.Affinity{State: datastore.Pending, Pool: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Pools.Delete(t.Context(), e); !errors.Is(err, kv.ErrPoolInUse) {
		t.Errorf("got %v, want ErrPoolInUse", err)
	}
	if err := errors.Join(s.Affinities.Delete(t.Context(), claim), s.Pools.Delete(t.Context(), e)); err != nil {
		t.Error(err)
	}
}
