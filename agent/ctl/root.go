// SPDX-License-Identifier: Apache-2.0

// Package ctl holds the operator's verbs: apply, delete, show and check. It reads a
// snapshot of a store, or changes it, and prints. Of an embedded store a snapshot is of
// one moment and a change one transaction; on an API server each kind and each object
// is by itself, and what that takes is in the files that begin with cluster.
//
// Its rules are the library's own: what an address counts as is pool.UsageOf,
// what a pool may do is pool.Admit, what a block must be is Block.Check (INV-13).
// show and check never write (INV-12). The package must not reach the operating
// system but for the files it is told to read and the datastore, and must not exit
// the process.
package ctl

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/allod/allod/agent/config"
)

// The exit codes of the agent.
const (
	ExitOK       = 0
	ExitError    = 1
	ExitUsage    = 2
	ExitProblems = 3
)

// ErrProblems is returned by check when it found any problem; the problems are
// already printed.
var ErrProblems = errors.New("check found problems")

// UsageError is a command line that makes no sense.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e UsageError) Unwrap() error { return e.Err }

// ExitCode returns the exit code that stands for err.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrProblems):
		return ExitProblems
	case errors.As(err, new(UsageError)):
		return ExitUsage
	}
	return ExitError
}

// noArgs refuses arguments and says what is wanted instead.
func noArgs(instead string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("argument %q is not expected: %s", args[0], instead)
		}
		return nil
	}
}

// Commands returns the operator's verbs.
func Commands() []*cobra.Command {
	return []*cobra.Command{applyCommand(), deleteCommand(), showCommand(), checkCommand()}
}

// withDatastore gives cmd the datastore flags; ds holds them, loaded, when the
// verb runs.
func withDatastore(cmd *cobra.Command, ds *config.Datastore) {
	ds.AddFlags(cmd)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := ds.Load(cmd); err != nil {
			return UsageError{Err: err}
		}
		return run(cmd, args)
	}
}
