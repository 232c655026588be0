// SPDX-License-Identifier: Apache-2.0

// Package filelock waits for an advisory lock on a file (flock(2)) without
// polling and without outliving its context. The lock file is never removed: a
// process that waits on a removed file would hold a lock nobody else sees.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/gofrs/flock"
)

// Acquire takes the lock on the file at path, which it makes if need be, exclusive
// or shared, and returns what releases it. The kernel releases it too when the
// process ends. The wait is one blocking system call, which ctx can't interrupt:
// when ctx ends first, Acquire returns its error at once, and the goroutine that
// waits gives the lock back as soon as it gets it. Errors keep the system's in their
// chain.
func Acquire(ctx context.Context, path string, exclusive bool) (func(), error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	f := flock.New(path, flock.SetPermissions(0o600))
	try, wait := f.TryRLock, f.RLock
	if exclusive {
		try, wait = f.TryLock, f.Lock
	}
	release := func() { _ = f.Close() } // not a named result: the goroutine below outlives this call
	switch ok, err := try(); {
	case ok:
		return release, nil
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	got := make(chan error)
	go func() {
		err := wait()
		for errors.Is(err, syscall.EINTR) {
			err = wait()
		}
		select {
		case got <- err:
		case <-ctx.Done():
			release()
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		return release, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("lock %s: wait for another process to finish: %w", path, context.Cause(ctx))
	}
}
