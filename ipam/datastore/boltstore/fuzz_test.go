// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allod/allod/ipam/datastore/kv"
)

// smallFile is a store with a branch, an overflow page and an inline bucket.
func smallFile(t testing.TB) []byte {
	t.Helper()
	path := newStore(t)
	db := New(path, Options{})
	err := db.Update(t.Context(), func(tx kv.Tx) error {
		errs := []error{tx.Put(kv.Pools, "default", []byte("x")), tx.Put(kv.Blocks, "b", []byte(strings.Repeat("y", 5000)))}
		for i := range 12 {
			errs = append(errs, tx.Put(kv.Handles, fmt.Sprintf("%0500d", i), []byte("z")))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Fatal(err)
	}
	put(t, db, kv.Pools, "default", "x2")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// patch applies edits of 7 bytes each (an offset of four, a length, two of content) to a real file and then makes the meta pages valid again, so that the
// damage reaches the tree behind them. Three bytes at the end cut the file.
func patch(file, edits []byte) []byte {
	b := bytes.Clone(file)
	for ; len(edits) >= 7; edits = edits[7:] {
		at := int(binary.LittleEndian.Uint32(edits) % uint32(len(b)))
		copy(b[at:], edits[5:5+min(2, int(edits[4]))])
	}
	for i := range 2 {
		m := b[i*testPage+headerSize:]
		sum := fnv.New64a()
		_, _ = sum.Write(m[:metaSize-8])
		native.PutUint64(m[metaSize-8:], sum.Sum64())
	}
	if len(edits) == 3 {
		b = b[:int(binary.LittleEndian.Uint16(edits))*int(edits[2])%len(b)]
	}
	return b
}

// FuzzVerify: whatever a file holds, verify returns an error or content, and what
// it takes for good bbolt can open, change and store, and it reads back.
func FuzzVerify(f *testing.F) {
	base := smallFile(f)
	f.Add([]byte{}, false)
	f.Add(base[:headerSize+metaSize], true)
	f.Add([]byte("something else"), true)
	for at := uint32(0); int(at) < len(base); at += 1021 {
		f.Add(append(binary.LittleEndian.AppendUint32(nil, at), 2, 0xff, 0x01), false)
	}
	for page := range uint32(len(base) / testPage) {
		for _, off := range []uint32{0, 8, 10, 12, 16, 20, 24, 28, 56} {
			f.Add(append(binary.LittleEndian.AppendUint32(nil, page*testPage+off), 1, 0x02, 0), false)
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, whole bool) {
		file := data
		if !whole {
			file = patch(base, data)
		}
		m, _, err := verify(bytes.NewReader(file), uint64(len(file)))
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotStore) && !errors.Is(err, ErrNewer) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		path := filepath.Join(dir, fmt.Sprint(os.Getpid()))
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		put(t, New(path, Options{}), kv.Blocks, "new", strings.Repeat("n", 9000))
		got, rev, err := dump(t.Context(), New(path, Options{}), kv.Tables()...)
		if err != nil || rev != m.rev+1 {
			t.Fatalf("revision %d after %d: %v", rev, m.rev, err)
		}
		for _, name := range kv.Tables() {
			for key, val := range (&tx{base: m}).All(name) {
				if got[name][key] != string(val) && key != "new" {
					t.Fatalf("%s %q changed", name, key)
				}
			}
		}
	})
}
