// SPDX-License-Identifier: Apache-2.0

package memstore_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kv"
	"github.com/allod/allod/ipam/datastore/memstore"
)

var key = datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: netip.MustParsePrefix("10.0.0.0/29")}

func claim(seq uint64) datastore.Affinity {
	return datastore.Affinity{State: datastore.Confirmed, BlockSeq: seq}
}

// seq returns the sequence stored under key, 0 for no claim.
func seq(t *testing.T, s *memstore.Store) uint64 {
	t.Helper()
	e, err := s.Store().Affinities.Get(t.Context(), key)
	if errors.Is(err, datastore.ErrNotFound) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return e.Value.BlockSeq
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Each fault on each kind of write: what the client is told, and what is stored.
func TestWriteFaults(t *testing.T) {
	const before, after = 5, 6 // sequences; a create starts from none, a delete ends there
	for _, verb := range []memstore.Verb{memstore.Create, memstore.Update, memstore.Delete} {
		for fault, want := range map[memstore.Fault]struct {
			err     error
			applied bool
			dead    bool
		}{
			0:                    {nil, true, false},
			memstore.Conflict:    {datastore.ErrConflict, false, false},
			memstore.Crash:       {memstore.ErrCrashed, true, true},
			memstore.CrashBefore: {memstore.ErrCrashed, false, true},
			memstore.LostReply:   {memstore.ErrLost, true, false},
			memstore.LostRequest: {memstore.ErrLost, false, false},
			memstore.LateRequest: {memstore.ErrLost, false, false},
		} {
			t.Run(string(verb)+"/"+fault.String(), func(t *testing.T) {
				s := memstore.New(memstore.Options{})
				ctx := t.Context()
				from, to := uint64(before), uint64(after)
				if verb == memstore.Create {
					from = 0
					if fault == memstore.Conflict {
						want.err = datastore.ErrExists
					}
				} else {
					must(s.Store().Affinities.Create(ctx, key, claim(before)))(t)
				}
				if verb == memstore.Delete {
					to = 0
				}
				c, f := s.Client("a")
				f.Plan(1, fault)
				e, readErr := c.Affinities.Get(ctx, key)
				if (readErr != nil) != (verb == memstore.Create) {
					t.Fatal(readErr)
				}
				var err error
				switch e.Value = claim(after); verb {
				case memstore.Create:
					_, err = c.Affinities.Create(ctx, key, e.Value)
				case memstore.Update:
					_, err = c.Affinities.Update(ctx, e)
				case memstore.Delete:
					err = c.Affinities.Delete(ctx, e)
				}
				if !errors.Is(err, want.err) {
					t.Errorf("the client is told %v; want %v", err, want.err)
				}
				stored := from
				if want.applied {
					stored = to
				}
				if got := seq(t, s); got != stored {
					t.Errorf("stored: %d; want %d", got, stored)
				}
				if _, err := c.Affinities.List(ctx, datastore.Query{}); errors.Is(err, memstore.ErrCrashed) != want.dead {
					t.Errorf("next call: %v; want dead %v", err, want.dead)
				}
				if f.Writes() != 1 || f.Reads() != 2 {
					t.Errorf("%d writes and %d reads counted; want 1 and 2: %v", f.Writes(), f.Reads(), f.Ops())
				}
			})
		}
	}
}

// A planned conflict is a real one: the old revision stays useless, a new read helps.
func TestConflictIsHonest(t *testing.T) {
	s := memstore.New(memstore.Options{})
	c, f := s.Client("a")
	e := must(c.Affinities.Create(t.Context(), key, claim(1)))(t)
	f.Plan(2, memstore.Conflict)
	e.Value = claim(2)
	for try := range 2 {
		if _, err := c.Affinities.Update(t.Context(), e); !errors.Is(err, datastore.ErrConflict) {
			t.Fatalf("try %d with the old revision: %v; want a conflict", try, err)
		}
	}
	e.Rev = must(c.Affinities.Get(t.Context(), key))(t).Rev
	must(c.Affinities.Update(t.Context(), e))(t)
	if got := seq(t, s); got != 2 {
		t.Errorf("stored %d; want 2", got)
	}
}

func TestLateRequest(t *testing.T) {
	late := func(t *testing.T) (*memstore.Store, datastore.Store, *memstore.Faults, datastore.Entry[datastore.AffinityKey, datastore.Affinity]) {
		s := memstore.New(memstore.Options{})
		c, f := s.Client("a")
		e := must(c.Affinities.Create(t.Context(), key, claim(1)))(t)
		f.Plan(2, memstore.LateRequest)
		e.Value = claim(2)
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := c.Affinities.Update(ctx, e); !errors.Is(err, memstore.ErrLost) {
			t.Fatal(err)
		}
		cancel() // the caller has given up; the request is on its way all the same
		return s, c, f, e
	}
	t.Run("lands", func(t *testing.T) {
		s, _, f, _ := late(t)
		if errs := f.Deliver(); len(errs) != 1 || errs[0] != nil || seq(t, s) != 2 {
			t.Errorf("delivered: %v, stored %d; want it applied", errs, seq(t, s))
		}
		if errs := f.Deliver(); errs != nil {
			t.Errorf("delivered twice: %v", errs)
		}
	})
	t.Run("is fenced by a write", func(t *testing.T) {
		s, c, f, e := late(t)
		e.Value = claim(3)
		must(c.Affinities.Update(t.Context(), e))(t)
		if errs := f.Deliver(); len(errs) != 1 || !errors.Is(errs[0], datastore.ErrConflict) || seq(t, s) != 3 {
			t.Errorf("delivered: %v, stored %d; want a conflict (INV-7)", errs, seq(t, s))
		}
	})
	t.Run("by itself", func(t *testing.T) {
		_, c, f, _ := late(t)
		f.DeliverAfter(2)
		var got []uint64
		for range 4 {
			got = append(got, must(c.Affinities.Get(t.Context(), key))(t).Value.BlockSeq)
		}
		if d := cmp.Diff([]uint64{1, 1, 2, 2}, got); d != "" {
			t.Errorf("read (-want +got):\n%s", d)
		}
	})
}

func TestDeadStoreAndReadFaults(t *testing.T) {
	s := memstore.New(memstore.Options{})
	c, f := s.Client("a")
	f.PlanRead(2, memstore.ErrUnreachable)
	f.DeadFrom(4)
	var got []error
	call := func() {
		_, err := c.Handles.List(t.Context(), datastore.Query{})
		got = append(got, err)
	}
	for range 5 {
		call()
	}
	f.DeadFrom(0)
	call()
	for i, bad := range []bool{false, true, false, true, true, false} {
		if errors.Is(got[i], memstore.ErrUnreachable) != bad || (got[i] != nil) != bad {
			t.Errorf("call %d: %v; want unreachable %v", i+1, got[i], bad)
		}
	}
	f.DeadFrom(1)
	if _, err := c.Handles.Create(t.Context(), "h", datastore.Handle{}); !errors.Is(err, memstore.ErrUnreachable) {
		t.Errorf("create on a dead store: %v", err)
	}
	if es := must(s.Store().Handles.List(t.Context(), datastore.Query{}))(t); len(es) != 0 {
		t.Errorf("a write reached a dead store: %v", es)
	}
}

// The hook orders clients: here another one is always first.
func TestHook(t *testing.T) {
	s := memstore.New(memstore.Options{})
	c, f := s.Client("a")
	e := must(c.Affinities.Create(t.Context(), key, claim(1)))(t)
	refused := errors.New("not today")
	f.Hook(func(ctx context.Context, op memstore.Op) error {
		switch op.Verb {
		case memstore.Update:
			now := must(s.Store().Affinities.Get(ctx, key))(t)
			now.Value = claim(10)
			_, err := s.Store().Affinities.Update(ctx, now)
			return err
		case memstore.Delete:
			return refused
		}
		return nil
	})
	if _, err := c.Affinities.Update(t.Context(), e); !errors.Is(err, datastore.ErrConflict) {
		t.Errorf("update behind another's: %v; want a conflict", err)
	}
	if err := c.Affinities.Delete(t.Context(), e); !errors.Is(err, refused) {
		t.Errorf("delete: %v; want the error of the hook", err)
	}
	want := []memstore.Op{
		{Table: kv.Affinities, Verb: memstore.Create, Key: "{host:node-a 10.0.0.0/29}", Index: 1, Write: 1},
		{Table: kv.Affinities, Verb: memstore.Update, Key: "{host:node-a 10.0.0.0/29}", Index: 2, Write: 2},
		{Table: kv.Affinities, Verb: memstore.Delete, Key: "{host:node-a 10.0.0.0/29}", Index: 3, Write: 3},
	}
	got := f.Ops()
	for i := range got {
		got[i].Err = nil
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("recorded (-want +got):\n%s", d)
	}
}

// Only lists that may be stale are, and gets never.
func TestStaleLists(t *testing.T) {
	s := memstore.New(memstore.Options{History: 5})
	c, f := s.Client("a")
	e := must(c.Affinities.Create(t.Context(), key, claim(1)))(t)
	for n := uint64(2); n <= 9; n++ {
		e.Value = claim(n)
		e = must(c.Affinities.Update(t.Context(), e))(t)
	}
	for back, want := range map[int]uint64{0: 9, 1: 8, 3: 6, 5: 4, 100: 4} {
		f.StaleBy(back)
		stale := must(c.Affinities.List(t.Context(), datastore.Query{MayBeStale: true}))(t)
		fresh := must(c.Affinities.List(t.Context(), datastore.Query{}))(t)
		if len(stale) != 1 || stale[0].Value.BlockSeq != want || fresh[0].Value.BlockSeq != 9 ||
			must(c.Affinities.Get(t.Context(), key))(t).Value.BlockSeq != 9 {
			t.Errorf("%d commits back: %v and %v; want %d and 9", back, stale, fresh, want)
		}
	}
}

func TestLaggingWatch(t *testing.T) {
	s := memstore.New(memstore.Options{})
	c, f := s.Client("a")
	e := must(c.Affinities.Create(t.Context(), key, claim(1)))(t)
	e.Value = claim(2)
	e = must(c.Affinities.Update(t.Context(), e))(t)
	f.WatchLag(1)
	w := pull(t, c)
	w.want(datastore.Put, 1)
	w.want(datastore.Synced, 0)
	e.Value = claim(3)
	must(c.Affinities.Update(t.Context(), e))(t)
	w.want(datastore.Put, 2)

	f.ResetWatches()
	w.ends(memstore.ErrWatchReset)
	f.WatchLag(0)
	again := pull(t, c)
	again.want(datastore.Put, 3)
	again.want(datastore.Synced, 0)
	f.Plan(f.Writes()+1, memstore.CrashBefore)
	if _, err := c.Handles.Create(t.Context(), "h", datastore.Handle{}); !errors.Is(err, memstore.ErrCrashed) {
		t.Fatal(err)
	}
	again.ends(memstore.ErrCrashed)
	pull(t, c).ends(memstore.ErrCrashed)
}

// Restoring brings back revisions and UIDs; watches end.
func TestRestore(t *testing.T) {
	s := memstore.New(memstore.Options{})
	st := s.Store()
	e := must(st.Affinities.Create(t.Context(), key, claim(1)))(t)
	saved := s.Snapshot()
	w := pull(t, st)
	w.want(datastore.Put, 1)
	w.want(datastore.Synced, 0)
	n := e
	n.Value = claim(2)
	must(st.Affinities.Update(t.Context(), n))(t)
	w.want(datastore.Put, 2)
	s.Restore(saved)
	w.ends(kv.ErrRestored)
	if now := must(st.Affinities.Get(t.Context(), key))(t); now != e {
		t.Errorf("restored %+v; want %+v", now, e)
	}
	must(st.Affinities.Update(t.Context(), n))(t) // the revision of the backup is current again
}
