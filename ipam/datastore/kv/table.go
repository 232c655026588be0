// SPDX-License-Identifier: Apache-2.0

package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/codec"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// kind is all that differs between tables.
type kind[K comparable, V any] struct {
	codec.Codec[K, V]
	table string
	// change is called before a write with what is there (old) and what will be
	// (changed), nil for none. It may refuse, and may complete o.
	change func(tx Tx, o metav1.Object, old, changed *V) error
	// after is called when the write is done, in the same transaction.
	after func(tx Tx, k K, old, changed *V) error
}

type table[K comparable, V any] struct {
	*engine
	kind kind[K, V]
}

func (t *table[K, V]) fail(name string, err error) error {
	return fmt.Errorf("%s %s: %w", t.kind.Kind, name, err)
}

// refuse marks a refusal of a change; one that another writer caused is a conflict.
func (t *table[K, V]) refuse(name string, err error) error {
	if errors.Is(err, datastore.ErrConflict) {
		return t.fail(name, err)
	}
	return datastore.Refused(t.fail(name, err))
}

// entry decodes what is stored under name.
func (t *table[K, V]) entry(name string, raw []byte) (datastore.Entry[K, V], metav1.Object, error) {
	k, v, o, err := t.kind.Decode(raw)
	if err == nil && t.kind.Name(k) != name {
		err = fmt.Errorf("holds %v, whose name is %s", k, t.kind.Name(k))
	}
	if err != nil {
		return datastore.Entry[K, V]{}, nil, t.fail(name, fmt.Errorf("stored object: %w", err))
	}
	return datastore.Entry[K, V]{Key: k, Value: v, Rev: revOf(o), UID: string(o.GetUID())}, o, nil
}

// load reads one object. ErrNotFound.
func (t *table[K, V]) load(tx Tx, key K) (datastore.Entry[K, V], metav1.Object, error) {
	name := t.kind.Name(key)
	raw, ok := tx.Get(t.kind.table, name)
	if !ok {
		return datastore.Entry[K, V]{}, nil, t.fail(name, datastore.ErrNotFound)
	}
	e, o, err := t.entry(name, raw)
	if err == nil && t.kind.Compare(e.Key, key) != 0 {
		err = t.fail(name, fmt.Errorf("holds %v, not %v", e.Key, key))
	}
	return e, o, err
}

// current reads the object that e is a version of. ErrNotFound, ErrConflict.
func (t *table[K, V]) current(tx Tx, e datastore.Entry[K, V]) (datastore.Entry[K, V], metav1.Object, error) {
	old, o, err := t.load(tx, e.Key)
	if err == nil && (old.Rev != e.Rev || old.UID != e.UID) {
		err = t.fail(t.kind.Name(e.Key), datastore.ErrConflict)
	}
	return old, o, err
}

func (t *table[K, V]) Get(ctx context.Context, key K) (datastore.Entry[K, V], error) {
	var out datastore.Entry[K, V]
	err := t.db.View(ctx, func(tx Tx) error {
		var err error
		out, _, err = t.load(tx, key)
		return err
	})
	return result(out, err)
}

func (t *table[K, V]) List(ctx context.Context, q datastore.Query) ([]datastore.Entry[K, V], error) {
	selects := v1alpha1.Selects(t.kind.Kind, q)
	var out []datastore.Entry[K, V]
	err := t.db.View(ctx, func(tx Tx) error {
		out = nil
		for name, raw := range tx.All(t.kind.table) {
			if selects {
				h, err := headOf(raw)
				if err != nil {
					return t.fail(name, fmt.Errorf("stored object: %w", err))
				}
				if !v1alpha1.Match(t.kind.Kind, h.Labels, q) {
					continue
				}
			}
			e, _, err := t.entry(name, raw)
			if err != nil {
				return err
			}
			out = append(out, e)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b datastore.Entry[K, V]) int { return t.kind.Compare(a.Key, b.Key) })
	return out, nil
}

func (t *table[K, V]) Create(ctx context.Context, key K, v V) (datastore.Entry[K, V], error) {
	key, v, err := t.kind.Accept(key, v)
	if err != nil {
		return datastore.Entry[K, V]{}, err
	}
	name := t.kind.Name(key)
	var out datastore.Entry[K, V]
	err = t.db.Update(ctx, func(tx Tx) error {
		if _, ok := tx.Get(t.kind.table, name); ok {
			return t.fail(name, datastore.ErrExists)
		}
		o := t.kind.Encode(key, v)
		o.SetUID(types.UID(t.newUID()))
		o.SetCreationTimestamp(t.now())
		o.SetGeneration(1)
		var err error
		out, err = t.store(tx, key, o, nil, &v)
		return err
	})
	return result(out, err)
}

func (t *table[K, V]) Update(ctx context.Context, e datastore.Entry[K, V]) (datastore.Entry[K, V], error) {
	var err error
	if e.Key, e.Value, err = t.kind.Accept(e.Key, e.Value); err != nil {
		return datastore.Entry[K, V]{}, err
	}
	var out datastore.Entry[K, V]
	err = t.db.Update(ctx, func(tx Tx) error {
		old, was, err := t.current(tx, e)
		if err != nil {
			return err
		}
		o := t.kind.Encode(e.Key, e.Value)
		inherit(o, was)
		out, err = t.store(tx, e.Key, o, &old.Value, &e.Value)
		return err
	})
	return result(out, err)
}

// store writes o and what follows from it, and reads it back.
func (t *table[K, V]) store(tx Tx, key K, o metav1.Object, old, changed *V) (datastore.Entry[K, V], error) {
	name := o.GetName()
	if t.kind.change != nil {
		if err := t.kind.change(tx, o, old, changed); err != nil {
			return datastore.Entry[K, V]{}, t.refuse(name, err)
		}
	}
	if err := put(tx, t.kind.table, name, o); err != nil {
		return datastore.Entry[K, V]{}, err
	}
	if t.kind.after != nil {
		if err := t.kind.after(tx, key, old, changed); err != nil {
			return datastore.Entry[K, V]{}, t.fail(name, err)
		}
	}
	raw, ok := tx.Get(t.kind.table, name)
	if !ok {
		return datastore.Entry[K, V]{}, t.fail(name, fmt.Errorf("database lost what was just written"))
	}
	e, _, err := t.entry(name, raw)
	return e, err
}

func (t *table[K, V]) Delete(ctx context.Context, e datastore.Entry[K, V]) error {
	return t.db.Update(ctx, func(tx Tx) error {
		old, o, err := t.current(tx, e)
		if err != nil {
			return err
		}
		if t.kind.change != nil {
			if err := t.kind.change(tx, o, &old.Value, nil); err != nil {
				return t.refuse(o.GetName(), err)
			}
		}
		if err := tx.Delete(t.kind.table, t.kind.Name(old.Key)); err != nil {
			return err
		}
		if t.kind.after != nil {
			if err := t.kind.after(tx, old.Key, &old.Value, nil); err != nil {
				return t.fail(o.GetName(), err)
			}
		}
		return nil
	})
}

// result never returns a value with an error: on a fault the write may not be there.
func result[K comparable, V any](e datastore.Entry[K, V], err error) (datastore.Entry[K, V], error) {
	if err != nil {
		return datastore.Entry[K, V]{}, err
	}
	return e, nil
}
