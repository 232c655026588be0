// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
)

// stopped is a ReconcilePools that stops before its n-th call, and before the one after
// that, until it is let go on.
type stopped struct {
	done, reached, goOn chan struct{}
	err                 error
}

func (w *world) reconcileUntil(name string, n int) *stopped {
	s := &stopped{make(chan struct{}), make(chan struct{}), make(chan struct{}), nil}
	store, f := w.mem.Client(name)
	calls := 0
	f.Hook(func(context.Context, memstore.Op) error {
		if calls++; calls == n || calls == n+1 {
			s.reached <- struct{}{}
			<-s.goOn
		}
		return nil
	})
	status := store.PoolStatus
	store.PoolStatus = func(ctx context.Context, e poolEntry) (poolEntry, error) {
		now, err := w.mem.Store().Pools.Get(ctx, e.Key)
		if err != nil || now.Value.Status.Finalizer || !e.Value.Status.Finalizer {
			return status(ctx, e)
		}
		first := e // as kubestore does: the finalizer, then the condition
		first.Value.Status = now.Value.Status
		first.Value.Status.Finalizer = true
		got, err := status(ctx, first)
		if err != nil {
			return got, err
		}
		e.Rev = got.Rev
		return status(ctx, e)
	}
	go func() {
		defer close(s.done)
		_, s.err = New(store, Options{Clock: w.clock}).ReconcilePools(w.t.Context())
	}()
	s.wait()
	return s
}

func (s *stopped) wait() {
	select {
	case <-s.reached:
	case <-s.done:
	}
}

// step lets it make the call that it has stopped before.
func (s *stopped) step() {
	select {
	case s.goOn <- struct{}{}:
		s.wait()
	case <-s.done:
	}
}

func (s *stopped) end(t *testing.T) {
	t.Helper()
	s.step()
	s.step()
	if <-s.done; s.err != nil {
		t.Error(s.err)
	}
}

// claimAll has nodes take every address that they are given; the ledger finds what is
// given twice (INV-1).
func (w *world) claimAll(round string) {
	w.t.Helper()
	es, err := w.mem.Store().Pools.List(w.t.Context(), datastore.Query{})
	w.create(nil, err)
	for i, e := range es {
		for _, o := range es[:i] {
			if o.Value.Status.Allocatable && e.Value.Status.Allocatable && o.Value.Spec.CIDR.Overlaps(e.Value.Spec.CIDR) {
				w.t.Errorf("%s: pools %s and %s both hand out", round, o.Key, e.Key)
			}
		}
	}
	for i := range 4 {
		id := fmt.Sprint(round, i)
		_, _ = w.attach(w.c, with(request(pod("node-"+id, id, id), 0, 0), fmt.Sprint("10.0.0.", i)))
	}
}

// Two admissions, each stopped at every call against the other, while pools come that
// overlap and nodes take what is handed out: one pool gets the range and keeps it.
func TestFaultTwoAdmissions(t *testing.T) {
	for name, tt := range map[string]struct {
		before  func(w *world)
		between func(w *world) // the two
	}{
		"both are there": {func(w *world) {
			w.pool("p", "10.0.0.0/30", size(30))
			w.pool("a", "10.0.0.0/30", size(31))
		}, func(*world) {}},
		"one comes in between": {func(w *world) {
			w.pool("p", "10.0.0.0/30", size(30))
		}, func(w *world) { w.pool("a", "10.0.0.0/30", size(31)) }},
		"one comes in between, refusals are there already": {func(w *world) {
			w.pool("a", "10.0.0.0/30", size(31))
			w.pool("p", "10.0.0.0/30", size(30))
			w.reconcile() // p is refused because of a
			w.deletePool("a")
			w.letGo("a")
		}, func(w *world) { w.pool("a", "10.0.0.0/30", size(31)) }},
		"a pool between two": {func(w *world) {
			w.pool("p", "10.0.0.0/31", size(31))
			w.pool("q", "10.0.0.2/31", size(31))
		}, func(w *world) { w.pool("a", "10.0.0.0/30", size(32)) }},
		"one goes in between": {func(w *world) {
			w.pool("a", "10.0.0.0/30", size(31))
			w.pass(time.Second)
			w.pool("p", "10.0.0.0/30", size(30))
			w.reconcile()
		}, func(w *world) { w.deletePool("a") }},
	} {
		t.Run(name, func(t *testing.T) {
			for k := 1; k <= 10; k++ {
				for m := 1; m <= 10; m++ {
					if every() > 4 && (k+m)%3 != 0 { // as interleavings are thinned out
						continue
					}
					w := newWorld(t)
					w.admitLater()
					tt.before(w)
					a := w.reconcileUntil("A", k)
					w.claimAll("1")
					tt.between(w)
					b := w.reconcileUntil("B", m)
					w.claimAll("2")
					a.step()
					w.claimAll("3")
					b.end(t)
					w.claimAll("4")
					a.end(t)
					w.claimAll("5")
					w.verify()
					w.reconcile()
					w.claimAll("6")
					w.verify()
					if t.Failed() {
						t.Fatalf("A stopped at its call %d, B at %d", k, m)
					}
				}
			}
		})
	}
}

// letGo removes a pool whose deletion nobody has looked at since.
func (w *world) letGo(name string) {
	w.t.Helper()
	e, err := w.mem.Store().Pools.Get(w.t.Context(), name)
	w.create(nil, err)
	e.Value.Status.Finalizer = false
	w.create(w.mem.Store().PoolStatus(w.t.Context(), e))
}
