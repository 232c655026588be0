// SPDX-License-Identifier: Apache-2.0

// Package node serves the CNI verbs of one node: it turns a request into calls of
// the ipam library and the library's errors into CNI codes. In direct mode it does
// so in the plugin's own process under the host lock. It decides nothing about
// addresses and nothing about masks.
package node
