// SPDX-License-Identifier: Apache-2.0

package memstore_test

import (
	"errors"
	"iter"
	"testing"

	"github.com/allod/allod/ipam/datastore"
)

// watcher pulls the claims of one watch.
type watcher struct {
	t    *testing.T
	next func() (datastore.Change[datastore.AffinityKey, datastore.Affinity], error, bool)
}

func pull(t *testing.T, s datastore.Store) watcher {
	next, stop := iter.Pull2(s.Affinities.Watch(t.Context()))
	t.Cleanup(stop)
	return watcher{t, next}
}

func (w watcher) want(kind datastore.ChangeKind, seq uint64) {
	w.t.Helper()
	c, err, ok := w.next()
	if !ok || err != nil || c.Kind != kind || c.Entry.Value.BlockSeq != seq {
		w.t.Fatalf("watch: kind %d, sequence %d, %v, %v; want kind %d, sequence %d", c.Kind, c.Entry.Value.BlockSeq, err, ok, kind, seq)
	}
}

func (w watcher) ends(want error) {
	w.t.Helper()
	if _, err, ok := w.next(); !ok || !errors.Is(err, want) {
		w.t.Fatalf("watch: %v, %v; want it to fail with %v", err, ok, want)
	}
	if _, _, ok := w.next(); ok {
		w.t.Fatal("watch goes on after an error")
	}
}
