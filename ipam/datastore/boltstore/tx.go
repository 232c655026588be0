// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"fmt"
	"iter"
	"maps"

	bolt "go.etcd.io/bbolt"
)

// tx is a transaction over an image: reads come from the image and, in Update,
// from copies of the tables that were written.
type tx struct {
	base     *image
	writable bool
	own      map[string]*table
	writes   map[address][]byte // the stored form; nil means delete
}

type address struct{ table, key string }

// Rev implements kv.Tx.
func (t *tx) Rev() uint64 { return t.base.rev }

func (t *tx) table(name string) *table {
	if tab := t.own[name]; tab != nil {
		return tab
	}
	return t.base.tables[name]
}

// Get implements kv.Tx.
func (t *tx) Get(name, key string) ([]byte, bool) {
	tab := t.table(name)
	if tab == nil {
		return nil, false
	}
	i, found := tab.find(key)
	if !found {
		return nil, false
	}
	return tab.entries[i].val, true
}

// All implements kv.Tx.
func (t *tx) All(name string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		tab := t.table(name)
		if tab == nil {
			return
		}
		for _, e := range tab.entries {
			if !yield(e.key, e.val) {
				return
			}
		}
	}
}

// Put implements kv.Tx.
func (t *tx) Put(name, key string, val []byte) error {
	tab, err := t.writableTable(name, key)
	if err != nil {
		return err
	}
	if len(val) > bolt.MaxValueSize-checksumSize {
		return fmt.Errorf("put %s %q: value of %d bytes is too large", name, key, len(val))
	}
	crc := checksum(name, key, val)
	stored := seal(crc, val)
	tab.put(entry{key: key, crc: crc, val: stored[checksumSize:]})
	t.writes[address{name, key}] = stored
	return nil
}

// Delete implements kv.Tx.
func (t *tx) Delete(name, key string) error {
	tab, err := t.writableTable(name, key)
	if err != nil {
		return err
	}
	if tab.delete(key) {
		t.writes[address{name, key}] = nil
	}
	return nil
}

func (t *tx) writableTable(name, key string) (*table, error) {
	if !t.writable {
		return nil, errReadOnly
	}
	if name == "" || key == "" || len(key) > bolt.MaxKeySize {
		return nil, fmt.Errorf("write table %q, key %q: names have 1 to %d bytes", name, key, bolt.MaxKeySize)
	}
	tab := t.own[name]
	if tab == nil {
		if old := t.base.tables[name]; old != nil {
			tab = old.clone()
		} else {
			tab = &table{}
		}
		t.own[name] = tab
	}
	return tab, nil
}

// next is the image that a commit of t makes.
func (t *tx) next() *image {
	m := &image{rev: t.base.rev + 1, tables: maps.Clone(t.base.tables)}
	maps.Copy(m.tables, t.own)
	return m
}

// apply repeats the writes of t, and the state record of next, in b.
func (t *tx) apply(b *bolt.Tx, next *image) error {
	for name := range t.own {
		if _, err := b.CreateBucketIfNotExists([]byte(tablePrefix + name)); err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
	}
	for at, stored := range t.writes {
		bucket, key := b.Bucket([]byte(tablePrefix+at.table)), []byte(at.key)
		var err error
		if stored == nil {
			err = bucket.Delete(key)
		} else {
			err = bucket.Put(key, stored)
		}
		if err != nil {
			return fmt.Errorf("write %s %q: %w", at.table, at.key, err)
		}
	}
	return putState(b, next)
}

// putState writes the state record of m. It refuses when the transaction number
// is not the revision of m: then b is not the file that was verified.
func putState(b *bolt.Tx, m *image) error {
	if uint64(b.ID()) != m.rev {
		return fmt.Errorf("%w: transaction %d instead of %d", errChanged, b.ID(), m.rev)
	}
	val, err := encodeState(m)
	if err != nil {
		return err
	}
	bucket, err := b.CreateBucketIfNotExists([]byte(stateBucket))
	if err != nil {
		return fmt.Errorf("state record: %w", err)
	}
	return bucket.Put([]byte(stateKey), val)
}
