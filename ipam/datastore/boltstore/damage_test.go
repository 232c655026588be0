// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/allod/allod/ipam/datastore/kv"
)

const testPage = 4096

// damageCase is one way to spoil page i of a file.
type damageCase struct {
	name  string
	spoil func(file []byte, i int) []byte
}

func damageCases(older []byte) []damageCase {
	rnd := rand.New(rand.NewPCG(3, 4))
	at := func(file []byte, i int) []byte { return file[i*testPage : (i+1)*testPage] }
	var cases []damageCase
	add := func(name string, change func(page []byte, file []byte, i int)) {
		cases = append(cases, damageCase{name, func(file []byte, i int) []byte {
			file = bytes.Clone(file)
			change(at(file, i), file, i)
			return file
		}})
	}
	// The header's fields, the first two elements' fields, the meta page's fields,
	// places all over the page, its end.
	for _, off := range []int{0, 7, 8, 9, 10, 11, 12, 15, 16, 20, 24, 28, 32, 36, 40, 44, 56, 64, 72, 79, 200, 1000, 1999, 2500, 3333, 4000, testPage - 1} {
		add(fmt.Sprintf("bit flipped at %d", off), func(page, _ []byte, _ int) { page[off] ^= 1 << rnd.IntN(8) })
	}
	add("zeroed", func(page, _ []byte, _ int) { clear(page) })
	add("all ones", func(page, _ []byte, _ int) {
		for i := range page {
			page[i] = 0xff
		}
	})
	add("random", func(page, _ []byte, _ int) {
		for i := range page {
			page[i] = byte(rnd.Uint32())
		}
	})
	add("half zeroed", func(page, _ []byte, _ int) { clear(page[testPage/2:]) })
	add("another page's content", func(page, file []byte, i int) { copy(page, at(file, (i+1)%(len(file)/testPage))) })
	add("another page's content under its number", func(page, file []byte, i int) {
		copy(page[8:], at(file, (i+1)%(len(file)/testPage))[8:])
	})
	add("a write that never arrived", func(page, _ []byte, i int) {
		// Not for the meta pages: without its last meta page a file is what it was
		// one commit before, and nothing in it can tell.
		if i >= 2 && (i+1)*testPage <= len(older) {
			copy(page, at(older, i))
		}
	})
	cases = append(cases,
		damageCase{"cut before", func(file []byte, i int) []byte { return file[:i*testPage] }},
		damageCase{"cut inside", func(file []byte, i int) []byte { return file[:i*testPage+testPage/3] }})
	return cases
}

// TestEveryPage: every page of a real file, spoiled in every way, is refused, or
// the file reads exactly as before because the page holds no live data. The file
// is left as it is, and nothing panics. Where it reads, it can also be written
// (tried on some: a commit takes its time).
func TestEveryPage(t *testing.T) {
	path := newStore(t)
	db := New(path, Options{})
	fill(t, db)
	older, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, db, kv.Blocks, "10-64-1-0-26", strings.Repeat("z", 13<<10))
	put(t, db, kv.Handles, fmt.Sprintf("%0400d", 5), "new")
	want, rev, err := dump(t.Context(), db, kv.Tables()...)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	live := livePages(t, file)
	spoiled := filepath.Join(t.TempDir(), "spoiled.db")
	refused, read := 0, 0
	for i := range len(live) + 2 {
		for n, c := range damageCases(older) {
			free := i >= len(live) || !live[i]
			bit := strings.HasPrefix(c.name, "bit")
			everyFifth := n%5 == i%5 // the rest only in memory: files take time
			b := c.spoil(file, i)
			if bytes.Equal(b, file) || free && bit && !everyFifth {
				continue
			}
			ok := checkBytes(t, b, want, rev)
			if (everyFifth || !bit && !free) && checkSpoiled(t, spoiled, b, want, rev) != ok {
				t.Error("refused only as a file, or only in memory")
			}
			if everyFifth && ok && i%8 == 0 {
				checkWrite(t, spoiled, want)
			}
			if ok {
				read++
				if !free && (c.name == "zeroed" || c.name == "random" || c.name == "all ones" || strings.HasPrefix(c.name, "cut")) {
					t.Errorf("page %d, %s: in use, but not missed", i, c.name)
				}
			} else {
				refused++
				if free && i < len(live) && !strings.HasPrefix(c.name, "cut") {
					t.Errorf("page %d, %s: free, but refused", i, c.name)
				}
			}
			if t.Failed() {
				t.Fatalf("page %d, %s", i, c.name)
			}
		}
	}
	t.Logf("%d pages, %d in use: %d spoiled files refused, %d read as before", len(file)/testPage, countTrue(live), refused, read)
	if refused < 1000 || read < 100 {
		t.Fatal("the cases don't spoil what they should")
	}
}

// checkBytes verifies a spoiled file in memory, which is what every transaction
// starts with. It reports whether it was taken for good.
func checkBytes(t *testing.T, b []byte, want content, rev uint64) bool {
	t.Helper()
	m, _, err := verify(bytes.NewReader(b), uint64(len(b)))
	if err != nil {
		return false
	}
	got := content{}
	for _, name := range kv.Tables() {
		got[name] = map[string]string{}
		for key, val := range (&tx{base: m}).All(name) {
			got[name][key] = string(val)
		}
	}
	if m.rev != rev || !equal(got, want) {
		t.Error("reads as something else")
	}
	return true
}

// checkSpoiled opens a spoiled file; it must be refused or hold want. It reports
// whether it was read.
func checkSpoiled(t *testing.T, path string, b []byte, want content, rev uint64) bool {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	got, gotRev, err := dump(t.Context(), New(path, Options{}), kv.Tables()...)
	if after, readErr := os.ReadFile(path); readErr != nil || !bytes.Equal(after, b) {
		t.Errorf("reading changed the file (%v)", readErr)
	}
	if err == nil {
		if gotRev != rev || !equal(got, want) {
			t.Error("reads as something else")
		}
		return true
	}
	if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotStore) && !errors.Is(err, ErrNewer) {
		t.Errorf("refused for another reason: %v", err)
	}
	err = New(path, Options{}).Update(t.Context(), func(kv.Tx) error { t.Error("update on a damaged file"); return nil })
	if after, readErr := os.ReadFile(path); err == nil || readErr != nil || !bytes.Equal(after, b) {
		t.Errorf("a refused update changed the file (%v, %v)", err, readErr)
	}
	return false
}

// checkWrite writes to a file that was taken for good and reads it back.
func checkWrite(t *testing.T, path string, want content) {
	t.Helper()
	err := New(path, Options{}).Update(t.Context(), func(tx kv.Tx) error {
		return errors.Join(tx.Put(kv.Blocks, "10-64-3-0-26", []byte("rewritten")), tx.Delete(kv.Handles, fmt.Sprintf("%0400d", 60)))
	})
	if err != nil {
		t.Errorf("written: %v", err)
		return
	}
	got, _, err := dump(t.Context(), New(path, Options{}), kv.Tables()...)
	if err != nil || got[kv.Blocks]["10-64-3-0-26"] != "rewritten" || len(got[kv.Handles]) != len(want[kv.Handles])-1 {
		t.Errorf("written, then read: %v", err)
	}
}

// livePages tells which pages below the high-water mark hold something.
func livePages(t *testing.T, file []byte) []bool {
	t.Helper()
	m, _, err := readMetas(bytes.NewReader(file), uint64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	v := &verifier{r: bytes.NewReader(file), meta: m, used: make([]bool, m.highWater), tables: map[string]*table{}}
	if err := v.walk(m.root, v.bucket); err != nil {
		t.Fatal(err)
	}
	v.used[0], v.used[1] = true, true
	if n := countTrue(v.used); n < 40 || n == len(v.used) {
		t.Fatalf("%d of %d pages in use: no good example", n, len(v.used))
	}
	return v.used
}

func equal(a, b content) bool {
	return maps.EqualFunc(a, b, func(x, y map[string]string) bool { return maps.Equal(x, y) })
}

func countTrue(b []bool) (n int) {
	for _, x := range b {
		if x {
			n++
		}
	}
	return n
}

// TestRefused: what is not a store, or not one of this version, is refused with
// the right error and left as it was.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	boltFile := func(name string, fill func(tx *bolt.Tx) error) []byte {
		path := filepath.Join(dir, name)
		db, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Update(fill), db.Close()); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	record := func(json string) func(tx *bolt.Tx) error {
		return func(tx *bolt.Tx) error {
			b, err := tx.CreateBucket([]byte(stateBucket))
			if err != nil {
				return err
			}
			return b.Put([]byte(stateKey), seal(checksum(stateBucket, stateKey, []byte(json)), []byte(json)))
		}
	}
	for _, c := range []struct {
		name string
		file []byte
		want error
		text string
	}{
		{"empty file", nil, ErrNotStore, "empty"},
		{"one byte", []byte("x"), ErrNotStore, ""},
		{"text", bytes.Repeat([]byte("apiVersion: v1\n"), 1000), ErrNotStore, "no valid meta page"},
		{"zeros", make([]byte, 1<<16), ErrNotStore, ""},
		{"bolt file without buckets", boltFile("none", func(*bolt.Tx) error { return nil }), ErrNotStore, "state record"},
		{"bolt file of another program", boltFile("other", func(tx *bolt.Tx) error {
			b, err := tx.CreateBucket([]byte("members"))
			return errors.Join(err, b.Put([]byte("k"), []byte("v")))
		}), ErrNotStore, "something else"},
		{"bolt file with a bucket of our name", boltFile("same", func(tx *bolt.Tx) error {
			_, err := tx.CreateBucket([]byte(stateBucket))
			return err
		}), ErrNotStore, "state record"},
		{"another store in our form", boltFile("mark", record(`{"store":"x","format":1}`)), ErrNotStore, `"x"`},
		{"state record that is no JSON", boltFile("json", record(`{`)), ErrNotStore, "state record"},
		{"newer format", boltFile("newer", record(`{"store":"allod-ipam","format":2,"more":[]}`)), ErrNewer, "format 2"},
		{"state of another transaction", boltFile("rev", record(`{"store":"allod-ipam","format":1,"rev":9}`)), ErrDamaged, "transaction 9"},
		{"a table is missing", boltFile("table", record(`{"store":"allod-ipam","format":1,"rev":2,"tables":{"blocks":{"count":0}}}`)), ErrDamaged, "blocks"},
		{"no checksum", boltFile("sum", func(tx *bolt.Tx) error {
			b, err := tx.CreateBucket([]byte(stateBucket))
			return errors.Join(err, b.Put([]byte(stateKey), []byte("{}")))
		}), ErrDamaged, "checksum"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ipam.db")
			if err := os.WriteFile(path, c.file, 0o600); err != nil {
				t.Fatal(err)
			}
			db := New(path, Options{})
			for _, err := range []error{
				db.View(t.Context(), func(kv.Tx) error { t.Error("read"); return nil }),
				db.Update(t.Context(), func(kv.Tx) error { t.Error("written"); return nil }),
			} {
				if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), path) {
					t.Errorf("error %v", err)
				}
			}
			if err := Create(t.Context(), path); !errors.Is(err, ErrExists) {
				t.Errorf("create over it: %v", err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, c.file) {
				t.Errorf("the file changed (%v)", err)
			}
		})
	}
}

// TestNoFile: what is there instead of a file is told, and nothing is created.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		want error
		text string
	}{
		{filepath.Join(dir, "absent"), ErrNoStore, "allod-agent apply -f"},
		{filepath.Join(dir, "no", "folder"), ErrNoStore, "allod-agent apply -f"},
		{filepath.Join(dir, "dangling"), ErrNoStore, ""},
		{dir, ErrNotStore, "regular file"},
		{os.DevNull, ErrNotStore, "regular file"},
	} {
		db := New(c.path, Options{})
		for _, err := range []error{
			db.View(t.Context(), func(kv.Tx) error { return nil }),
			db.Update(t.Context(), func(kv.Tx) error { return nil }),
		} {
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v", c.path, err)
			}
		}
	}
	files, err := os.ReadDir(dir)
	if names := slices.Collect(func(yield func(string) bool) {
		for _, f := range files {
			yield(f.Name())
		}
	}); err != nil || !slices.Equal(names, []string{"dangling"}) {
		t.Fatalf("created something: %v %v", names, err)
	}
}

// TestSymlink: two names of one file share one lock.
func TestSymlink(t *testing.T) {
	path := newStore(t)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	put(t, New(link, Options{}), kv.Pools, "p", "1")
	if _, err := os.Stat(link + lockSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a lock of its own: %v", err)
	}
}
