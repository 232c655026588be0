// SPDX-License-Identifier: Apache-2.0

// Package bench measures what the design rests on, each figure against another one of
// the same run, because machines differ. Its tests run in a short form with the other
// tests on an API server, print figures and judge no time by the clock; `make bench`
// runs the long form.
package bench
