// SPDX-License-Identifier: Apache-2.0

// Package block is the value that holds allocations: one slice of a pool, one
// state per ordinal, and the line of text each state is stored as.
//
// A [Block] is the unit of compare-and-swap and the only record of an
// allocation. Its methods never do I/O, never read a clock and never change
// their receiver: each returns the next value, so an attempt that fails leaves
// nothing behind (INV-7). [Block.Check] proves that every ordinal is in exactly
// one state (INV-4); callers in tests run it after every step.
//
// The package must not know stores, pools, nodes or Kubernetes.
package block
