// SPDX-License-Identifier: Apache-2.0

package memstore_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/allod/allod/ipam/datastore/kv"
	"github.com/allod/allod/ipam/datastore/memstore"
)

func dump(t interface{ Fatal(...any) }, ctx context.Context, db kv.DB) (rev uint64, all map[string]string) {
	all = map[string]string{}
	err := db.View(ctx, func(tx kv.Tx) error {
		rev = tx.Rev()
		for _, table := range []string{"t", "u"} {
			last := ""
			for k, v := range tx.All(table) {
				if k <= last {
					t.Fatal("keys out of order: ", last, k)
				}
				last = k
				all[table+k] = string(v)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rev, all
}

// Transactions against maps: what commits is there, what fails is not, snapshots
// stay what they were, and the revision counts the commits that wrote.
func TestTransactionsAgainstMaps(t *testing.T) {
	aborted := errors.New("aborted")
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		s := memstore.New(memstore.Options{})
		now, rev := map[string]string{}, uint64(0)
		type saved struct {
			state memstore.State
			all   map[string]string
			rev   uint64
		}
		var backups []saved
		for range rapid.IntRange(1, 12).Draw(t, "transactions") {
			next, wrote := maps.Clone(now), false
			abort := rapid.Bool().Draw(t, "abort")
			err := s.Update(ctx, func(tx kv.Tx) error {
				for range rapid.IntRange(0, 5).Draw(t, "writes") {
					table := rapid.SampledFrom([]string{"t", "u"}).Draw(t, "table")
					key := rapid.StringMatching(`[a-c]{1,2}`).Draw(t, "key")
					wrote = true
					if rapid.Bool().Draw(t, "delete") {
						delete(next, table+key)
						if err := tx.Delete(table, key); err != nil {
							return err
						}
						continue
					}
					val := []byte(rapid.String().Draw(t, "val"))
					next[table+key] = string(val)
					if err := tx.Put(table, key, val); err != nil {
						return err
					}
					clear(val) // the store has a copy
					if got, ok := tx.Get(table, key); !ok || string(got) != next[table+key] || tx.Rev() != rev {
						t.Fatal("a transaction does not see its own write")
					}
				}
				if abort {
					return aborted
				}
				return nil
			})
			if errors.Is(err, aborted) != abort {
				t.Fatal(err)
			}
			if !abort {
				now = next
				if wrote {
					rev++
				}
			}
			backups = append(backups, saved{s.Snapshot(), maps.Clone(now), rev})
			if rapid.IntRange(0, 5).Draw(t, "restore") == 0 {
				b := rapid.SampledFrom(backups).Draw(t, "backup")
				s.Restore(b.state)
				now, rev = maps.Clone(b.all), b.rev
			}
			gotRev, got := dump(t, ctx, s)
			if d := cmp.Diff(now, got); d != "" || gotRev != rev {
				t.Fatalf("revision %d; want %d (-want +got):\n%s", gotRev, rev, d)
			}
		}
		for _, b := range slices.Backward(backups) {
			s.Restore(b.state)
			if _, got := dump(t, ctx, s); !maps.Equal(b.all, got) {
				t.Fatal("a snapshot changed")
			}
		}
	})
}

func TestReadTransactionsCannotWrite(t *testing.T) {
	s := memstore.New(memstore.Options{})
	if err := s.View(t.Context(), func(tx kv.Tx) error { return tx.Put("t", "k", nil) }); err == nil {
		t.Error("a read transaction wrote")
	}
	if err := s.View(t.Context(), func(tx kv.Tx) error { return tx.Delete("t", "k") }); err == nil {
		t.Error("a read transaction deleted")
	}
	if rev, all := dump(t, t.Context(), s); rev != 0 || len(all) != 0 {
		t.Errorf("revision %d, %v; want nothing", rev, all)
	}
}

// A writer that waits for another gives up with its context.
func TestUpdateWaitsNoLongerThanItsContext(t *testing.T) {
	s := memstore.New(memstore.Options{})
	err := s.Update(t.Context(), func(kv.Tx) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return s.Update(ctx, func(tx kv.Tx) error { return tx.Put("t", "k", nil) })
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want %v", err, context.Canceled)
	}
}
