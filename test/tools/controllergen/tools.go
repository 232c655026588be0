// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins controller-gen, which writes the CRDs and the deep copies.
// It has a module of its own: its requirements and golangci-lint's do not go together.
// It holds no code of its own: `make generate` builds what it imports.
package tools

import _ "sigs.k8s.io/controller-tools/cmd/controller-gen"
