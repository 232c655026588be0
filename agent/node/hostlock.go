// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/allod/allod/ipam/datastore/filelock"
)

// lockTimeout bounds the wait for the host lock. It is no part of a request's own
// time (case R8).
const lockTimeout = 60 * time.Second

// hostLock serialises what changes allocations on this host across processes. The
// file holds a generation, which every holder raises: whoever keeps a copy of the
// allocations in memory lists them again when it has moved.
type hostLock struct{ path string }

// errNotHostLock says that the file holds something that no host lock does.
var errNotHostLock = errors.New("the file is not a host lock of Allod; nothing was written to it")

// generationSize is the size of a host lock's content: 20 digits and a newline.
const generationSize = 21

// exclusive takes the lock, raises the generation, and returns what releases it.
func (l hostLock) exclusive(ctx context.Context) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return nil, fmt.Errorf("host lock: %w (set ipam.lockFile to a path that can be written)", err)
	}
	lock, err := filelock.Acquire(ctx, l.path, true)
	if err != nil {
		return nil, fmt.Errorf("host lock: %w", err)
	}
	if err := raise(lock.File()); err != nil {
		lock.Release()
		return nil, fmt.Errorf("host lock %s: %w (set ipam.lockFile to a file of its own)", l.path, err)
	}
	return lock.Release, nil
}

// generation reads the generation of a lock file; 0 when it is new.
func generation(f io.ReaderAt) (uint64, error) {
	buf := make([]byte, generationSize+1)
	n, err := f.ReadAt(buf, 0)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return 0, err
	case n == 0:
		return 0, nil
	case n != generationSize || buf[generationSize-1] != '\n':
		return 0, errNotHostLock
	}
	g, err := strconv.ParseUint(string(buf[:generationSize-1]), 10, 64)
	if err != nil {
		return 0, errNotHostLock
	}
	return g, nil
}

// raise writes the next generation in place: the lock is on the file, so it cannot
// be replaced. One write of so few bytes is not torn by the end of the process.
func raise(f *os.File) error {
	g, err := generation(f)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "%020d\n", g+1), 0)
	return err
}
