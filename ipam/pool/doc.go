// SPDX-License-Identifier: Apache-2.0

// Package pool is the arithmetic of address pools: validation, which pools may
// serve a request, admission of pools that overlap, which addresses automatic
// assignment may never hand out, and the order in which a host walks the blocks
// of a pool. Everything is a pure function over values; families are equal and
// all arithmetic is 128 bits wide, so that a /8 and a /48 cost nothing (INV-16).
//
// The package must not know stores, nodes' APIs or clocks.
package pool
