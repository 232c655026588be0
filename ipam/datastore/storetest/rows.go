// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

// conform runs what every table must pass.
func conform[K comparable, V any](t *testing.T, open Open, f fixture[K, V]) {
	for name, test := range map[string]func(*testing.T, datastore.Table[K, V], fixture[K, V]){
		"Create":          creates[K, V],
		"Missing":         missing[K, V],
		"Update":          updates[K, V],
		"StaleUpdate":     staleUpdate[K, V],
		"Fence":           fences[K, V],
		"Delete":          deletes[K, V],
		"Recreate":        recreates[K, V],
		"List":            lists[K, V],
		"ReadsNeverWrite": readsNeverWrite[K, V],
		"Aliasing":        aliasing[K, V],
		"Cancelled":       cancelled[K, V],
		"Watch":           watches[K, V],
		"WatchRecreate":   watchRecreate[K, V],
		"WatchStops":      watchStops[K, V],
	} {
		t.Run(name, func(t *testing.T) { test(t, f.of(open(t)), f) })
	}
}

// wantErr checks that err is this one of the three sentinels and no other.
func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	for _, s := range []error{datastore.ErrNotFound, datastore.ErrExists, datastore.ErrConflict} {
		if errors.Is(err, s) != errors.Is(want, s) {
			t.Errorf("%s: error %v; want %v", what, err, want)
			return
		}
	}
	if (err == nil) != (want == nil) {
		t.Errorf("%s: error %v; want %v", what, err, want)
	}
}

func create[K comparable, V any](t *testing.T, table datastore.Table[K, V], k K, v V) datastore.Entry[K, V] {
	t.Helper()
	e, err := table.Create(t.Context(), k, v)
	if err != nil {
		t.Fatalf("create %v: %v", k, err)
	}
	return e
}

func get[K comparable, V any](t *testing.T, table datastore.Table[K, V], k K) datastore.Entry[K, V] {
	t.Helper()
	e, err := table.Get(t.Context(), k)
	if err != nil {
		t.Fatalf("get %v: %v", k, err)
	}
	return e
}

func update[K comparable, V any](t *testing.T, table datastore.Table[K, V], e datastore.Entry[K, V], v V) datastore.Entry[K, V] {
	t.Helper()
	e.Value = v
	e, err := table.Update(t.Context(), e)
	if err != nil {
		t.Fatalf("update %v: %v", e.Key, err)
	}
	return e
}

func remove[K comparable, V any](t *testing.T, table datastore.Table[K, V], e datastore.Entry[K, V]) {
	t.Helper()
	if err := table.Delete(t.Context(), e); err != nil {
		t.Fatalf("delete %v: %v", e.Key, err)
	}
}

// unchanged checks that the stored object is still e.
func unchanged[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V], e datastore.Entry[K, V]) {
	t.Helper()
	now := get(t, table, e.Key)
	if now.Rev != e.Rev || now.UID != e.UID {
		t.Errorf("%v: revision %s, UID %s; want %s, %s untouched", e.Key, now.Rev, now.UID, e.Rev, e.UID)
	}
	f.same(t, "untouched object", e.Value, now.Value)
}

func creates[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V]) {
	o := f.objects[0]
	e := create(t, table, o.key, o.one)
	if e.Key != o.key || e.Rev == "" || e.UID == "" {
		t.Errorf("created entry: key %v, revision %q, UID %q; want %v and neither empty", e.Key, e.Rev, e.UID, o.key)
	}
	f.same(t, "create", o.one, e.Value)
	unchanged(t, table, f, e)

	_, err := table.Create(t.Context(), o.key, o.other)
	wantErr(t, "create again", err, datastore.ErrExists)
	unchanged(t, table, f, e)
}

func missing[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V]) {
	o := f.objects[0]
	_, err := table.Get(t.Context(), o.key)
	wantErr(t, "get", err, datastore.ErrNotFound)
	e := create(t, table, o.key, o.one)
	remove(t, table, e)
	_, err = table.Get(t.Context(), o.key)
	wantErr(t, "get", err, datastore.ErrNotFound)
	_, err = table.Update(t.Context(), e)
	wantErr(t, "update", err, datastore.ErrNotFound)
	wantErr(t, "delete", table.Delete(t.Context(), e), datastore.ErrNotFound)
	if es, err := table.List(t.Context(), datastore.Query{}); err != nil || len(es) != 0 {
		t.Errorf("list: %v, %v; want nothing", es, err)
	}
}

func updates[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V]) {
	o := f.objects[0]
	e1 := create(t, table, o.key, o.one)
	e2 := update(t, table, e1, o.other)
	if e2.Rev == e1.Rev || e2.UID != e1.UID {
		t.Errorf("update: revision %s to %s, UID %s to %s; want another revision and the same UID", e1.Rev, e2.Rev, e1.UID, e2.UID)
	}
	f.same(t, "update", o.other, e2.Value)
	unchanged(t, table, f, e2)
	unchanged(t, table, f, update(t, table, e2, o.one))
}

// INV-7: every write is compare-and-swap, and a refused one leaves nothing behind.
func staleUpdate[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V]) {
	o := f.objects[0]
	first := create(t, table, o.key, o.one)
	now := update(t, table, first, o.other)
	for name, change := range map[string]func(*datastore.Entry[K, V]){
		"old revision": func(e *datastore.Entry[K, V]) { e.Rev = first.Rev },
		"no revision":  func(e *datastore.Entry[K, V]) { e.Rev = "" },
		"other UID":    func(e *datastore.Entry[K, V]) { e.UID = "00000000-0000-4000-8000-000000000000" },
		"no UID":       func(e *datastore.Entry[K, V]) { e.UID = "" },
	} {
		e := now
		e.Value = o.one
		change(&e)
		_, err := table.Update(t.Context(), e)
		wantErr(t, "update with "+name, err, datastore.ErrConflict)
		wantErr(t, "delete with "+name, table.Delete(t.Context(), e), datastore.ErrConflict)
		unchanged(t, table, f, now)
	}
}

// INV-7: a write that changes nothing still keeps out what another writer has on its
// way; and another one after it.
func fences[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V]) {
	o := f.objects[0]
	now := create(t, table, o.key, o.one)
	for range 3 {
		late := now
		late.Value = o.other
		now = update(t, table, now, now.Value)
		_, err := table.Update(t.Context(), late)
		wantErr(t, "late update", err, datastore.ErrConflict)
		unchanged(t, table, f, now)
	}
}

func deletes[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V]) {
	var es []datastore.Entry[K, V]
	for _, o := range f.objects {
		es = append(es, create(t, table, o.key, o.one))
	}
	remove(t, table, get(t, table, es[0].Key))
	_, err := table.Get(t.Context(), es[0].Key)
	wantErr(t, "get of a deleted object", err, datastore.ErrNotFound)
	for _, e := range es[1:] {
		f.same(t, "neighbour of a deleted object", e.Value, get(t, table, e.Key).Value)
	}
}

// A re-created object is another one: what was read of the first writes nothing.
func recreates[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V]) {
	o := f.objects[0]
	first := create(t, table, o.key, o.one)
	remove(t, table, first)
	second := create(t, table, o.key, o.one)
	if second.UID == first.UID {
		t.Errorf("UID %s given twice", first.UID)
	}
	_, err := table.Update(t.Context(), first)
	wantErr(t, "update of the first", err, datastore.ErrConflict)
	wantErr(t, "delete of the first", table.Delete(t.Context(), first), datastore.ErrConflict)
	mixed := second
	mixed.UID = first.UID
	wantErr(t, "delete with the first UID", table.Delete(t.Context(), mixed), datastore.ErrConflict)
	unchanged(t, table, f, second)
}

func lists[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V]) {
	for i := range f.objects {
		o := f.objects[len(f.objects)-1-i]
		create(t, table, o.key, o.one)
	}
	for _, q := range []datastore.Query{{}, {MayBeStale: true}, {Strict: true}, {MayBeStale: true, Strict: true}} {
		es, err := table.List(t.Context(), q)
		if err != nil || len(es) != len(f.objects) {
			t.Fatalf("list %+v: %d entries, %v; want %d", q, len(es), err, len(f.objects))
		}
		for i, o := range f.objects {
			if es[i].Key != o.key {
				t.Errorf("list: %v at %d; want %v (ordered by key)", es[i].Key, i, o.key)
			}
			f.same(t, "list", o.one, es[i].Value)
			unchanged(t, table, f, es[i])
		}
	}
}

// INV-12, case R16: reads never write.
func readsNeverWrite[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V]) {
	o := f.objects[0]
	// An absent object is not made up and then kept.
	for range 2 {
		_, err := table.Get(t.Context(), o.key)
		wantErr(t, "get of what is not there", err, datastore.ErrNotFound)
	}
	e := create(t, table, o.key, o.one)
	for _, q := range []datastore.Query{
		{},
		{MayBeStale: true},
		{Node: "node-a"},
		{Pool: "v4"},
		{Empty: true},
		{Space: []block.Space{block.SpaceFree}},
		{Owner: block.Host("node-a")},
	} {
		if _, err := table.List(t.Context(), q); err != nil {
			t.Fatalf("list %+v: %v", q, err)
		}
	}
	for c, err := range table.Watch(t.Context()) {
		if err != nil {
			t.Fatalf("watch: %v", err)
		}
		if c.Kind == datastore.Synced {
			break
		}
	}
	unchanged(t, table, f, e)
}

func aliasing[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V]) {
	o, want := f.objects[0], f.objects[0].one
	given := clone(o.one)
	e := create(t, table, o.key, given)
	scribble(reflect.ValueOf(&given).Elem())
	f.same(t, "after the given value was changed", want, get(t, table, o.key).Value)
	scribble(reflect.ValueOf(&e.Value).Elem())
	e = get(t, table, o.key)
	f.same(t, "after the created value was changed", want, e.Value)
	scribble(reflect.ValueOf(&e.Value).Elem())
	es, err := table.List(t.Context(), datastore.Query{})
	if err != nil || len(es) != 1 {
		t.Fatalf("list: %d entries, %v; want 1", len(es), err)
	}
	f.same(t, "after a read value was changed", want, es[0].Value)
	scribble(reflect.ValueOf(&es[0].Value).Elem())
	f.same(t, "after a listed value was changed", want, get(t, table, o.key).Value)
}

// clone copies the slices that a value holds in exported fields.
func clone[V any](v V) V {
	out := v
	each(reflect.ValueOf(&out).Elem(), func(s reflect.Value) {
		c := reflect.MakeSlice(s.Type(), s.Len(), s.Len())
		reflect.Copy(c, s)
		s.Set(c)
	})
	return out
}

// scribble overwrites every element of every slice that v holds.
func scribble(v reflect.Value) {
	each(v, func(s reflect.Value) {
		for i := range s.Len() {
			s.Index(i).SetZero()
		}
	})
}

// each calls fn for the slices in exported fields of v.
func each(v reflect.Value, fn func(reflect.Value)) {
	switch v.Kind() {
	case reflect.Slice:
		fn(v)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				each(v.Field(i), fn)
			}
		}
	}
}

func cancelled[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V]) {
	e := create(t, table, f.objects[0].key, f.objects[0].one)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	changed := e
	changed.Value = f.objects[0].other
	_, getErr := table.Get(ctx, e.Key)
	_, listErr := table.List(ctx, datastore.Query{})
	_, createErr := table.Create(ctx, e.Key, f.objects[0].one)
	_, updateErr := table.Update(ctx, changed)
	for verb, err := range map[string]error{
		"get": getErr, "list": listErr, "create": createErr, "update": updateErr, "delete": table.Delete(ctx, e),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v; want %v", verb, err, context.Canceled)
		}
	}
	unchanged(t, table, f, e)
}
