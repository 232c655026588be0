// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// exclusive takes the lock, raises the generation, and returns what releases it.
func (l hostLock) exclusive(ctx context.Context) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return nil, fmt.Errorf("host lock: %w (set ipam.lockFile to a path that can be written)", err)
	}
	release, err = filelock.Acquire(ctx, l.path, true)
	if err != nil {
		return nil, fmt.Errorf("host lock: %w", err)
	}
	if err := l.raise(); err != nil {
		release()
		return nil, fmt.Errorf("host lock: raise the generation: %w", err)
	}
	return release, nil
}

// generation reads the generation; 0 when there is none.
func (l hostLock) generation() (uint64, error) {
	text, err := os.ReadFile(l.path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, nil // empty or garbled: any number raises it
	}
	return n, nil
}

// raise writes the next generation in place: the lock is on the file, so it cannot
// be replaced. A torn write reads as another number, which is all that is asked.
func (l hostLock) raise() error {
	n, err := l.generation()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "%020d\n", n+1), 0)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
