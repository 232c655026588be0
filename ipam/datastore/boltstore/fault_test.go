// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/allod/allod/ipam/datastore/kv"
)

// fillUp writes until an error comes, then checks that the state is the one before
// the write that failed, and that small writes work again once there is room.
func fillUp(ctx context.Context, path string, makeRoom func() error) error {
	db := New(path, Options{})
	var err error
	n := 0
	for ; err == nil && n < 10000; n++ {
		err = db.Update(ctx, func(tx kv.Tx) error {
			return tx.Put(kv.Blocks, fmt.Sprint(n), bytes.Repeat([]byte{byte(n)}, 13<<10))
		})
	}
	if err == nil || !strings.Contains(err.Error(), path) {
		return fmt.Errorf("after %d writes: %w", n, err)
	}
	full := err
	for _, db := range []*DB{db, New(path, Options{})} {
		got, _, err := dump(ctx, db, kv.Blocks)
		if err != nil || len(got[kv.Blocks]) != n-1 {
			return fmt.Errorf("%d blocks after %d writes: %w", len(got[kv.Blocks]), n-1, err)
		}
		for key, val := range got[kv.Blocks] {
			if len(val) != 13<<10 || strings.Count(val, val[:1]) != len(val) {
				return fmt.Errorf("block %s is not what was written", key)
			}
		}
	}
	if err := makeRoom(); err != nil {
		return err
	}
	if err := db.Update(ctx, func(tx kv.Tx) error { return tx.Put(kv.Blocks, fmt.Sprint(n), make([]byte, 13<<10)) }); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	fmt.Println(full)
	return nil
}

// childFull runs in a mount namespace of its own, where a small file system is
// mounted on a folder nobody else sees.
func childFull(ctx context.Context, dir string) error {
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=1m"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	path, ballast := filepath.Join(dir, "ipam.db"), filepath.Join(dir, "ballast")
	if err := Create(ctx, path); err != nil {
		return err
	}
	if err := os.WriteFile(ballast, make([]byte, 200<<10), 0o600); err != nil {
		return err
	}
	if err := fillUp(ctx, path, func() error { return os.Remove(ballast) }); err != nil {
		return err
	}
	want, _, err := dump(ctx, New(path, Options{}), kv.Tables()...)
	if err != nil {
		return err
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("remount: %w", err)
	}
	return readOnly(ctx, path, want)
}

// readOnly: a store on a read-only file system reads, and refuses writes.
func readOnly(ctx context.Context, path string, want content) error {
	db := New(path, Options{})
	got, _, err := dump(ctx, db, kv.Tables()...)
	if err != nil || !equal(got, want) {
		return fmt.Errorf("read-only file system, read: %w", err)
	}
	err = db.Update(ctx, func(tx kv.Tx) error { return tx.Put(kv.Pools, "p", nil) })
	if !errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("read-only file system, write: %w", err)
	}
	fmt.Println(err)
	return nil
}

// TestDiskFull: a write for which there is no room says so and leaves the old
// state; the store works again when there is room.
func TestDiskFull(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode string
		attr syscall.SysProcAttr
		path string
		text []string
	}{
		{"full", syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}, t.TempDir(), []string{ErrFull.Error(), "read-only file system"}},
		{"limited", syscall.SysProcAttr{}, newStore(t), []string{"file too large"}},
	} {
		t.Run(c.mode, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), exe, childArg, c.mode, c.path, "")
			cmd.SysProcAttr = &c.attr
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range c.text {
				if !strings.Contains(string(out), text) {
					t.Errorf("no %q in it", text)
				}
			}
		})
	}
}

// childLimited may not make files larger than 200 KB.
func childLimited(ctx context.Context, path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 200 << 10, Max: old.Max}); err != nil {
		return err
	}
	return fillUp(ctx, path, func() error { return unix.Setrlimit(unix.RLIMIT_FSIZE, &old) })
}

// TestPermission: root may do everything, so this looks at the explanation alone.
func TestPermission(t *testing.T) {
	err := explain("/x", &fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES})
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "owner") {
		t.Fatal(err)
	}
}

// TestBoltPanics: what bbolt throws becomes an error, also a memory fault, and the
// file can be used by the next transaction.
func TestBoltPanics(t *testing.T) {
	path := newStore(t)
	db := New(path, Options{})
	put(t, db, kv.Pools, "p", "1")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(-1, 0, testPage, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	for name, fn := range map[string]func(*bolt.Tx) error{
		"panic": func(*bolt.Tx) error { panic("page 7 already freed") },
		"fault": func(*bolt.Tx) error { return fmt.Errorf("read %d", page[0]) },
	} {
		if err := boltUpdate(path, info, fn); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		put(t, db, kv.Pools, name, "1")
	}
	if err := unix.Munmap(page); err != nil {
		t.Fatal(err)
	}
}
