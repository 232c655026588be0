// SPDX-License-Identifier: Apache-2.0

// Package apiserver runs a real Kubernetes API server and its etcd for tests, on
// loopback, with Node and RBAC authorisation and NodeRestriction, and without
// controllers or nodes. [Main] runs the tests of a package on one, [Start] is the
// plain form.
//
// Both programs come from the Makefile (ETCD, KUBE_APISERVER). They end with
// the process that started them, however that ends. The package must not know
// Allod's kinds: tests apply what they need.
package apiserver
