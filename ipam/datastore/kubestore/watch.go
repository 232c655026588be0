// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/allod/allod/ipam/datastore"
)

// reopenEvery is the least time between two WATCH calls of one watch: a server that
// ends each at once is not flooded.
const reopenEvery = time.Second

// errStopped: the consumer looks no further.
var errStopped = errors.New("the consumer stopped")

// watch is one run of Watch.
type watch[K comparable, V any] struct {
	*table[K, V]
	yield func(datastore.Change[K, V], error) bool
	seen  map[string]datastore.Entry[K, V] // by name, without values
	rev   string                           // how far the changes have been yielded
}

// Watch implements datastore.Table. A WATCH that the server ends, or whose connection
// breaks, is opened again where it stopped; when that fails, or the revision is
// compacted meanwhile, the sequence ends with the error.
func (t *table[K, V]) Watch(ctx context.Context) iter.Seq2[datastore.Change[K, V], error] {
	return func(yield func(datastore.Change[K, V], error) bool) {
		w := &watch[K, V]{table: t, yield: yield, seen: map[string]datastore.Entry[K, V]{}}
		err := w.start(ctx)
		for err == nil {
			err = w.follow(ctx)
		}
		if ctx.Err() == nil && !errors.Is(err, errStopped) {
			yield(datastore.Change[K, V]{}, err)
		}
	}
}

func (w *watch[K, V]) send(kind datastore.ChangeKind, e datastore.Entry[K, V]) error {
	if !w.yield(datastore.Change[K, V]{Kind: kind, Entry: e}, nil) {
		return errStopped
	}
	return nil
}

// start yields what is there.
func (w *watch[K, V]) start(ctx context.Context) error {
	items, rev, err := w.list(ctx, w.resource, "", false, nil)
	if err != nil {
		return w.failed(verbList, "", err)
	}
	for i, raw := range items {
		if err := w.put(ctx, raw); err != nil {
			return err
		}
		items[i] = nil // the consumer may keep the values; the text goes as they come
	}
	w.rev = rev
	return w.send(datastore.Synced, datastore.Entry[K, V]{})
}

// event is one line of a WATCH.
type event struct {
	Type   apiwatch.EventType `json:"type"`
	Object json.RawMessage    `json:"object"`
}

// follow opens a WATCH and yields its changes until it ends. An error ends the
// sequence.
func (w *watch[K, V]) follow(ctx context.Context) error {
	reopen := time.NewTimer(reopenEvery)
	defer reopen.Stop()
	stream, err := w.api.Get().Resource(w.resource).
		Param("watch", "true").Param("resourceVersion", w.rev).Param("allowWatchBookmarks", "true").
		Stream(ctx)
	if err != nil {
		return w.failed(verbWatch, "", err)
	}
	defer stream.Close()
	for dec := json.NewDecoder(stream); ; {
		var e event
		if err := dec.Decode(&e); err != nil {
			if syntax, garbled := errors.AsType[*json.SyntaxError](err); garbled {
				return w.failed(verbWatch, "", fmt.Errorf("answer: %w", syntax))
			}
			break
		}
		if err := w.take(ctx, e); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-reopen.C:
		return nil
	}
}

func (w *watch[K, V]) take(ctx context.Context, e event) error {
	if e.Type == apiwatch.Error {
		var s metav1.Status
		if err := json.Unmarshal(e.Object, &s); err != nil {
			return w.failed(verbWatch, "", fmt.Errorf("event of type %s: %w", e.Type, err))
		}
		return w.failed(verbWatch, "", apierrors.FromObject(&s))
	}
	var o struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(e.Object, &o); err != nil {
		return w.failed(verbWatch, "", fmt.Errorf("event of type %s: %w", e.Type, err))
	}
	var err error
	switch e.Type {
	case apiwatch.Added, apiwatch.Modified:
		err = w.put(ctx, e.Object)
	case apiwatch.Deleted:
		err = w.gone(e.Object)
	case apiwatch.Bookmark:
	default:
		err = w.failed(verbWatch, "", fmt.Errorf("event of unknown type %q", e.Type))
	}
	w.rev = o.Metadata.ResourceVersion
	return err
}

// put yields an object. One that cannot be read changes nothing for the consumer:
// what it saw last stays (INV-2).
func (w *watch[K, V]) put(ctx context.Context, raw []byte) error {
	e, err := w.entry(raw)
	switch {
	case err == nil:
		w.seen[w.codec.Name(e.Key)] = datastore.Entry[K, V]{Key: e.Key, Rev: e.Rev, UID: e.UID}
		return w.send(datastore.Put, e)
	case w.lenient:
		w.leftOut(ctx, err)
		return nil
	}
	return err
}

// gone yields that an object is no more. The event has it at the revision of its
// deletion; the entry is the one that was seen, without a value if it could not be
// read at the end.
func (w *watch[K, V]) gone(raw []byte) error {
	name := NameOf(raw)
	last, ok := w.seen[name]
	if !ok {
		return nil
	}
	delete(w.seen, name)
	if e, err := w.entry(raw); err == nil {
		last.Value, last.Origin = e.Value, e.Origin
	}
	return w.send(datastore.Deleted, last)
}
