// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"

	"github.com/allod/allod/ipam/datastore"
)

// Caller-facing errors; compare with errors.Is.
var (
	ErrNoPool         = errors.New("no IP pool can serve this request")
	ErrExhausted      = errors.New("no address is left")
	ErrBlockLimit     = errors.New("the host has reached its block limit")
	ErrStrictAffinity = errors.New("strictAffinity forbids an address from a block of another host")
	ErrAddressInUse   = errors.New("address is in use")
	ErrAddressCooling = errors.New("address is cooling down")
	ErrNotInPool      = errors.New("address is not in an IP pool")
	ErrReserved       = errors.New("address is never assigned")
	ErrInvalid        = errors.New("invalid request")
	ErrNotAllocated   = errors.New("address is not allocated")
	ErrBlockNotEmpty  = errors.New("block still has addresses allocated or cooling")
	// ErrBlockHeld: the block goes when those who hold it let it; its claim with it.
	ErrBlockHeld = errors.New("block is being deleted and held by others, and takes no change of its owner until it is gone")
	// ErrStale: an allocation is no longer what the caller saw (INV-8). Look again.
	ErrStale = errors.New("the allocation has changed since it was seen")
	// ErrContention: other writers won every attempt. Nothing was changed.
	ErrContention = errors.New("too many concurrent writers")
	// ErrUnknownOutcome: a write may or may not have been applied and the store
	// could not be asked again (INV-7).
	ErrUnknownOutcome = errors.New("the outcome of a write is unknown")
)

// Transient errors: they never leave the package.
var (
	errStaleAffinity = errors.New("block has another owner")
	errLimitReached  = errors.New("concurrent requests of this host have claimed all it may")
	errPoolClosed    = errors.New("IP pool was closed or changed meanwhile")
)

// definite reports whether err says for certain that a write was not applied,
// because the object is not what the writer took it for. A refusal is certain too
// (datastore.ErrRefused), but ends the request: looking again does not help.
func definite(err error) bool {
	return errors.Is(err, datastore.ErrConflict) || errors.Is(err, datastore.ErrExists) || errors.Is(err, datastore.ErrNotFound)
}

// unknownWrite is a write whose outcome could not be found out.
type unknownWrite struct{ cause error }

func (e *unknownWrite) Error() string {
	return fmt.Sprintf("%v: %v", ErrUnknownOutcome, e.cause)
}

func (e *unknownWrite) Is(target error) bool { return target == ErrUnknownOutcome }

func (e *unknownWrite) Unwrap() error { return e.cause }
