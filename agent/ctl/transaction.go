// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kv"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// What happened to an object.
const (
	created    = "created"
	configured = "configured"
	unchanged  = "unchanged"
	replaced   = "replaced" // what was stored could not be read
	admitted   = "admitted" // a pool that was stored as it is, and handed out nothing
)

// applied is the outcome for one object.
type applied struct {
	ref     ref
	verb    string
	warning string // why a pool hands out nothing
}

// inTx lets the tables of a store work inside a transaction that is already
// open, so that several writes become one.
type inTx struct{ tx kv.Tx }

func (d inTx) View(_ context.Context, fn func(kv.Tx) error) error   { return fn(d.tx) }
func (d inTx) Update(_ context.Context, fn func(kv.Tx) error) error { return fn(d.tx) }

func (d inTx) Wait(ctx context.Context, _ uint64) error {
	<-ctx.Done()
	return ctx.Err()
}

// applyAll writes the objects in tx. On an error the caller must give the
// transaction up; the error names every object that is refused.
func applyAll(ctx context.Context, tx kv.Tx, objects []v1alpha1.Object) ([]applied, error) {
	store := kv.New(inTx{tx}, kv.Options{})
	done := make([]applied, 0, len(objects))
	var errs []error
	resized := map[string]int{} // pool -> the block size it had
	for _, o := range objects {
		r := refOf(o)
		verb, err := applyOne(ctx, store, o, resized)
		if err != nil {
			errs = append(errs, prefixed(r.String(), err))
			continue
		}
		done = append(done, applied{ref: r, verb: verb})
	}
	if len(errs) > 0 {
		return done, errors.Join(errs...)
	}
	entries, err := store.Pools.List(ctx, datastore.Query{})
	if err != nil {
		return done, err
	}
	pools := make([]pool.Pool, len(entries))
	for i, e := range entries {
		pools[i] = e.Value
	}
	warnSelectors(done, pools)
	warnPools(done, pools)
	return done, resizeRefusals(pools, resized)
}

func applyOne(ctx context.Context, s datastore.Store, o v1alpha1.Object, resized map[string]int) (string, error) {
	switch o := o.(type) {
	case *v1alpha1.IPPool:
		p, err := o.Pool()
		if err != nil {
			return "", err
		}
		return put(ctx, s.Pools, p.Name, func(old pool.Pool, exists bool) (pool.Pool, error) {
			n := old
			n.Name, n.Spec = p.Name, p.Spec
			if !exists {
				return n, nil
			}
			if n.Spec.BlockSize != old.Spec.BlockSize {
				resized[n.Name] = old.Spec.BlockSize
			}
			return n, n.ValidateChange(old)
		})
	case *v1alpha1.IPReservation:
		r, err := o.Reservation()
		if err != nil {
			return "", err
		}
		return put(ctx, s.Reservations, r.Name, replace(r))
	case *v1alpha1.IPAMConfiguration:
		c, err := o.Config()
		if err != nil {
			return "", err
		}
		return put(ctx, s.Config, datastore.DefaultConfig, replace(c))
	}
	return "", fmt.Errorf("kind %T cannot be applied", o)
}

func replace[V any](v V) func(V, bool) (V, error) {
	return func(V, bool) (V, error) { return v, nil }
}

// put creates or updates one object; next makes the new value of the old one.
func put[V any](ctx context.Context, t datastore.Table[string, V], key string, next func(old V, exists bool) (V, error)) (string, error) {
	e, err := t.Get(ctx, key)
	exists, blind := err == nil, replaceable(e, err)
	if err != nil && !blind && !errors.Is(err, datastore.ErrNotFound) {
		return "", err
	}
	v, err := next(e.Value, exists)
	if err != nil {
		return "", err
	}
	verb := configured
	switch {
	case blind:
		verb = replaced
	case !exists:
		_, err = t.Create(ctx, key, v)
		return created, err
	case reflect.DeepEqual(v, e.Value):
		return unchanged, nil
	}
	e.Value = v
	_, err = t.Update(ctx, e)
	return verb, err
}

// replaceable reports whether e, which a Get returned beside err, is an object that
// cannot be read and can be written or deleted all the same.
func replaceable[V any](e datastore.Entry[string, V], err error) bool {
	_, unreadable := errors.AsType[*datastore.UnreadableError](err)
	return unreadable && e.Rev != ""
}

// ofPool returns what happened to a pool, nil if no manifest names it.
func ofPool(done []applied, name string) *applied {
	i := slices.IndexFunc(done, func(a applied) bool { return a.ref == ref{kindPool, name} })
	if i < 0 {
		return nil
	}
	return &done[i]
}

// warnSelectors warns about pools whose selectors need labels that an embedded store
// does not know.
func warnSelectors(done []applied, pools []pool.Pool) {
	for _, p := range pools {
		if a := ofPool(done, p.Name); a != nil && p.Spec.NodeSelector+p.Spec.NamespaceSelector != "" {
			a.warning = "serves nobody: its selectors need labels, and an embedded store knows none"
		}
	}
}

// warnPools looks at what was decided about the pools: one that hands out nothing is
// worth a warning.
func warnPools(done []applied, pools []pool.Pool) {
	for name, is := range standings(pools) {
		if a := ofPool(done, name); a != nil && !is.meant() {
			a.warning = "hands out nothing: " + is.status + ": " + is.message
		}
	}
}

// resizeRefusals refuses a new block size that would have a pool hand out nothing
// (case C8). resized has, by pool, the size it had.
func resizeRefusals(pools []pool.Pool, resized map[string]int) error {
	var errs []error
	for _, p := range pools {
		if old, ok := resized[p.Name]; ok && !p.Status.Allocatable && p.Status.Reason == pool.ReasonBlockSizeConflict {
			errs = append(errs, fmt.Errorf("%s: spec.blockSize: cannot change from %d to %d now: %s",
				ref{kindPool, p.Name}, old, p.Spec.BlockSize, p.Status.Message))
		}
	}
	return errors.Join(errs...)
}
