// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins the etcd that stands behind the tests' API server.
// It holds no code of its own: `make etcd` builds what it imports.
package tools

import _ "go.etcd.io/etcd/server/v3"
