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
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
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
	// AdmitLater has the tables behave as an API server's: a write decides nothing but
	// its own object. Admission is PoolStatus's, a pool with a finalizer is deleted in
	// two steps, and labels are what their writer made them. For simulation.
	AdmitLater bool
}

// ErrRestored ends a watch when the database is at an earlier revision than the
// watch has seen: a backup was put back.
var ErrRestored = errors.New("the store went back to an earlier revision")

// ErrPoolInUse refuses the deletion of a pool that still has blocks or claims.
var ErrPoolInUse = errors.New("pool is in use")

// New returns the tables over db.
func New(db DB, o Options) datastore.Store {
	e := &engine{db: db, clock: o.Clock, newUID: o.NewUID, later: o.AdmitLater}
	if e.clock == nil {
		e.clock = clock.RealClock{}
	}
	if e.newUID == nil {
		e.newUID = randomUID
	}
	s := datastore.Store{
		Blocks:       &table[netip.Prefix, block.Block]{engine: e, kind: blockKind(e)},
		Affinities:   &table[datastore.AffinityKey, datastore.Affinity]{engine: e, kind: affinityKind(e)},
		Handles:      &table[block.HandleID, datastore.Handle]{engine: e, kind: handleKind()},
		Pools:        &table[string, pool.Pool]{engine: e, kind: poolKind(e)},
		Reservations: &table[string, pool.Reservation]{engine: e, kind: reservationKind(e)},
		Config:       &table[string, datastore.Config]{engine: e, kind: configKind()},
	}
	if o.AdmitLater {
		pools := laterPools{&table[string, pool.Pool]{engine: e, kind: poolKind(e)}}
		s.Pools, s.PoolStatus = pools, pools.status
	}
	return s
}

type engine struct {
	db     DB
	clock  clock.PassiveClock
	newUID func() string
	later  bool // see Options.AdmitLater
}

// now has the precision that objects carry.
func (e *engine) now() metav1.Time {
	return metav1.NewTime(e.clock.Now().UTC().Truncate(time.Second))
}

// randomUID returns a random UUID (RFC 9562, version 4).
func randomUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
