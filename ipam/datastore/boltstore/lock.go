// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/allod/allod/ipam/datastore/filelock"
)

// The lock files. They are never removed, see the package comment.
const (
	lockSuffix = ".lock"
	turnSuffix = ".turn"
)

// Files returns the files that a store at path consists of, the store first.
func Files(path string) []string { return []string{path, path + lockSuffix, path + turnSuffix} }

// lockStore takes the lock of the store at path, exclusive or shared, and returns
// what releases it. Everyone waits for the lock while holding the turn, because
// the kernel lets readers pass a waiting writer: with eight of them reading all
// the time a write took a second, and with the turn it waits for those who read
// already.
func lockStore(ctx context.Context, path string, exclusive bool) (func(), error) {
	if err := refuseForeign(path); err != nil {
		return nil, err
	}
	pass, err := filelock.Acquire(ctx, path+turnSuffix, true)
	if err == nil {
		defer pass.Release()
		var lock *filelock.Lock
		if lock, err = filelock.Acquire(ctx, path+lockSuffix, exclusive); err == nil {
			return lock.Release, nil
		}
	}
	if errors.Is(err, syscall.EROFS) && !exclusive {
		return func() {}, nil // nobody can write here, nor has anybody who locked
	}
	return nil, err
}

// refuseForeign returns ErrNotStore for a file that nobody has locked yet and that
// is not a bbolt file, so that no lock file is left beside somebody else's file.
// It is no verification: that happens under the lock.
func refuseForeign(path string) error {
	if _, err := os.Lstat(path + lockSuffix); err == nil {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil // absent, or the lock's own error says it better
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	_, err = findPageSize(f, uint64(max(info.Size(), 0)))
	return err
}
