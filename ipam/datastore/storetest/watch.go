// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/allod/allod/ipam/datastore"
)

// patience is how long a change may take to show: long enough for any store that
// works, and a store that lost the change fails instead of hanging.
const patience = 30 * time.Second

// stream pulls the changes of one watch.
type stream[K comparable, V any] struct {
	t    *testing.T
	next func() (datastore.Change[K, V], error, bool)
}

func watch[K comparable, V any](t *testing.T, ctx context.Context, table datastore.Table[K, V]) stream[K, V] {
	ctx, cancel := context.WithTimeout(ctx, patience)
	next, stop := iter.Pull2(table.Watch(ctx))
	t.Cleanup(func() { cancel(); stop() })
	return stream[K, V]{t: t, next: next}
}

// step waits for the next change.
func (s stream[K, V]) step() datastore.Change[K, V] {
	s.t.Helper()
	c, err, ok := s.next()
	if !ok || err != nil {
		s.t.Fatalf("watch ended: %v", err)
	}
	return c
}

// until waits for the change that leads to e, over states between.
func (s stream[K, V]) until(f fixture[K, V], kind datastore.ChangeKind, e datastore.Entry[K, V]) {
	s.t.Helper()
	for {
		c := s.step()
		if c.Entry.Key != e.Key {
			s.t.Fatalf("change of %v; want %v", c.Entry.Key, e.Key)
		}
		if c.Kind == kind && c.Entry.UID == e.UID && c.Entry.Rev == e.Rev {
			f.same(s.t, "watch", e.Value, c.Entry.Value)
			return
		}
		if c.Kind != datastore.Put {
			s.t.Fatalf("%v of %v at revision %s; want %v at %s", c.Kind, c.Entry.Key, c.Entry.Rev, kind, e.Rev)
		}
	}
}

// synced waits for the end of what was there and returns it by key.
func (s stream[K, V]) synced() map[K]datastore.Entry[K, V] {
	s.t.Helper()
	there := map[K]datastore.Entry[K, V]{}
	for {
		switch c := s.step(); c.Kind {
		case datastore.Synced:
			return there
		case datastore.Put:
			there[c.Entry.Key] = c.Entry
		default:
			s.t.Fatalf("change of kind %v before Synced", c.Kind)
		}
	}
}

func watches[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V]) {
	empty := watch(t, t.Context(), table)
	if there := empty.synced(); len(there) != 0 {
		t.Fatalf("watch of an empty table: %v", there)
	}
	o := f.objects[0]
	e := create(t, table, o.key, o.one)
	empty.until(f, datastore.Put, e)

	full := watch(t, t.Context(), table)
	there := full.synced()
	if len(there) != 1 || there[o.key].Rev != e.Rev || there[o.key].UID != e.UID {
		t.Fatalf("watch began with %v; want %v", there, e)
	}
	f.same(t, "watch", e.Value, there[o.key].Value)

	e = update(t, table, e, o.other)
	e = update(t, table, e, o.one)
	e = update(t, table, e, o.other)
	empty.until(f, datastore.Put, e)
	full.until(f, datastore.Put, e)
	remove(t, table, e)
	empty.until(f, datastore.Deleted, e)
	full.until(f, datastore.Deleted, e)
}

// A watch that was not looking while an object was deleted and re-created still
// tells that the first one is gone or shows the other UID.
func watchRecreate[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V]) {
	o := f.objects[0]
	first := create(t, table, o.key, o.one)
	w := watch(t, t.Context(), table)
	w.synced()
	remove(t, table, first)
	second := create(t, table, o.key, o.other)
	for {
		c := w.step()
		if c.Kind == datastore.Deleted && c.Entry.UID != first.UID {
			t.Fatalf("deleted: UID %s; want %s", c.Entry.UID, first.UID)
		}
		if c.Kind == datastore.Put && c.Entry.UID == second.UID {
			f.same(t, "watch", second.Value, c.Entry.Value)
			return
		}
	}
}

func watchStops[K comparable, V any](t *testing.T, table datastore.Table[K, V], f fixture[K, V]) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := watch(t, ctx, table)
	w.synced()
	cancel()
	if c, err, ok := w.next(); ok {
		t.Errorf("after its context ended the watch yielded %v, %v; want its end", c, err)
	}
	// One consumer that stops looking is no concern of another.
	for range table.Watch(t.Context()) {
		break
	}
	create(t, table, f.objects[0].key, f.objects[0].one)
}
