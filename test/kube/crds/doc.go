// SPDX-License-Identifier: Apache-2.0

// Package crds tests the CustomResourceDefinitions of manifests/crds on a real API
// server: every sample of manifests/samples, valid or not, against the API server
// and against the library, which must agree.
package crds
