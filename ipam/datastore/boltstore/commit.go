// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// boltTimeout bounds the wait for bbolt's own lock, which only a program that
// does not know ours can hold.
const boltTimeout = 2 * time.Second

var errChanged = errors.New("the file was changed without the lock, try again")

// commit writes what t did. The caller holds the exclusive lock; s is the
// verified state of the file. bbolt writes the new pages, syncs, writes the meta
// page, syncs: a process that ends in between leaves the old state or the new.
func (db *DB) commit(t *tx, s snapshot) error {
	next := t.next()
	db.keep(snapshot{}) // after a failure the file must be read again
	err := boltUpdate(db.path, s.file, func(b *bolt.Tx) error { return t.apply(b, next) })
	if err != nil {
		return err
	}
	// bbolt built this state from a verified one, so it need not be verified again.
	m, after, err := db.peek()
	if err == nil && m.txid == next.rev {
		after.image = next
		db.keep(after)
	}
	return nil
}

// boltUpdate runs fn in a writing transaction of bbolt on the file at path, which
// must still be the verified one. What bbolt throws at content that verify took
// for good becomes an error: the last line of defence, without which a mistake in
// verify would end an agent that serves a whole node. It also turns a fault on
// the mapped memory (the device fails, or the file is cut meanwhile) into a panic
// that can be recovered.
func boltUpdate(path string, verified os.FileInfo, fn func(*bolt.Tx) error) (err error) {
	var file *os.File
	open := func(name string, _ int, _ os.FileMode) (*os.File, error) { // never creates
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		file = f
		if info, err := f.Stat(); err != nil || !os.SameFile(info, verified) {
			_ = f.Close()
			return nil, errors.Join(errChanged, err)
		}
		return f, nil
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			// bbolt's own Close could wait for ever on its mutexes, so the mapping stays
			// until the process ends, and it would keep the file lock alive.
			if file != nil {
				_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
				_ = file.Close()
			}
			err = fmt.Errorf("%w: bbolt: %v", ErrDamaged, r)
		}
	}()
	b, err := bolt.Open(path, 0, &bolt.Options{
		NoFreelistSync: true,
		NoStatistics:   true,
		FreelistType:   bolt.FreelistArrayType, // lowest free page first: the file stays small
		Timeout:        boltTimeout,
		OpenFile:       open,
	})
	if err != nil {
		return fmt.Errorf("open for writing: %w", err)
	}
	if err := b.Update(fn); err != nil {
		return errors.Join(err, b.Close())
	}
	return b.Close()
}
