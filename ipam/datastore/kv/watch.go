// SPDX-License-Identifier: Apache-2.0

package kv

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/allod/allod/ipam/datastore"
)

// seen is what a watch remembers of one object. It keeps the stored bytes, not
// the value it yielded: that one is the consumer's.
type seen struct {
	head
	raw []byte
}

// Watch compares the table with what it saw last whenever the database has moved.
func (t *table[K, V]) Watch(ctx context.Context) iter.Seq2[datastore.Change[K, V], error] {
	return func(yield func(datastore.Change[K, V], error) bool) {
		var (
			last   = map[string]seen{}
			rev    uint64
			synced bool
		)
		for {
			changes, now, err := t.changes(ctx, last, rev)
			if err == nil && !synced {
				changes = append(changes, datastore.Change[K, V]{Kind: datastore.Synced})
				synced = true
			}
			for _, c := range changes {
				if !yield(c, nil) {
					return
				}
			}
			if rev = now; err == nil {
				err = t.db.Wait(ctx, rev)
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(datastore.Change[K, V]{}, fmt.Errorf("watch %s: %w", t.kind.table, err))
				return
			}
		}
	}
}

// changes brings last up to date and returns the steps: what is gone first, then
// what is new, each in the order of the keys.
func (t *table[K, V]) changes(ctx context.Context, last map[string]seen, rev uint64) (
	changes []datastore.Change[K, V], now uint64, err error,
) {
	err = t.db.View(ctx, func(tx Tx) error {
		if now = tx.Rev(); now < rev {
			return fmt.Errorf("from %d to %d: %w", rev, now, ErrRestored)
		}
		current := map[string]bool{}
		for name, raw := range tx.All(t.kind.table) {
			current[name] = true
			h, err := headOf(raw)
			if err != nil {
				return t.fail(name, fmt.Errorf("stored object: %w", err))
			}
			was, known := last[name]
			if known && was.UID == h.UID && was.ResourceVersion == h.ResourceVersion {
				continue
			}
			if known && was.UID != h.UID {
				if changes, err = t.change(changes, datastore.Deleted, name, was.raw); err != nil {
					return err
				}
			}
			if changes, err = t.change(changes, datastore.Put, name, raw); err != nil {
				return err
			}
			last[name] = seen{head: head{UID: h.UID, ResourceVersion: h.ResourceVersion}, raw: bytes.Clone(raw)}
		}
		for name, was := range last {
			if current[name] {
				continue
			}
			if changes, err = t.change(changes, datastore.Deleted, name, was.raw); err != nil {
				return err
			}
			delete(last, name)
		}
		return nil
	})
	slices.SortStableFunc(changes, func(a, b datastore.Change[K, V]) int {
		if a.Kind != b.Kind {
			return int(b.Kind) - int(a.Kind) // Deleted before Put
		}
		return t.kind.Compare(a.Entry.Key, b.Entry.Key)
	})
	return changes, now, err
}

func (t *table[K, V]) change(to []datastore.Change[K, V], kind datastore.ChangeKind, name string, raw []byte) ([]datastore.Change[K, V], error) {
	e, _, err := t.entry(name, raw)
	if err != nil {
		return to, err
	}
	return append(to, datastore.Change[K, V]{Kind: kind, Entry: e}), nil
}
