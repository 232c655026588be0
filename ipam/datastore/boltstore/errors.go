// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	bolterrors "go.etcd.io/bbolt/errors"
)

// What can be wrong with a store. In every case the file is as it was before,
// except that after any other error the write may be there.
var (
	// ErrNoStore: there is no file.
	ErrNoStore = errors.New("no such store")
	// ErrExists: Create found something at the path.
	ErrExists = errors.New("already there")
	// ErrDamaged: the file is a store, but a page or a value is not what was written.
	ErrDamaged = errors.New("damaged")
	// ErrNotStore: the file is something else, or empty.
	ErrNotStore = errors.New("not an Allod store")
	// ErrNewer: the file was written by a later version of Allod.
	ErrNewer = errors.New("written by a newer version")
	// ErrFull: no space left for the write (device, quota or file size limit).
	ErrFull = errors.New("no space left")
	// ErrBusy: a program that is not Allod has the file open.
	ErrBusy = errors.New("in use by another program")
)

// errReadOnly is returned by the writing methods of a Tx in View.
var errReadOnly = errors.New("write in a read-only transaction")

// explain wraps err once with the path, the reason and what to do.
func explain(path string, err error) error {
	advice := ""
	switch {
	case errors.Is(err, ErrNoStore):
		advice = ": create it with `allod-agent apply -f FILE`"
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("store %s: %w: create it with `allod-agent apply -f FILE` (%w)", path, ErrNoStore, err)
	case errors.Is(err, ErrDamaged):
		advice = "; the file was left as it is: restore it from a backup"
	case errors.Is(err, ErrNotStore):
		advice = "; the file was left as it is: give the path of a store. If it was one, restore it from a backup: " +
			"a new store knows nothing of the addresses in use"
	case errors.Is(err, ErrNewer):
		advice = ": use that version of Allod"
	case errors.Is(err, fs.ErrPermission):
		advice = ": run as the owner of the store (root)"
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("store %s: %w: end it and try again", path, ErrBusy)
	case isFull(err):
		return fmt.Errorf("store %s: %w (%w): make room and try again", path, ErrFull, err)
	}
	return fmt.Errorf("store %s: %w%s", path, err, advice)
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// damaged describes one finding on one page.
func damaged(page uint64, format string, args ...any) error {
	return fmt.Errorf("%w: page %d: %s", ErrDamaged, page, fmt.Sprintf(format, args...))
}
