// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/allod/allod/ipam/datastore"
)

// The bounds of the retry loop: 16 attempts with doubling pauses from 1 ms to
// 250 ms, each jittered, are about 2 s of contention.
const (
	maxAttempts = 16
	maxFaults   = 3 // writes of unknown outcome in one update
	firstPause  = time.Millisecond
	lastPause   = 250 * time.Millisecond
)

// backoff gives jittered pauses; safe for concurrent use.
type backoff struct {
	mu   *sync.Mutex
	rand *rand.Rand
}

func newBackoff(r *rand.Rand) backoff {
	if r == nil {
		r = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return backoff{mu: new(sync.Mutex), rand: r}
}

func (b backoff) pause(ctx context.Context, attempt int) error {
	d := min(firstPause<<min(attempt, 20), lastPause)
	b.mu.Lock()
	d = d/2 + time.Duration(b.rand.Int64N(int64(d)))
	b.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// A change turns what is stored into what should be. It is pure, is called once
// per attempt with a fresh value, and must recognise its own effect: called on a
// value it has already changed it reports that nothing is to do. That makes an
// update replayable after a lost reply (INV-7).
type change[K comparable, V any] = func(datastore.Entry[K, V]) (next V, write bool, err error)

// update is the only compare-and-swap loop. It starts from hint when there is one
// (the caller read it before), else it reads. Conflicts are retried with a
// jittered back-off; after a fault the object is read again: if the write is not
// there, the next write is what fences the lost one. ErrContention,
// ErrUnknownOutcome, datastore.ErrNotFound, or an error of fn as it is.
func update[K comparable, V any](
	ctx context.Context, b backoff, t datastore.Table[K, V], key K, hint *datastore.Entry[K, V], fn change[K, V],
) (datastore.Entry[K, V], error) {
	var lost error // why the outcome of the last write is unknown
	var lostRev datastore.Rev
	faults := 0
	e := hint
	for attempt := range maxAttempts {
		if e == nil {
			got, err := t.Get(ctx, key)
			switch {
			case errors.Is(err, datastore.ErrNotFound):
				return got, err
			case err != nil:
				return got, afterLost(lost, err)
			}
			e = &got
		}
		next, write, err := fn(*e)
		if err != nil {
			return *e, err
		}
		if !write && (lost == nil || e.Rev != lostRev) {
			return *e, nil
		}
		rev := e.Rev
		written, err := t.Update(ctx, datastore.Entry[K, V]{Key: e.Key, Value: next, Rev: e.Rev, UID: e.UID, Origin: e.Origin})
		switch {
		case err == nil:
			return written, nil
		case errors.Is(err, datastore.ErrNotFound):
			return *e, err
		case errors.Is(err, datastore.ErrRefused):
			return *e, afterLost(lost, err)
		case errors.Is(err, datastore.ErrConflict):
			// Someone else wrote: a lost write of ours is there or never will be.
			lost = nil
		default:
			if faults++; faults == maxFaults || ctx.Err() != nil {
				return *e, &unknownWrite{cause: err}
			}
			lost, lostRev = err, rev
		}
		e = nil
		if err := b.pause(ctx, attempt); err != nil {
			return datastore.Entry[K, V]{}, afterLost(lost, err)
		}
	}
	if lost != nil {
		return datastore.Entry[K, V]{}, &unknownWrite{cause: lost}
	}
	return datastore.Entry[K, V]{}, fmt.Errorf("%v after %d attempts: %w", key, maxAttempts, ErrContention)
}

// afterLost is err after a write of unknown outcome, if there was one.
func afterLost(lost, err error) error {
	if lost == nil {
		return err
	}
	return &unknownWrite{cause: errors.Join(lost, err)}
}

// ensure makes an object what fn wants, whether it is there or not: it updates
// what exists and creates what does not, beginning with the update when there is a
// hint. Two attempts are for a rival that creates or deletes in between. A create
// that is refused is not tried again: after a lost one it is only seen whether that
// has landed.
func ensure[K comparable, V any](
	ctx context.Context, b backoff, t datastore.Table[K, V], key K, hint *datastore.Entry[K, V], initial V, fn change[K, V],
) (datastore.Entry[K, V], error) {
	var lost error
	for range 3 {
		var refused error
		if hint == nil {
			e, err := t.Create(ctx, key, initial)
			switch {
			case err == nil:
				return e, nil
			case errors.Is(err, datastore.ErrRefused) && lost == nil:
				return e, err
			case errors.Is(err, datastore.ErrRefused):
				refused = err
			case !definite(err):
				lost = err // it may be there: reading tells, creating again fences
			}
		}
		e, err := update(ctx, b, t, key, hint, fn)
		hint = nil
		switch {
		case err == nil:
			return e, nil
		case refused != nil || !errors.Is(err, datastore.ErrNotFound):
			return e, afterLost(lost, cmp.Or(refused, err))
		}
	}
	if lost != nil {
		return datastore.Entry[K, V]{}, &unknownWrite{cause: lost}
	}
	return datastore.Entry[K, V]{}, fmt.Errorf("%v is created and deleted at the same time: %w", key, ErrContention)
}
