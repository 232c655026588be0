// SPDX-License-Identifier: Apache-2.0

// Package kubestore is the store of production: datastore's tables over the custom
// resources of group ipam.allod.io, and the API server's time. It holds no logic of
// assignment, keeps no cache, and decides neither the admission of pools nor the
// labels of blocks after a change of pools: the collector does.
//
// # One call
//
// Each method is one call, with three exceptions: a LIST of more than a page, an
// update that changes nothing, and a watch (a LIST, then a WATCH as often as the
// server ends one). A call is never repeated behind the caller's back if it writes.
//
// # Writing
//
// Update is a PUT with UID and resourceVersion. It is built on Entry.Origin, what was
// read beside the value: labels, annotations, finalizers, owner references and fields
// of other writers and other versions go back as they came. (The API server itself
// drops fields of a spec that its CRD does not have; of blocks it keeps all.) An API
// server does not write an object that has not changed, which would leave a late
// request of the same revision its chance (INV-7): then the PUT is repeated with an
// annotation. PoolStatus is a PATCH of the finalizer and one of the condition, and Delete
// a DELETE, with the same preconditions.
//
// # Deleting
//
// An object to which another writer gave a finalizer stays, marked as deleted, until
// that one is done. Delete then is an error that names the finalizer, no success and no
// absence: reads still find the object, its name is taken, and asking again gives the
// same error. A pool with no finalizer but ours is deleted when admission lets it go. A
// block that is marked takes releases and nothing else: what would be given out of it
// would vanish with it (INV-1), so that an update with a higher sequence is refused.
//
// # What cannot be read
//
// An object that does not decode, or that lies under another name than its content
// has, is an error of Get. In lists and watches it depends on who writes the kind.
// Blocks, affinities and handles are many and the library's own: one bad object is
// left out and logged, so that it does not stop every other (case D15), unless the
// query is Strict: then it is an error that names it. What it holds stays taken,
// because its name is taken: a create meets ErrExists, a CAS the error of Get, and
// nobody releases what he does not see (INV-2). An object under a wrong name, which no
// version of ours writes, counts for nothing. Pools, reservations and the configuration
// are few and the operator's, and leaving one out would hand out what it withholds:
// there the list fails and names it (INV-14); validation in the CRDs keeps it from
// getting that far. One that is older than the validation is an error of Get, with its
// revision and all but its spec beside it: an operator can replace or delete it.
package kubestore
