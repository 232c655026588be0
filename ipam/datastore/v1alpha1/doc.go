// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the stored form of Allod's records: the custom resources
// of group ipam.allod.io, their object names and labels, and the conversion to
// and from the values of ipam/block, ipam/pool and ipam/datastore. Every store,
// "apply" and "show" use these types.
//
// Reading is lenient where an older or newer version may have written the
// object: absent fields get their defaults; unknown fields of a block are kept, and so
// are labels and annotations that this version does not write ([Own]), also those of
// our domain. What an operator writes is read strictly, by [DecodeManifest]. The package
// does no I/O and must not know stores.
package v1alpha1

// The API group and version of every kind here.
const (
	Group      = "ipam.allod.io"
	APIVersion = Group + "/v1alpha1"
)

// The kinds.
const (
	KindPool           = "IPPool"
	KindReservation    = "IPReservation"
	KindConfiguration  = "IPAMConfiguration"
	KindBlock          = "IPAMBlock"
	KindAffinity       = "BlockAffinity"
	KindHandle         = "IPAMHandle"
	KindTunnelEndpoint = "TunnelEndpoint"
)

// PoolFinalizer keeps a pool from vanishing while blocks of it exist.
const PoolFinalizer = Group + "/pool"
