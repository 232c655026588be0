// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/allod/allod/ipam/datastore/kv"
)

// BenchmarkStore measures transactions on stores of blocks of 13 KB. "cold" is a
// process that has not seen the file (direct mode), "warm" goes on with its own
// snapshot, "shared" alternates with another writer, "bbolt" is the same without
// lock and verification. cpu-us/op is what the process used, whatever else runs.
func BenchmarkStore(b *testing.B) {
	for _, blocks := range []int{20, 2000} {
		path := filepath.Join(b.TempDir(), "ipam.db")
		if err := Create(b.Context(), path); err != nil {
			b.Fatal(err)
		}
		val := bytes.Repeat([]byte("0123456789abc"), 1024)
		key := func(i int) string { return fmt.Sprintf("10-%d-%d-0-26", i/256, i%256) }
		for from := 0; from < blocks; from += 100 {
			err := New(path, Options{}).Update(b.Context(), func(tx kv.Tx) error {
				for i := from; i < min(from+100, blocks); i++ {
					if err := tx.Put(kv.Blocks, key(i), val); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		copied := path + ".copy"
		if file, err := os.ReadFile(path); err != nil || os.WriteFile(copied, file, 0o600) != nil {
			b.Fatal(err)
		}
		get := func(tx kv.Tx) error {
			if v, ok := tx.Get(kv.Blocks, key(7)); !ok || len(v) != len(val) {
				b.Fatal("lost")
			}
			return nil
		}
		n := 0
		write := func(tx kv.Tx) error { n++; return tx.Put(kv.Blocks, key(n%blocks), val) }
		warm, other := New(path, Options{}), New(path, Options{})
		run := func(name string, f func() error) {
			b.Run(fmt.Sprintf("%d-blocks-%dMB/%s", blocks, info.Size()>>20, name), func(b *testing.B) {
				before := cpu(b)
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
			})
		}
		run("bbolt-view", func() error { return plainBolt(path, false, key(7), val) })
		run("view-cold", func() error { return New(path, Options{}).View(b.Context(), get) })
		run("view-warm", func() error { return warm.View(b.Context(), get) })
		run("bbolt-update", func() error { return plainBolt(copied, true, key(7), val) })
		run("update-cold", func() error { return New(path, Options{}).Update(b.Context(), write) })
		run("update-warm", func() error { return warm.Update(b.Context(), write) })
		run("update-shared", func() error {
			warm, other = other, warm
			return warm.Update(b.Context(), write)
		})
		run("wait-once", func() error { return warm.Wait(b.Context(), 0) })
	}
}

// cpu is the time this process has computed, in user space and in the kernel.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func plainBolt(path string, write bool, key string, val []byte) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: !write, NoFreelistSync: true, NoStatistics: true})
	if err != nil {
		return err
	}
	at := []byte(tablePrefix + kv.Blocks)
	if write {
		err = db.Update(func(tx *bolt.Tx) error { return tx.Bucket(at).Put([]byte(key), val) })
	} else {
		err = db.View(func(tx *bolt.Tx) error { bytes.Clone(tx.Bucket(at).Get([]byte(key))); return nil })
	}
	return errors.Join(err, db.Close())
}
