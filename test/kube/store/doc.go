// SPDX-License-Identifier: Apache-2.0

// Package store tests ipam/datastore/kubestore, and the library above it, on a real
// API server with the CRDs of manifests/crds.
package store
