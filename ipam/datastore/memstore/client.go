// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kv"
	"github.com/allod/allod/ipam/pool"
)

// Client returns the tables as one client sees them and the faults that are
// planned for it: at first none. name stands in the errors it is told.
func (s *Store) Client(name string) (datastore.Store, *Faults) {
	f := &Faults{
		plan: map[int]Fault{}, reads: map[int]error{},
		watches: map[int]context.CancelCauseFunc{},
	}
	c := client{store: s, faults: f, name: name}
	pools := wrap(c, kv.Pools, func(d datastore.Store) datastore.Table[string, pool.Pool] { return d.Pools })
	out := datastore.Store{
		Blocks: wrap(c, kv.Blocks, func(d datastore.Store) datastore.Table[netip.Prefix, block.Block] { return d.Blocks }),
		Affinities: wrap(c, kv.Affinities, func(d datastore.Store) datastore.Table[datastore.AffinityKey, datastore.Affinity] {
			return d.Affinities
		}),
		Handles:      wrap(c, kv.Handles, func(d datastore.Store) datastore.Table[block.HandleID, datastore.Handle] { return d.Handles }),
		Pools:        pools,
		Reservations: wrap(c, kv.Reservations, func(d datastore.Store) datastore.Table[string, pool.Reservation] { return d.Reservations }),
		Config:       wrap(c, kv.Config, func(d datastore.Store) datastore.Table[string, datastore.Config] { return d.Config }),
	}
	if store := s.plain.PoolStatus; store != nil {
		out.PoolStatus = func(ctx context.Context, e datastore.Entry[string, pool.Pool]) (datastore.Entry[string, pool.Pool], error) {
			return pools.write(ctx, Update, e.Key,
				func(ctx context.Context) (datastore.Entry[string, pool.Pool], error) { return store(ctx, e) },
				func() error { return pools.rival(ctx, e.Key) })
		}
	}
	return out, f
}

type client struct {
	store  *Store
	faults *Faults
	name   string
}

// faulty is a table whose calls go through the faults of a client.
type faulty[K comparable, V any] struct {
	client
	table string
	pick  func(datastore.Store) datastore.Table[K, V]
	inner datastore.Table[K, V]
}

func wrap[K comparable, V any](c client, table string, pick func(datastore.Store) datastore.Table[K, V]) *faulty[K, V] {
	return &faulty[K, V]{client: c, table: table, pick: pick, inner: pick(c.store.plain)}
}

func (t *faulty[K, V]) begin(ctx context.Context, verb Verb, key string) (Op, error) {
	op, err := t.faults.begin(ctx, t.table, verb, key)
	if err != nil {
		err = t.faults.end(op, fmt.Errorf("client %s: %w", t.name, err))
	}
	return op, err
}

// past returns the table as it was lag commits ago.
func (t *faulty[K, V]) past(lag int) datastore.Table[K, V] {
	if lag <= 0 {
		return t.inner
	}
	return t.pick(t.store.over(past{Store: t.store, lag: lag}))
}

func (t *faulty[K, V]) Get(ctx context.Context, key K) (datastore.Entry[K, V], error) {
	op, err := t.begin(ctx, Get, fmt.Sprint(key))
	if err != nil {
		return datastore.Entry[K, V]{}, err
	}
	e, err := t.inner.Get(ctx, key)
	return e, t.faults.end(op, err)
}

func (t *faulty[K, V]) List(ctx context.Context, q datastore.Query) ([]datastore.Entry[K, V], error) {
	op, err := t.begin(ctx, List, "")
	if err != nil {
		return nil, err
	}
	from := t.inner
	if q.MayBeStale {
		from = t.past(t.faults.stale())
	}
	es, err := from.List(ctx, q)
	return es, t.faults.end(op, err)
}

func (t *faulty[K, V]) Create(ctx context.Context, key K, v V) (datastore.Entry[K, V], error) {
	return t.write(ctx, Create, key,
		func(ctx context.Context) (datastore.Entry[K, V], error) { return t.inner.Create(ctx, key, v) },
		func() error { return datastore.ErrExists })
}

func (t *faulty[K, V]) Update(ctx context.Context, e datastore.Entry[K, V]) (datastore.Entry[K, V], error) {
	return t.write(ctx, Update, e.Key,
		func(ctx context.Context) (datastore.Entry[K, V], error) { return t.inner.Update(ctx, e) },
		func() error { return t.rival(ctx, e.Key) })
}

func (t *faulty[K, V]) Delete(ctx context.Context, e datastore.Entry[K, V]) error {
	_, err := t.write(ctx, Delete, e.Key,
		func(ctx context.Context) (datastore.Entry[K, V], error) {
			return datastore.Entry[K, V]{}, t.inner.Delete(ctx, e)
		},
		func() error { return t.rival(ctx, e.Key) })
	return err
}

// write runs one write under the fault that is planned for it. conflict answers
// for a rival that was first.
func (t *faulty[K, V]) write(
	ctx context.Context, verb Verb, key K,
	apply func(context.Context) (datastore.Entry[K, V], error), conflict func() error,
) (datastore.Entry[K, V], error) {
	op, err := t.begin(ctx, verb, fmt.Sprint(key))
	if err != nil {
		return datastore.Entry[K, V]{}, err
	}
	var out datastore.Entry[K, V]
	err = t.faults.perform(op, request{
		apply:    func() (err error) { out, err = apply(ctx); return err },
		late:     func() error { _, err := apply(context.WithoutCancel(ctx)); return err },
		conflict: conflict,
	})
	if err != nil {
		return datastore.Entry[K, V]{}, t.faults.end(op, fmt.Errorf("client %s: %s: %w", t.name, op, err))
	}
	return out, t.faults.end(op, nil)
}

// rival writes an object again as it is, so that the revision a client knows is
// no longer current, and answers what that client would be told.
func (t *faulty[K, V]) rival(ctx context.Context, key K) error {
	e, err := t.inner.Get(ctx, key)
	if err != nil {
		return err
	}
	if _, err := t.inner.Update(ctx, e); err != nil {
		return fmt.Errorf("rival's write: %w", err)
	}
	return datastore.ErrConflict
}

// Watch lags as planned when it starts, and ends with ErrWatchReset or ErrCrashed.
func (t *faulty[K, V]) Watch(ctx context.Context) iter.Seq2[datastore.Change[K, V], error] {
	return func(yield func(datastore.Change[K, V], error) bool) {
		op, err := t.begin(ctx, Watch, "")
		if err != nil {
			yield(datastore.Change[K, V]{}, err)
			return
		}
		wctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		lag := t.faults.watching(op, cancel)
		defer t.faults.watched(op)
		for c, err := range t.past(lag).Watch(wctx) {
			if !yield(c, err) || err != nil {
				return
			}
		}
		if cause := context.Cause(wctx); errors.Is(cause, ErrWatchReset) || errors.Is(cause, ErrCrashed) {
			yield(datastore.Change[K, V]{}, t.faults.end(op, fmt.Errorf("client %s: %s: %w", t.name, op, cause)))
		}
	}
}
