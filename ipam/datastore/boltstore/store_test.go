// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/allod/allod/ipam/datastore/kv"
)

// content is the dumb model of a store: table -> key -> value.
type content map[string]map[string]string

func newStore(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ipam.db")
	if err := Create(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	return path
}

func put(t testing.TB, db *DB, table, key, val string) {
	t.Helper()
	if err := db.Update(t.Context(), func(tx kv.Tx) error { return tx.Put(table, key, []byte(val)) }); err != nil {
		t.Fatal(err)
	}
}

// dump reads everything in the given tables, and the revision.
func dump(ctx context.Context, db *DB, tables ...string) (content, uint64, error) {
	c, rev := content{}, uint64(0)
	err := db.View(ctx, func(tx kv.Tx) error {
		rev = tx.Rev()
		for _, table := range tables {
			c[table] = map[string]string{}
			last := ""
			for key, val := range tx.All(table) {
				if key <= last {
					return fmt.Errorf("%s: %q after %q", table, key, last)
				}
				last = key
				c[table][key] = string(val)
				if got, ok := tx.Get(table, key); !ok || !bytes.Equal(got, val) {
					return fmt.Errorf("%s: Get(%q) differs from All", table, key)
				}
			}
		}
		return nil
	})
	return c, rev, err
}

func TestTransactions(t *testing.T) {
	path := newStore(t)
	a, b := New(path, Options{}), New(path, Options{})
	_, rev0, err := dump(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}

	t.Run("a write is seen by another DB and makes the revision one more", func(t *testing.T) {
		put(t, a, "pools", "p", "1")
		got, rev, err := dump(t.Context(), b, "pools")
		if diff := cmp.Diff(content{"pools": {"p": "1"}}, got); diff != "" || rev != rev0+1 || err != nil {
			t.Fatalf("rev %d, err %v, %s", rev, err, diff)
		}
	})
	t.Run("an Update that fails or writes nothing changes nothing", func(t *testing.T) {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		planned := errors.New("planned")
		for _, fn := range []func(kv.Tx) error{
			func(tx kv.Tx) error { return errors.Join(tx.Put("pools", "q", nil), planned) },
			func(tx kv.Tx) error { return tx.Delete("pools", "absent") },
		} {
			if err := a.Update(t.Context(), fn); err != nil && !errors.Is(err, planned) {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("the file changed (%v)", err)
		}
	})
	t.Run("a transaction reads its own writes", func(t *testing.T) {
		err := b.Update(t.Context(), func(tx kv.Tx) error {
			val := []byte("2")
			err := errors.Join(tx.Put("pools", "q", val), tx.Delete("pools", "p"))
			val[0] = 'x'
			if _, ok := tx.Get("pools", "p"); ok {
				t.Error("p is still there")
			}
			for key, val := range tx.All("pools") {
				if key != "q" || string(val) != "2" {
					t.Errorf("%s = %s", key, val)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := dump(t.Context(), a, "pools"); err != nil || !cmp.Equal(got, content{"pools": {"q": "2"}}) {
			t.Fatal(got, err)
		}
	})
	t.Run("writes are refused in View, and without a table or key", func(t *testing.T) {
		_ = a.View(t.Context(), func(tx kv.Tx) error {
			if tx.Put("pools", "k", nil) == nil || tx.Delete("pools", "k") == nil {
				t.Error("written in View")
			}
			return nil
		})
		_ = a.Update(t.Context(), func(tx kv.Tx) error {
			if tx.Put("", "k", nil) == nil || tx.Put("pools", "", nil) == nil {
				t.Error("written without a name")
			}
			return nil
		})
	})
	t.Run("nothing is left beside the file but its locks", func(t *testing.T) {
		files, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(files) != 3 || files[0].Name() != "ipam.db" || files[1].Name() != "ipam.db.lock" || files[2].Name() != "ipam.db.turn" {
			t.Fatal(files, err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatal(info.Mode(), err)
		}
	})
}

// TestAgainstMap compares random transactions with a map: one DB that goes on with
// its snapshot, and one that verifies the whole file each time.
func TestAgainstMap(t *testing.T) {
	keys := rapid.Custom(func(t *rapid.T) string {
		return strings.Repeat(rapid.SampledFrom([]string{"a", "bb", "ccc"}).Draw(t, "stem"), rapid.IntRange(1, 150).Draw(t, "n"))
	})
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n))
		if err := Create(t.Context(), path); err != nil {
			r.Fatal(err)
		}
		db, want := New(path, Options{}), content{"blocks": {}, "pools": {}}
		for range rapid.IntRange(1, 12).Draw(r, "transactions") {
			next := content{"blocks": maps.Clone(want["blocks"]), "pools": maps.Clone(want["pools"])}
			fail := rapid.IntRange(0, 4).Draw(r, "fail") == 0
			err := db.Update(t.Context(), func(tx kv.Tx) error {
				for range rapid.IntRange(0, 40).Draw(r, "writes") {
					table, key := rapid.SampledFrom([]string{"blocks", "pools"}).Draw(r, "table"), keys.Draw(r, "key")
					if rapid.IntRange(0, 2).Draw(r, "op") == 0 {
						delete(next[table], key)
						if err := tx.Delete(table, key); err != nil {
							return err
						}
						continue
					}
					val := strings.Repeat(key[:1], rapid.SampledFrom([]int{0, 1, 100, 5000, 13000}).Draw(r, "size"))
					next[table][key] = val
					if err := tx.Put(table, key, []byte(val)); err != nil {
						return err
					}
				}
				if fail {
					return os.ErrInvalid
				}
				return nil
			})
			if fail != errors.Is(err, os.ErrInvalid) || !fail && err != nil {
				r.Fatal(err)
			}
			if !fail {
				want = next
			}
			for _, db := range []*DB{db, New(path, Options{})} {
				got, _, err := dump(t.Context(), db, "blocks", "pools")
				if err != nil || !cmp.Equal(got, want) {
					r.Fatalf("%v\n%s", err, cmp.Diff(want, got))
				}
			}
		}
		if err := os.Remove(path); err != nil {
			r.Fatal(err)
		}
	})
}

func TestWait(t *testing.T) {
	path := newStore(t)
	db := New(path, Options{Poll: time.Millisecond})
	_, rev, err := dump(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("another revision: at once", func(t *testing.T) {
		if err := db.Wait(t.Context(), rev-1); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("until a write of another DB", func(t *testing.T) {
		done := make(chan error)
		go func() { done <- db.Wait(t.Context(), rev) }()
		put(t, New(path, Options{}), "pools", "p", "1")
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
	t.Run("until ctx ends", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := db.Wait(ctx, rev+1); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
	t.Run("the file vanishes", func(t *testing.T) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := db.Wait(t.Context(), rev+1); !errors.Is(err, ErrNoStore) {
			t.Fatal(err)
		}
	})
}

// TestLockWait: who gives up waiting for the lock returns at once and does not
// keep the lock when it comes.
func TestLockWait(t *testing.T) {
	defer goleak.VerifyNone(t)
	path := newStore(t)
	for _, exclusive := range []bool{false, true} {
		release, err := lockStore(t.Context(), path, true)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		db := New(path, Options{})
		if exclusive {
			err = db.Update(ctx, func(kv.Tx) error { t.Error("ran without the lock"); return nil })
		} else {
			err = db.View(ctx, func(kv.Tx) error { t.Error("ran without the lock"); return nil })
		}
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		release()
		put(t, db, "pools", "p", fmt.Sprint(exclusive))
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := New(path, Options{}).Update(ctx, func(tx kv.Tx) error { cancel(); return tx.Put("pools", "late", nil) })
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got, _, err := dump(t.Context(), New(path, Options{}), "pools"); err != nil || len(got["pools"]) != 1 {
		t.Fatal(got, err)
	}
}

// TestReplaced: a file restored from a backup by rename is read, not the snapshot.
func TestReplaced(t *testing.T) {
	path := newStore(t)
	db := New(path, Options{})
	put(t, db, "pools", "p", "old")
	backup, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, db, "pools", "p", "new")
	if err := errors.Join(os.WriteFile(path+".restored", backup, 0o600), os.Rename(path+".restored", path)); err != nil {
		t.Fatal(err)
	}
	if got, _, err := dump(t.Context(), db, "pools"); err != nil || got["pools"]["p"] != "old" {
		t.Fatal(got, err)
	}
}

// fill writes tables of every shape: values over several pages, a tree of three
// levels, one page, an inline bucket, and freed pages between them.
func fill(t testing.TB, db *DB) (content, uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	for round := range 2 {
		err := db.Update(t.Context(), func(tx kv.Tx) error {
			var errs []error
			for i := range 5 {
				errs = append(errs, tx.Put("blocks", fmt.Sprintf("10-64-%d-0-26", i), random(13<<10)))
			}
			for i := range 90 {
				errs = append(errs, tx.Put("handles", fmt.Sprintf("%0400d", i*7%90), random(20+round)))
			}
			for i := range 12 {
				errs = append(errs, tx.Put("affinities", fmt.Sprintf("node-%d", i), random(150)))
			}
			errs = append(errs, tx.Put("pools", "default", random(100)), tx.Put("config", "gone", nil), tx.Delete("config", "gone"))
			return errors.Join(errs...)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		put(t, db, "blocks", fmt.Sprintf("10-64-%d-0-26", i), string(random(12<<10)))
	}
	c, rev, err := dump(t.Context(), New(db.path, Options{}), kv.Tables()...)
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{5, 90, 12}; !slices.Equal(want, []int{len(c["blocks"]), len(c["handles"]), len(c["affinities"])}) {
		t.Fatal("filled with something else")
	}
	return c, rev
}

// A file of somebody else gets no lock files beside it: "/etc/passwd.lock" means
// something to others.
func TestForeignFileIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "passwd")
	if err := os.WriteFile(path, []byte("root:x:0:0:root:/root:/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	db := New(path, Options{})
	for name, err := range map[string]error{
		"View":   db.View(t.Context(), func(kv.Tx) error { return nil }),
		"Update": db.Update(t.Context(), func(kv.Tx) error { return nil }),
		"Create": Create(t.Context(), path),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("files are left beside it: %v, %v", entries, err)
	}
}
