// SPDX-License-Identifier: Apache-2.0

// Package ctl tests the operator's verbs of the built allod-agent on a real API server
// with the CRDs of manifests/crds.
package ctl
