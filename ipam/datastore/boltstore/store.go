// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/allod/allod/ipam/datastore/kv"
)

// Options are the settings of a DB. The zero value is good for use.
type Options struct {
	// Poll is how often Wait looks at the file. 0 means one second.
	Poll time.Duration
}

// DB is the database in one file. It holds no file open between transactions.
// Methods are safe for concurrent use, also by several processes and by several
// DBs in one process.
type DB struct {
	path string
	poll time.Duration
	turn chan struct{} // one Update of this DB at a time waits for the lock: a waiter costs a thread

	mu   sync.Mutex // guards last
	last snapshot
}

// snapshot is a verified image and what the file looked like then.
type snapshot struct {
	image *image
	file  os.FileInfo
	metas metaPages
}

var _ kv.DB = (*DB)(nil)

// New returns the DB of the file at path. It does no I/O: what is wrong with the
// file is told by the first transaction.
func New(path string, o Options) *DB {
	if o.Poll <= 0 {
		o.Poll = time.Second
	}
	return &DB{path: path, poll: o.Poll, turn: make(chan struct{}, 1)}
}

// View implements kv.DB. The lock is held while the file is read, not while fn
// runs.
func (db *DB) View(ctx context.Context, fn func(kv.Tx) error) error {
	m, err := db.view(ctx)
	if err != nil {
		return explain(db.path, err)
	}
	return fn(&tx{base: m})
}

func (db *DB) view(ctx context.Context) (*image, error) {
	place, err := find(db.path)
	if err != nil {
		return nil, err
	}
	release, err := lockStore(ctx, place, false)
	if err != nil {
		return nil, err
	}
	defer release()
	s, err := db.load()
	return s.image, err
}

// Update implements kv.DB. An fn that writes nothing leaves the revision as it is.
// When ctx ends before fn returns nothing is written. fn must not start another
// Update on this file.
func (db *DB) Update(ctx context.Context, fn func(kv.Tx) error) error {
	select {
	case db.turn <- struct{}{}:
		defer func() { <-db.turn }()
	case <-ctx.Done():
		return explain(db.path, fmt.Errorf("wait for another update to finish: %w", context.Cause(ctx)))
	}
	place, err := find(db.path)
	if err != nil {
		return explain(db.path, err)
	}
	release, err := lockStore(ctx, place, true)
	if err != nil {
		return explain(db.path, err)
	}
	defer release()
	s, err := db.load()
	if err != nil {
		return explain(db.path, err)
	}
	t := &tx{base: s.image, writable: true, own: map[string]*table{}, writes: map[address][]byte{}}
	if err := fn(t); err != nil {
		return err
	}
	if len(t.writes) == 0 {
		return nil
	}
	if err := context.Cause(ctx); err != nil {
		return explain(db.path, err)
	}
	if err := db.commit(t, s); err != nil {
		return explain(db.path, err)
	}
	return nil
}

// Wait implements kv.DB by looking at the meta pages every Options.Poll, without
// a lock: two small reads. A change is seen up to one interval late. It also
// returns nil when the meta pages are invalid, so that the next transaction says
// what is wrong.
func (db *DB) Wait(ctx context.Context, rev uint64) error {
	tick := time.NewTicker(db.poll)
	defer tick.Stop()
	for {
		m, _, err := db.peek()
		switch {
		case errors.Is(err, ErrDamaged), errors.Is(err, ErrNotStore), errors.Is(err, ErrNewer):
			return nil
		case err != nil:
			return explain(db.path, err)
		case m.txid != rev:
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// load returns the verified content of the file: the last snapshot when the file
// still looks as it did, else a new one. The caller holds the lock.
func (db *DB) load() (snapshot, error) {
	db.mu.Lock()
	last := db.last
	db.mu.Unlock()

	f, err := os.Open(db.path)
	if err != nil {
		return snapshot{}, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return snapshot{}, err
	}
	if last.image != nil && sameState(last.file, info) {
		if _, raw, err := readMetas(f, uint64(info.Size())); err == nil && raw == last.metas {
			return last, nil
		}
	}
	m, raw, err := verify(f, uint64(info.Size()))
	if err != nil {
		return snapshot{}, err
	}
	s := snapshot{image: m, file: info, metas: raw}
	db.keep(s)
	return s, nil
}

func (db *DB) keep(s snapshot) {
	db.mu.Lock()
	db.last = s
	db.mu.Unlock()
}

// peek reads the meta pages.
func (db *DB) peek() (meta, snapshot, error) {
	if _, err := find(db.path); err != nil {
		return meta{}, snapshot{}, err
	}
	f, err := os.Open(db.path)
	if err != nil {
		return meta{}, snapshot{}, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return meta{}, snapshot{}, err
	}
	m, raw, err := readMetas(f, uint64(info.Size()))
	return m, snapshot{file: info, metas: raw}, err
}

// find returns the path of the file itself, beside which its lock file is: two
// names of one file by a symbolic link must not have two locks. It refuses what
// must not be opened or locked: nothing, a directory, a pipe.
func find(path string) (string, error) {
	place, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(place)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%w: not a regular file (%s)", ErrNotStore, info.Mode().Type())
	}
	return place, nil
}

// sameState reports whether a file was neither replaced nor written.
func sameState(a, b os.FileInfo) bool {
	x, ok1 := a.Sys().(*syscall.Stat_t)
	y, ok2 := b.Sys().(*syscall.Stat_t)
	return ok1 && ok2 && x.Dev == y.Dev && x.Ino == y.Ino && x.Size == y.Size && x.Mtim == y.Mtim && x.Ctim == y.Ctim
}
