// SPDX-License-Identifier: Apache-2.0

// Package kv is the one engine behind every embedded store: it turns a small
// transactional key-value database into the typed tables of datastore, with
// compare-and-swap by revision, UIDs, label queries, watches by comparison, and
// pool admission and re-labelling in the same transaction as the change that
// needs them.
//
// A value is stored as the JSON of its custom resource, so that what an embedded
// store holds is what a cluster would hold. The package must not know files,
// locks or processes: those are the business of the [DB].
package kv

import (
	"context"
	"iter"

	"k8s.io/utils/clock"
)

// DB is the database below the engine. Methods are safe for concurrent use.
type DB interface {
	// View runs fn on a consistent snapshot.
	View(ctx context.Context, fn func(Tx) error) error
	// Update runs fn alone and makes its writes visible and durable at once. When
	// fn returns an error nothing has changed and that error is returned. Any
	// other error is a fault: whether the writes are there is unknown.
	Update(ctx context.Context, fn func(Tx) error) error
	// Wait returns nil when the revision of the database differs from rev, or the
	// error of ctx.
	Wait(ctx context.Context, rev uint64) error
}

// Tx is one transaction; it is valid only inside the function it was passed to
// and is used by one goroutine.
type Tx interface {
	// Rev is the revision of the snapshot. A committed Update that wrote anything
	// makes it one more; Put and Delete don't change what Rev returns.
	Rev() uint64
	// Get reads one value, including what this transaction wrote. The bytes must
	// neither be changed nor kept.
	Get(table, key string) ([]byte, bool)
	// All yields a table in the byte order of the keys. The bytes must neither be
	// changed nor kept, and the table must not be written meanwhile.
	All(table string) iter.Seq2[string, []byte]
	// Put stores a copy of val. Only in Update.
	Put(table, key string, val []byte) error
	// Delete removes a key; one that is not there is no error. Only in Update.
	Delete(table, key string) error
}

// The tables of a store.
const (
	Blocks       = "blocks"
	Affinities   = "affinities"
	Handles      = "handles"
	Pools        = "pools"
	Reservations = "reservations"
	Config       = "config"
)

// Tables returns the name of every table, for databases that create them ahead.
func Tables() []string {
	return []string{Blocks, Affinities, Handles, Pools, Reservations, Config}
}

// Options are what the engine is given from outside.
type Options struct {
	// Clock stamps the creation of objects. nil means the system's.
	Clock clock.PassiveClock
	// NewUID returns a UID that was never used before. nil means a random one.
	NewUID func() string
}
