// SPDX-License-Identifier: Apache-2.0

// Package memstore is a store in memory for tests and simulation: the engine of
// kv over copy-on-write snapshots, clients whose calls go wrong as planned,
// answers from the past, and restoring an earlier state. It must not be used to
// keep anything.
package memstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/utils/clock"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kv"
)

// Options configure a store. The zero value is usable.
type Options struct {
	Clock  clock.PassiveClock // stamps objects; nil means the system's
	NewUID func() string      // nil means random
	// History is how many revisions stale answers can go back. 0 means 64.
	History int
	// AdmitLater has the tables behave as an API server's, see [kv.Options].
	AdmitLater bool
}

// Store is a database in memory. Safe for concurrent use.
type Store struct {
	options Options
	plain   datastore.Store
	writing chan struct{} // holds one token; whoever has it may commit

	mu      sync.Mutex
	history []*version // oldest first, never empty; the last is the present
}

// version is one state and the promise of the next. Immutable but for changed.
type version struct {
	rev     uint64
	tables  map[string]tableData
	changed chan struct{} // closed when another version is the present
}

// tableData is sorted by key. Never written once it is part of a version.
type tableData []item

type item struct {
	key string
	val *[]byte // a pointer, so that copying a table copies little
}

// New returns an empty store.
func New(o Options) *Store {
	if o.History <= 0 {
		o.History = 64
	}
	s := &Store{options: o, writing: make(chan struct{}, 1)}
	s.history = []*version{{changed: make(chan struct{})}}
	s.plain = s.over(s)
	return s
}

func (s *Store) over(db kv.DB) datastore.Store {
	return kv.New(db, kv.Options{Clock: s.options.Clock, NewUID: s.options.NewUID, AdmitLater: s.options.AdmitLater})
}

// Store returns the tables without any faults.
func (s *Store) Store() datastore.Store { return s.plain }

// State is a state of the whole store, see [Store.Snapshot].
type State struct{ v *version }

// Snapshot returns the present state. It costs nothing.
func (s *Store) Snapshot() State { return State{s.back(0)} }

// Restore makes an earlier state the present one, revisions included, as putting
// back a backup of etcd does. Watches end with an error, see [kv.ErrRestored].
func (s *Store) Restore(st State) {
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	s.become(&version{rev: st.v.rev, tables: st.v.tables, changed: make(chan struct{})})
}

// become makes v the present. The caller holds the writing token.
func (s *Store) become(v *version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.history[len(s.history)-1]
	s.history = append(s.history, v)
	if n := len(s.history) - 1 - s.options.History; n > 0 {
		s.history = slices.Delete(s.history, 0, n)
	}
	close(last.changed)
}

// back returns the version k commits ago, the oldest known if there are fewer.
func (s *Store) back(k int) *version {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.history[max(len(s.history)-1-k, 0)]
}

// View implements kv.DB.
func (s *Store) View(ctx context.Context, fn func(kv.Tx) error) error {
	return view(ctx, s.back(0), fn)
}

func view(ctx context.Context, v *version, fn func(kv.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstore: %w", err)
	}
	return fn(&tx{base: v, tables: v.tables, readOnly: true})
}

// Update implements kv.DB.
func (s *Store) Update(ctx context.Context, fn func(kv.Tx) error) error {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstore: %w", err)
	}
	v := s.back(0)
	t := &tx{base: v, tables: v.tables}
	if err := fn(t); err != nil {
		return err
	}
	if t.own != nil {
		s.become(&version{rev: v.rev + 1, tables: t.tables, changed: make(chan struct{})})
	}
	return nil
}

// Wait implements kv.DB.
func (s *Store) Wait(ctx context.Context, rev uint64) error {
	return s.wait(ctx, rev, 0)
}

// wait returns when the version lag commits ago has another revision than rev.
func (s *Store) wait(ctx context.Context, rev uint64, lag int) error {
	for {
		now, seen := s.back(0), s.back(lag)
		if seen.rev != rev {
			return nil
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return fmt.Errorf("memstore: %w", ctx.Err())
		}
	}
}

// past is the database as it was lag commits ago.
type past struct {
	*Store
	lag int
}

func (p past) View(ctx context.Context, fn func(kv.Tx) error) error {
	return view(ctx, p.back(p.lag), fn)
}

func (p past) Update(context.Context, func(kv.Tx) error) error {
	return errors.New("memstore: the past cannot be written")
}

func (p past) Wait(ctx context.Context, rev uint64) error { return p.wait(ctx, rev, p.lag) }

// tx implements kv.Tx. It copies a table when it first writes to it.
type tx struct {
	base     *version
	tables   map[string]tableData
	own      map[string]bool // tables copied so far; nil: nothing written
	readOnly bool
}

func (t *tx) Rev() uint64 { return t.base.rev }

func (d tableData) find(key string) (int, bool) {
	return slices.BinarySearchFunc(d, key, func(i item, k string) int { return strings.Compare(i.key, k) })
}

func (t *tx) Get(table, key string) ([]byte, bool) {
	d := t.tables[table]
	i, ok := d.find(key)
	if !ok {
		return nil, false
	}
	return *d[i].val, true
}

func (t *tx) All(table string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, i := range t.tables[table] {
			if !yield(i.key, *i.val) {
				return
			}
		}
	}
}

func (t *tx) writable(table string) (tableData, error) {
	if t.readOnly {
		return nil, errors.New("memstore: write in a read transaction")
	}
	if t.own == nil {
		t.own = map[string]bool{}
		t.tables = maps.Clone(t.tables)
		if t.tables == nil {
			t.tables = map[string]tableData{}
		}
	}
	if !t.own[table] {
		t.own[table] = true
		t.tables[table] = slices.Clone(t.tables[table])
	}
	return t.tables[table], nil
}

func (t *tx) Put(table, key string, val []byte) error {
	d, err := t.writable(table)
	if err != nil {
		return err
	}
	val = slices.Clone(val)
	if i, ok := d.find(key); ok {
		d[i].val = &val
	} else {
		t.tables[table] = slices.Insert(d, i, item{key: key, val: &val})
	}
	return nil
}

func (t *tx) Delete(table, key string) error {
	d, err := t.writable(table)
	if err != nil {
		return err
	}
	if i, ok := d.find(key); ok {
		t.tables[table] = slices.Delete(d, i, i+1)
	}
	return nil
}
