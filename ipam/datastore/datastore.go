// SPDX-License-Identifier: Apache-2.0

// Package datastore is the contract between the library and what keeps its
// records: typed tables with compare-and-swap, opaque revisions and three
// sentinel errors. It holds no logic of assignment and does no I/O itself.
//
// storetest is the conformance suite that every implementation passes.
package datastore

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/pool"
)

// The whole error contract. Anything else is a fault: the outcome of a write
// that returned one is unknown (INV-7), and a read that returned one proves
// nothing (INV-2).
var (
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("already exists")
	ErrConflict = errors.New("changed by another writer")
	// ErrRefused: a write was certainly not applied, and the same write would be
	// refused again: the value is invalid, of a newer format, or the writer may not.
	// It is a mark on an error that says which; see [Refused].
	ErrRefused = errors.New("refused")
)

// Refused returns err, with its text, as an [ErrRefused].
func Refused(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}

type refusal struct{ error }

func (r refusal) Is(target error) bool { return target == ErrRefused }

func (r refusal) Unwrap() error { return r.error }

// UnreadableError is the error about an object that is stored and cannot be read, as it
// was written by hand, by rules that did not hold yet, or by another version.
type UnreadableError struct{ Err error }

func (e *UnreadableError) Error() string { return e.Err.Error() }

// Unwrap lets errors.Is see why.
func (e *UnreadableError) Unwrap() error { return e.Err }

// Rev is an opaque revision of one object. Compare for equality only.
type Rev string

// Entry is one stored object. UID is given by the store at creation and never
// reused: a re-created object has another one.
type Entry[K comparable, V any] struct {
	Key   K
	Value V
	Rev   Rev
	UID   string
	// Origin is what the store needs to write the object back: labels, annotations
	// and fields of others. It is opaque; pass it on unchanged.
	Origin any
}

// Query selects entries. Set fields are all required (AND); the zero Query
// selects everything. Blocks support every field, affinities Owner and Pool; other
// tables ignore all but MayBeStale and Strict.
type Query struct {
	Node  string         // blocks: affinity or allocation of this node
	Owner block.Affinity // affinities: claims of this owner
	Pool  string
	Space []block.Space // blocks: any of these labels
	Empty bool          // blocks: only those labelled empty
	// MayBeStale allows an answer from a cache that lags. Absence must never be
	// concluded from it (INV-10); entries from it are safe as CAS candidates.
	MayBeStale bool
	// Strict makes an object that is selected and cannot be read an error that names
	// it. Without it a store may leave such an object out and log it, so that one does
	// not stop every other (case D15). Whoever concludes from a list that something is
	// not there (a pool without blocks, a handle without addresses) must set it.
	Strict bool
}

// Table is one kind of object. Values passed in and returned are not shared
// with the store. Methods are safe for concurrent use.
type Table[K comparable, V any] interface {
	// Get reads one object, always consistently. ErrNotFound. What cannot be read is a
	// fault; kubestore says so with an *UnreadableError, and of a pool, a reservation or
	// the configuration the entry beside it lacks only its Value: an operator can replace
	// or delete it.
	Get(ctx context.Context, key K) (Entry[K, V], error)
	// List reads the entries that match q, ordered by key. Consistent unless
	// q.MayBeStale, complete if q.Strict.
	List(ctx context.Context, q Query) ([]Entry[K, V], error)
	// Create stores a new object. ErrExists.
	Create(ctx context.Context, key K, v V) (Entry[K, V], error)
	// Update replaces e.Value when e.Rev and e.UID are current. ErrConflict when
	// they are not, ErrNotFound when the object is gone. e is an entry that the table
	// returned, with another Value. One that changes nothing moves Rev all the same:
	// what else was to be written at e.Rev can no longer land (INV-7).
	Update(ctx context.Context, e Entry[K, V]) (Entry[K, V], error)
	// Delete removes the object on the same preconditions as Update. ErrConflict,
	// ErrNotFound. nil says that it is gone, or, of a pool, that it goes when its
	// admission is over; an object that somebody else holds stays: an error that says who.
	Delete(ctx context.Context, e Entry[K, V]) error
	// Watch yields every present entry as a Put, then one Synced, then each
	// change until ctx ends or the sequence yields an error; the consumer then
	// starts again. Changes of one key arrive in order; intermediate states may
	// be skipped.
	Watch(ctx context.Context) iter.Seq2[Change[K, V], error]
}

// ChangeKind says what a Change is.
type ChangeKind uint8

// The kinds of change.
const (
	Put ChangeKind = iota + 1
	Deleted
	Synced // no entry: everything that was there at the start has been yielded
)

// Change is one event of a watch. For Deleted the entry is the last one seen.
type Change[K comparable, V any] struct {
	Kind  ChangeKind
	Entry Entry[K, V]
}

// AffinityState is the phase of a claim (INV-6). Only Confirmed counts for
// ownership and routing.
type AffinityState string

// The phases of a claim.
const (
	Pending         AffinityState = "pending"
	Confirmed       AffinityState = "confirmed"
	PendingDeletion AffinityState = "pendingDeletion"
)

// AffinityKey names a claim: one owner, one block.
type AffinityKey struct {
	Owner block.Affinity
	CIDR  netip.Prefix
}

// Affinity is an owner's claim on a block. It is small; everyone watches it.
type Affinity struct {
	State AffinityState
	Pool  string
	// BlockSeq is the block's sequence at claim. Of two confirmed claims on one
	// CIDR only the one with the higher BlockSeq routes.
	BlockSeq uint64
	// PendingSince is when the request began that made the claim pending: who clears
	// away leaves it to that request for a while. Zero when it is not pending, or not
	// known.
	PendingSince time.Time
}

// Handle is an intent record for owners that several nodes may serve (VMs,
// LoadBalancer services): the exact addresses that belong to the handle.
type Handle struct {
	Addrs     []netip.Addr
	Releasing bool // marked before the addresses are freed
}

// DefaultConfig is the key of the one Config object.
const DefaultConfig = "default"

// Config is the IPAMConfiguration singleton. A missing object reads as
// [ConfigDefaults]; reading never writes one (INV-12).
type Config struct {
	StrictAffinity               bool
	AutoAllocateBlocks           bool
	MaxBlocksPerHost             int // 0 means DefaultMaxBlocksPerHost
	KubeVirtVMAddressPersistence bool
	IPCooldown                   time.Duration // 0 to 1200 s, whole seconds
	LeakGracePeriod              time.Duration
}

// DefaultMaxBlocksPerHost is the cap used when none is configured.
const DefaultMaxBlocksPerHost = 20

// ConfigDefaults returns the configuration that holds when none is stored.
func ConfigDefaults() Config {
	return Config{AutoAllocateBlocks: true, KubeVirtVMAddressPersistence: true, LeakGracePeriod: 15 * time.Minute}
}

// Store is every table. What is written to Pools carries no status: a store whose
// PoolStatus is nil decides admission (pool.Admit) in the transaction of each write;
// of any other somebody calls PoolStatus (ipam.Client.ReconcilePools).
type Store struct {
	Blocks       Table[netip.Prefix, block.Block]
	Affinities   Table[AffinityKey, Affinity]
	Handles      Table[block.HandleID, Handle]
	Pools        Table[string, pool.Pool]
	Reservations Table[string, pool.Reservation]
	Config       Table[string, Config]
	// PoolStatus stores e.Value.Status, and nothing else of e, on the preconditions of
	// Update and with its errors. A pool that is being deleted goes with its finalizer
	// if no other writer holds it; what is returned is then the last that was seen.
	PoolStatus func(ctx context.Context, e Entry[string, pool.Pool]) (Entry[string, pool.Pool], error)
}
