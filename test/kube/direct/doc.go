// SPDX-License-Identifier: Apache-2.0

// Package direct has the tests of direct mode on Kubernetes: the built plugin, which
// finds no agent and becomes `allod-agent cni`, against a real API server, under the
// account of manifests/rbac/node.yaml with a token that is bound to its Node. Every
// call it makes is looked at: none may be refused for want of a right, and none may be
// one that the manifest does not grant.
package direct
