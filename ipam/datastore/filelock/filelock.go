// SPDX-License-Identifier: Apache-2.0

// Package filelock waits for an advisory lock on a file (flock(2)) without
// polling and without outliving its context. The lock file is never removed: a
// process that waits on a removed file would hold a lock nobody else sees.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNotLockable says that the path is not a regular file: a lock there could
// hang, or be another file's.
var ErrNotLockable = errors.New("not a regular file")

// Lock is a lock that is held. Release gives it back; the kernel does too when the
// process ends.
type Lock struct{ f *os.File }

// File is the locked file, for those who keep something in it.
func (l *Lock) File() *os.File { return l.f }

// Release gives the lock back. It may be called once.
func (l *Lock) Release() { _ = l.f.Close() }

// Acquire takes the lock on the file at path, which it makes if need be, exclusive
// or shared. The wait is one blocking system call, which ctx can't interrupt: when
// ctx ends first, Acquire returns its error at once, and the goroutine that waits
// gives the lock back as soon as it gets it. Errors keep the system's in their
// chain; a symbolic link, pipe or device is ErrNotLockable.
func Acquire(ctx context.Context, path string, exclusive bool) (*Lock, error) {
	for {
		l, err := acquire(ctx, path, exclusive)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if l.stillAt(path) {
			return l, nil
		}
		l.Release() // somebody removed the file while we waited: others lock the new one
	}
}

func acquire(ctx context.Context, path string, exclusive bool) (*Lock, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	access, how := os.O_RDONLY, unix.LOCK_SH
	if exclusive {
		access, how = os.O_RDWR, unix.LOCK_EX
	}
	f, err := open(path, access)
	if err != nil {
		return nil, err
	}
	if err = flock(f, how|unix.LOCK_NB); err == nil {
		return &Lock{f}, nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		_ = f.Close()
		return nil, err
	}
	got := make(chan error)
	go func() {
		err := flock(f, how)
		select {
		case got <- err:
		case <-ctx.Done():
			_ = f.Close()
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		return &Lock{f}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another process to finish: %w", context.Cause(ctx))
	}
}

// open makes or opens a regular file. It never waits (a pipe without a reader
// would) and follows no link (its target is somebody else's).
func open(path string, access int) (*os.File, error) {
	f, err := os.OpenFile(path, access|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("%w: it is a symbolic link", ErrNotLockable)
	case err != nil:
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w (%s)", ErrNotLockable, info.Mode().Type())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func flock(f *os.File, how int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		for {
			if failed = unix.Flock(int(fd), how); !errors.Is(failed, syscall.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, failed)
}

// stillAt reports whether path names the locked file.
func (l *Lock) stillAt(path string) bool {
	held, err := l.f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(held, there)
}
