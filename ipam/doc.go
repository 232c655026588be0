// SPDX-License-Identifier: Apache-2.0

// Package ipam assigns and releases addresses. It is the one library through
// which pods, tunnels, VMs and LoadBalancer services draw from the pools.
//
// What is decided here: which block an address comes from, and the order of
// writes that keeps every crash harmless. What is true of a single block is
// decided in ipam/block, what is true of pools in ipam/pool; what is stored, and
// where, in ipam/datastore. The package reads no environment, holds no cache and
// starts no goroutine that outlives a call.
//
// # Errors
//
// Three classes. Transient ones (a lost compare-and-swap, a claim another host
// won) never leave the package. Caller-facing ones are sentinels: [ErrNoPool],
// [ErrExhausted], [ErrBlockLimit], [ErrStrictAffinity], [ErrAddressInUse],
// [ErrAddressCooling], [ErrNotInPool], [ErrReserved], [ErrInvalid],
// [ErrNotAllocated], [ErrBlockNotEmpty], [ErrStale], [ErrContention] and
// [ErrUnknownOutcome]. What can be skipped and looked at again is
// data: [block.Outcome] in [Released]. Anything else is a fault of the store.
//
// # Handle IDs
//
// See handle.go: it alone formats them.
package ipam
