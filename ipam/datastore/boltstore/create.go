// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// Create makes an empty store at path, with its folder, readable by the owner
// only. The file appears complete and synced, or not at all. ErrExists when there
// is anything at path, which is left alone; of several creators one wins.
func Create(ctx context.Context, path string) error {
	if err := create(ctx, path); err != nil {
		return explain(path, err)
	}
	return nil
}

func create(ctx context.Context, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return ErrExists
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	release, err := lockStore(ctx, path, true)
	if err != nil {
		return err
	}
	defer release()
	// Creators hold the lock, so what carries this name was left by one that died.
	temp := filepath.Join(dir, "."+base+".new")
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	defer func() { _ = os.Remove(temp) }()
	if err := writeEmpty(temp); err != nil {
		return err
	}
	if err := os.Link(temp, path); errors.Is(err, fs.ErrExist) {
		return ErrExists
	} else if err != nil {
		return err
	}
	return syncDir(dir)
}

// writeEmpty makes a store without tables at path, where there is nothing.
func writeEmpty(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	err = boltUpdate(path, info, func(b *bolt.Tx) error { return putState(b, &image{rev: uint64(b.ID())}) })
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if info, err = f.Stat(); err != nil {
		return err
	}
	if _, _, err := verify(f, uint64(info.Size())); err != nil {
		return fmt.Errorf("what was written does not read back: %w", err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
