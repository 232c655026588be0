// SPDX-License-Identifier: Apache-2.0

// Package kube is how the modes of the agent reach the API server: the client's
// configuration from a kubeconfig, the node that a credential is bound to, what the
// credential may do, and reads of single pods, namespaces and nodes. It decides
// nothing and keeps nothing.
package kube
