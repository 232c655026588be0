// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/gofrs/flock"
)

// The lock files. They are never removed, see the package comment.
const (
	lockSuffix = ".lock"
	turnSuffix = ".turn"
)

// lockStore takes the lock of the store at path, exclusive or shared, and returns
// what releases it. Everyone waits for the lock while holding the turn, because
// the kernel lets readers pass a waiting writer: with eight of them reading all
// the time a write took a second, and with the turn it waits for those who read
// already.
func lockStore(ctx context.Context, path string, exclusive bool) (func(), error) {
	pass, err := acquire(ctx, path+turnSuffix, true)
	if err == nil {
		defer pass()
		var release func()
		if release, err = acquire(ctx, path+lockSuffix, exclusive); err == nil {
			return release, nil
		}
	}
	if errors.Is(err, syscall.EROFS) && !exclusive {
		return func() {}, nil // nobody can write here, nor has anybody who locked
	}
	return nil, err
}

// acquire takes the lock on one file and returns what releases it. The wait is
// one blocking system call, which ctx can't interrupt: when ctx ends first,
// acquire returns its error at once, and the goroutine that waits gives the lock
// back as soon as it gets it.
func acquire(ctx context.Context, file string, exclusive bool) (func(), error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	f := flock.New(file)
	try, wait := f.TryRLock, f.RLock
	if exclusive {
		try, wait = f.TryLock, f.Lock
	}
	release := func() { _ = f.Close() }
	switch ok, err := try(); {
	case ok:
		return release, nil
	case err != nil:
		return nil, fmt.Errorf("lock: %w", err)
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
			return nil, fmt.Errorf("lock: %w", err)
		}
		return release, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another process to finish: %w", context.Cause(ctx))
	}
}
