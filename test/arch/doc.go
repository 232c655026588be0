// SPDX-License-Identifier: Apache-2.0

// Package arch holds the tests that keep the code in shape: which package may
// import what, which calls are forbidden where, limits of size, comments, what
// the binaries are linked from and how large they are.
//
// A rule is a function over parsed source, and each has a snippet that breaks it
// beside one that does not, so that a rule that can't fail does not pass. The
// package has no code but tests and must not be imported.
package arch
