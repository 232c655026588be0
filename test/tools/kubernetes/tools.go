// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins the Kubernetes API server that the tests run against.
// It holds no code of its own: `make kube-apiserver` builds what it imports.
package tools

import _ "k8s.io/kubernetes/cmd/kube-apiserver"
