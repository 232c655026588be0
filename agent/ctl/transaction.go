// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

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
)

// applied is the outcome for one object.
type applied struct {
	ref     string // ippool/default-v4
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
		ref := refOf(o)
		verb, err := applyOne(ctx, store, o, resized)
		if err != nil {
			errs = append(errs, prefixed(ref, err))
			continue
		}
		done = append(done, applied{ref: ref, verb: verb})
	}
	if len(errs) == 0 {
		errs = append(errs, admission(ctx, store, done, resized))
	}
	return done, errors.Join(errs...)
}

func refOf(o v1alpha1.Object) string {
	kind, name, _ := strings.Cut(o.Ref(), "/")
	return strings.ToLower(kind) + "/" + name
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
	exists := err == nil
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		return "", err
	}
	v, err := next(e.Value, exists)
	switch {
	case err != nil:
		return "", err
	case !exists:
		_, err = t.Create(ctx, key, v)
		return created, err
	case reflect.DeepEqual(v, e.Value):
		return unchanged, nil
	}
	e.Value = v
	_, err = t.Update(ctx, e)
	return configured, err
}

// admission looks at what the store decided about the pools. A pool that hands
// out nothing is worth a warning; one that a new block size would bring to that
// is refused (case C8).
func admission(ctx context.Context, s datastore.Store, done []applied, resized map[string]int) error {
	pools, err := s.Pools.List(ctx, datastore.Query{})
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range pools {
		p := e.Value
		i := slices.IndexFunc(done, func(a applied) bool { return a.ref == "ippool/"+p.Name })
		if i < 0 {
			continue
		}
		if p.Spec.NodeSelector+p.Spec.NamespaceSelector != "" {
			done[i].warning = "serves nobody: its selectors need labels, and an embedded store knows none"
		}
		if p.Status.Allocatable {
			continue
		}
		if old, ok := resized[p.Name]; ok && p.Status.Reason == pool.ReasonBlockSizeConflict {
			errs = append(errs, fmt.Errorf("%s: spec.blockSize: cannot change from %d to %d now: %s",
				done[i].ref, old, p.Spec.BlockSize, p.Status.Message))
		}
		if conflicts(p.Status) {
			done[i].warning = "hands out nothing: " + p.Status.Reason + ": " + p.Status.Message
		}
	}
	return errors.Join(errs...)
}
