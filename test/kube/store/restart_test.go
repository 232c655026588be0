// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kubestore"
	"github.com/allod/allod/test/kube/apiserver"
)

type (
	handles     = datastore.Table[block.HandleID, datastore.Handle]
	handleEntry = datastore.Entry[block.HandleID, datastore.Handle]
)

// kept is a handle that is there all the time.
const kept = block.HandleID("kept")

// outage is a store whose API server is killed and comes back while readers, writers
// and a watch are at it.
type outage struct {
	t     *testing.T
	table handles
	wg    sync.WaitGroup // readers and writers
	watch sync.WaitGroup

	mu      sync.Mutex
	done    map[string]int                   // by worker: calls that succeeded
	faults  map[string]int                   // by worker: calls that failed
	written map[block.HandleID]string        // what is known of each handle that was written
	seen    map[block.HandleID]datastore.Rev // by the watch
	changes map[datastore.ChangeKind]int     // of the watch
}

// What is known of a handle.
const (
	stored   = "stored"
	deleted  = "deleted"
	released = "stored, releasing"
	unknown  = "unknown"
)

// call counts the outcome of a worker's call and reports whether it succeeded. A fault
// must be one: nothing that speaks of the object, or of a refusal.
func (o *outage) call(worker string, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.done[worker]++
		return true
	}
	o.faults[worker]++
	for _, sentinel := range []error{datastore.ErrNotFound, datastore.ErrExists, datastore.ErrConflict, datastore.ErrRefused} {
		if errors.Is(err, sentinel) {
			o.t.Errorf("%s: %v is %v; the API server was away", worker, err, sentinel)
		}
	}
	return false
}

func (o *outage) know(id block.HandleID, what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.written[id] = what
}

// work runs step until ctx ends, with the pause between tries that a caller makes
// while nothing answers. The calls themselves outlive ctx.
func work(ctx context.Context, wg *sync.WaitGroup, step func(n int)) {
	wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			step(n)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
}

func (o *outage) read(ctx context.Context) {
	all := o.t.Context()
	work(ctx, &o.wg, func(int) {
		e, err := o.table.Get(all, kept)
		if o.call("get", err) && e.Key != kept {
			o.t.Errorf("get: %v", e.Key)
		}
		for _, stale := range []bool{false, true} {
			es, err := o.table.List(all, datastore.Query{MayBeStale: stale})
			if o.call(fmt.Sprint("list, stale ", stale), err) && !slices.ContainsFunc(es, func(e handleEntry) bool { return e.Key == kept }) {
				o.t.Errorf("list, stale %v: %d handles without %s", stale, len(es), kept)
			}
		}
	})
}

// most is how many handles of a writer are there at a time: what readers list must not
// grow with the time the test takes.
const most = 20

// write creates handles; it changes every second one, deletes every third, and of the
// others the oldest when there are too many.
func (o *outage) write(ctx context.Context, worker string) {
	all := o.t.Context()
	var there []handleEntry
	work(ctx, &o.wg, func(n int) {
		id := block.HandleID(fmt.Sprintf("%s-%d", worker, n))
		o.know(id, unknown)
		e, err := o.table.Create(all, id, datastore.Handle{})
		if !o.call("create", err) {
			return
		}
		o.know(id, stored)
		if n%2 == 0 {
			o.know(id, unknown)
			e.Value.Releasing = true
			if e, err = o.table.Update(all, e); !o.call("update", err) {
				return
			}
			o.know(id, released)
		}
		if there = append(there, e); n%3 != 0 && len(there) <= most {
			return
		}
		gone := len(there) - 1 // the one just made
		if n%3 != 0 {
			gone = 0
		}
		e = there[gone]
		there = slices.Delete(there, gone, gone+1)
		o.know(e.Key, unknown)
		if o.call("delete", o.table.Delete(all, e)) {
			o.know(e.Key, deleted)
		}
	})
}

// follow watches as consumers do: a watch that ends with an error starts again.
func (o *outage) follow(ctx context.Context) {
	work(ctx, &o.watch, func(int) {
		seen := map[block.HandleID]datastore.Rev{}
		for c, err := range o.table.Watch(ctx) {
			if !o.call("watch", err) {
				return
			}
			switch o.count(c.Kind); c.Kind {
			case datastore.Put:
				seen[c.Entry.Key] = c.Entry.Rev
			case datastore.Deleted:
				delete(seen, c.Entry.Key)
			}
			if _, ok := seen[kept]; !ok && c.Kind != datastore.Put {
				o.t.Errorf("watch: %v of %v leaves no %s", c.Kind, c.Entry.Key, kept)
			}
			o.mu.Lock()
			o.seen = maps.Clone(seen)
			o.mu.Unlock()
		}
	})
}

func (o *outage) count(k datastore.ChangeKind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes[k]++
}

// await waits until every worker has been through n more calls of this outcome.
func (o *outage) await(what string, counts map[string]int, n int) {
	o.t.Helper()
	workers := []string{"get", "list, stale false", "list, stale true", "create", "update", "delete", "watch"}
	if what == "faults" { // a writer does not come to these while nothing is created
		workers = []string{"get", "list, stale false", "list, stale true", "create", "watch"}
	}
	o.mu.Lock()
	from := maps.Clone(counts)
	o.mu.Unlock()
	err := wait.PollUntilContextTimeout(o.t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		return !slices.ContainsFunc(workers, func(w string) bool { return counts[w] < from[w]+n }), nil
	})
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.t.Fatalf("%s: %v, then %v; want %d more of each: %v", what, from, counts, n, err)
	}
}

// INV-2, INV-7, INV-10: the API server is killed in the middle of reads, writes and a
// watch, and comes back. Reads that fail meanwhile say nothing about what is stored;
// what was acknowledged is there afterwards; the watch tells everything again.
func TestServerIsKilledAndComesBack(t *testing.T) {
	srv := apiserver.New(t)
	if err := applyCRDs(t.Context(), srv); err != nil {
		t.Fatal(err)
	}
	s, _ := client(t, srv.Config(), kubestore.Options{})
	o := &outage{
		t: t, table: s.Store().Handles, done: map[string]int{}, faults: map[string]int{},
		written: map[block.HandleID]string{}, changes: map[datastore.ChangeKind]int{},
	}
	before := create(t, o.table, kept, datastore.Handle{})
	watching, stopWatch := context.WithCancel(t.Context())
	defer stopWatch()
	o.follow(watching)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	t.Cleanup(func() { // a worker must not outlive a test that failed
		stop()
		stopWatch()
		o.wg.Wait()
		o.watch.Wait()
	})
	o.read(ctx)
	for _, worker := range []string{"a", "b", "c"} {
		o.write(ctx, worker)
	}
	const rounds = 2
	for range rounds {
		o.await("calls", o.done, 20)
		srv.Kill()
		o.await("faults", o.faults, 1)
		if err := srv.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	o.await("calls", o.done, 20)
	before.Value.Releasing = true // as it was read before
	if _, err := o.table.Update(t.Context(), before); err != nil {
		t.Errorf("update of what was read before the API server went: %v", err)
	}
	stop()
	o.wg.Wait()
	there := o.settle()
	stopWatch()
	o.watch.Wait()
	o.compare(there)
	t.Attr("figures", fmt.Sprintf("API server killed %d times: calls %v, faults %v, %d full lists of the watch, %d writes unknown",
		rounds, o.done, o.faults, o.changes[datastore.Synced], o.unknown()))
	if o.changes[datastore.Synced] < 1+rounds {
		t.Errorf("the watch told everything %d times; want once more after each of %d outages", o.changes[datastore.Synced], rounds)
	}
}

// settle waits until the watch has seen what is stored, and returns it.
func (o *outage) settle() map[block.HandleID]datastore.Handle {
	o.t.Helper()
	there := map[block.HandleID]datastore.Handle{}
	err := wait.PollUntilContextTimeout(o.t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		es, err := o.table.List(ctx, datastore.Query{})
		if err != nil {
			return false, err
		}
		revs := map[block.HandleID]datastore.Rev{}
		clear(there)
		for _, e := range es {
			revs[e.Key], there[e.Key] = e.Rev, e.Value
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		return maps.Equal(revs, o.seen), nil
	})
	if err != nil {
		o.t.Errorf("the watch does not come to what is stored: %v", err)
	}
	return there
}

func (o *outage) unknown() (n int) {
	for _, what := range o.written {
		if what == unknown {
			n++
		}
	}
	return n
}

// compare holds what is stored against what was acknowledged.
func (o *outage) compare(there map[block.HandleID]datastore.Handle) {
	for id := range there {
		if _, ok := o.written[id]; !ok && id != kept {
			o.t.Errorf("%s is stored; nobody wrote it", id)
		}
	}
	for id, want := range o.written {
		h, ok := there[id]
		switch {
		case want == unknown:
		case ok != (want != deleted), ok && h.Releasing != (want == released):
			o.t.Errorf("%s: stored %v, releasing %v; acknowledged as %s", id, ok, h.Releasing, want)
		}
	}
}
