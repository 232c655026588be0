// SPDX-License-Identifier: Apache-2.0

package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func take(t *testing.T, path string, exclusive bool) func() {
	t.Helper()
	release, err := Acquire(t.Context(), path, exclusive)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

func TestExclusiveKeepsOthersOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release := take(t, path, true)
	waiting := make(chan func())
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
	r()
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
