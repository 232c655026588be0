// SPDX-License-Identifier: Apache-2.0

package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func take(t *testing.T, path string, exclusive bool) func() {
	t.Helper()
	l, err := Acquire(t.Context(), path, exclusive)
	if err != nil {
		t.Fatal(err)
	}
	return l.Release
}

func TestExclusiveKeepsOthersOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release := take(t, path, true)
	waiting := make(chan *Lock)
	go func() {
		r, err := Acquire(context.WithoutCancel(t.Context()), path, false)
		if err != nil {
			t.Error(err)
		}
		waiting <- r
	}()
	select {
	case <-waiting:
		t.Fatal("a reader got a lock that is held exclusively")
	default:
	}
	release()
	r := <-waiting
	take(t, path, false)() // readers share
	r.Release()
	if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("the lock file is %v, %v; want mode 0600", i, err)
	}
}

// The wait ends with its context, and the lock that comes too late is given back.
func TestWaitEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release := take(t, path, true)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := Acquire(ctx, path, true)
		done <- err
	}()
	because := errors.New("the pod is gone")
	cancel(because)
	if err := <-done; !errors.Is(err, because) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v; want the cause and the path", err)
	}
	if _, err := Acquire(ctx, path, true); !errors.Is(err, because) {
		t.Errorf("a context that has ended: %v", err)
	}
	release()
	take(t, path, true)()
}

func TestErrorsKeepTheSystems(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "lock")
	if _, err := Acquire(t.Context(), path, true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// What is not a plain file is refused at once: a pipe would hang the open, a link's
// target is somebody else's file.
func TestNotLockable(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.Symlink(target, link), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, pipe, "/dev/zero"} {
		if _, err := Acquire(t.Context(), path, true); !errors.Is(err, ErrNotLockable) {
			t.Errorf("%s: %v, want ErrNotLockable", path, err)
		}
	}
}

// A waiter whose file was removed meanwhile locks the one that is there now.
func TestRemovedFileIsNotTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release := take(t, path, true)
	started, got := make(chan struct{}), make(chan *Lock)
	go func() {
		close(started)
		l, err := Acquire(context.WithoutCancel(t.Context()), path, true)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	<-started
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	release()
	l := <-got
	defer l.Release()
	if !l.stillAt(path) {
		t.Error("the lock is on a file that nobody else sees")
	}
}
