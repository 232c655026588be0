// SPDX-License-Identifier: Apache-2.0

// Package netns tests the built binaries as a node runs them: exec'd by libcni
// and the reference main plugins inside network namespaces, or exec'd directly.
// It needs root and the reference plugins; `make test-netns` provides both.
//
// The tests know the product from outside only. What must be so is taken from
// their own record of what plugin processes answered, never from its store.
package netns
