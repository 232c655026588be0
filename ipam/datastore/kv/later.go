// SPDX-License-Identifier: Apache-2.0

package kv

import (
	"context"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// laterPools are the pools of an engine with Options.AdmitLater: their admission is a
// write of its own, and one with a finalizer is deleted in two steps.
type laterPools struct {
	*table[string, pool.Pool]
}

// changeLater decides what an API server does of a pool: the generation. Status and
// finalizers stay, whatever the value says.
func (e *engine) changeLater(tx Tx, o metav1.Object, old, changed *pool.Pool) error {
	if changed == nil {
		return nil
	}
	n := o.(*v1alpha1.IPPool) // the object is the one that poolKind encoded
	n.Finalizers, n.Status = nil, v1alpha1.IPPoolStatus{}
	if old == nil {
		return nil
	}
	if err := changed.ValidateChange(*old); err != nil {
		return err
	}
	raw, _ := tx.Get(Pools, old.Name)
	was, _, err := decodePool(raw)
	if err != nil {
		return err
	}
	n.Finalizers, n.Status, n.DeletionTimestamp = was.Finalizers, was.Status, was.DeletionTimestamp
	if !reflect.DeepEqual(old.Spec, changed.Spec) {
		n.Generation = was.Generation + 1
	}
	return nil
}

// Delete implements datastore.Table: a pool with a finalizer is only marked.
func (t laterPools) Delete(ctx context.Context, e datastore.Entry[string, pool.Pool]) error {
	return t.db.Update(ctx, func(tx Tx) error {
		_, o, err := t.current(tx, e)
		if err != nil {
			return err
		}
		if len(o.GetFinalizers()) == 0 {
			return tx.Delete(Pools, e.Key)
		}
		if o.GetDeletionTimestamp() != nil {
			return nil
		}
		now := t.now()
		o.SetDeletionTimestamp(&now)
		return put(tx, Pools, e.Key, o)
	})
}

// status implements datastore.Store's PoolStatus.
func (t laterPools) status(ctx context.Context, e datastore.Entry[string, pool.Pool]) (datastore.Entry[string, pool.Pool], error) {
	var out datastore.Entry[string, pool.Pool]
	err := t.db.Update(ctx, func(tx Tx) error {
		old, o, err := t.current(tx, e)
		if err != nil {
			return err
		}
		p := old.Value
		p.Status = e.Value.Status
		n := t.decided(o.(*v1alpha1.IPPool), p)
		if n.DeletionTimestamp != nil && len(n.Finalizers) == 0 {
			out = old
			return tx.Delete(Pools, e.Key)
		}
		if err := put(tx, Pools, e.Key, n); err != nil {
			return err
		}
		out, _, err = t.load(tx, e.Key)
		return err
	})
	return result(out, err)
}
