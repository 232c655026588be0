// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/allod/allod/agent/config"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

func applyCommand() *cobra.Command {
	var ds config.Datastore
	var files []string
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or change pools, reservations and the configuration",
		Long: `Make the datastore hold the objects of the manifests: IPPool, IPReservation and
IPAMConfiguration of ipam.allod.io/v1alpha1, as YAML or JSON. A bolt datastore is
created when it does not exist.

Every document is read and checked first. With bolt all objects are then written
in one transaction: when any of them is refused, nothing has changed. On Kubernetes
the API server judges all of them before it is asked to store the first; should a
write fail all the same, what was written is reported, and to apply the same
manifests again completes it. An object is replaced as a whole: a field that the
manifest leaves out goes back to its default. Objects that no manifest names stay
as they are. Labels, annotations and status of a manifest are ignored; those that a
stored object has stay.

On Kubernetes apply also decides which pools may hand out addresses, for all pools
that there are, and computes the labels of the blocks that the objects concern.

The cidr of a pool cannot change, its blockSize not while blocks of another size
exist, and its gateway not to an address in use. A pool that is stored but hands out
nothing, because it overlaps an older pool or blocks of another size, is warned
about: the exit code is 0, and "check" reports it as a problem.`,
		Example: `  allod-agent apply -f pools.yaml
  allod-agent apply -f /etc/allod/manifests -f site.yaml
  cat pools.yaml | allod-agent apply -f -`,
		Args: noArgs("apply takes its manifests with -f"),
		RunE: func(cmd *cobra.Command, _ []string) error { return runApply(cmd, ds, files) },
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil,
		"file or folder with manifests, - for standard input (repeatable, required)")
	withDatastore(cmd, &ds)
	return cmd
}

func runApply(cmd *cobra.Command, ds config.Datastore, files []string) error {
	if err := checkSources(files); err != nil {
		return UsageError{Err: err}
	}
	ctx := cmd.Context()
	objects, err := interruptible(ctx, func() ([]v1alpha1.Object, error) {
		return readManifests(files, cmd.InOrStdin())
	})
	if err != nil {
		return nothingChanged(err)
	}
	st, err := open(ds, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	announce(cmd.ErrOrStderr(), st)
	done, err := st.apply(ctx, objects, progressOf(cmd))
	return errors.Join(reportApplied(cmd.OutOrStdout(), cmd.ErrOrStderr(), done), err)
}

// interruptible returns what read returns, or the error of ctx when that ends
// first: a terminal or pipe may keep its reader waiting for ever. The reader that
// is left behind ends with the process.
func interruptible[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := read()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// nothingChanged wraps what is wrong with the manifests: one error on the same
// line, several on lines of their own.
func nothingChanged(err error) error {
	sep := " "
	if strings.Contains(err.Error(), "\n") {
		sep = "\n"
	}
	return fmt.Errorf("nothing was changed:%s%w", sep, err)
}

func checkSources(files []string) error {
	stdin := 0
	for _, f := range files {
		switch f {
		case "":
			return fmt.Errorf("-f: empty; want a file, a folder or -")
		case "-":
			stdin++
		}
	}
	switch {
	case len(files) == 0:
		return fmt.Errorf("-f FILE is required")
	case stdin > 1:
		return fmt.Errorf("-f -: standard input can be read only once")
	}
	return nil
}

// reportApplied says what happened to each object, and warns about pools that
// hand out nothing.
func reportApplied(out, errOut io.Writer, done []applied) error {
	var lines, warnings strings.Builder
	for _, a := range done {
		fmt.Fprintf(&lines, "%s %s\n", a.ref, a.verb)
		if a.warning != "" {
			fmt.Fprintf(&warnings, "warning: %s %s\n", a.ref, a.warning)
		}
	}
	if _, err := io.WriteString(out, lines.String()); err != nil {
		return fmt.Errorf("write output (what was applied stays): %w", err)
	}
	_, _ = io.WriteString(errOut, warnings.String()) // nowhere left to report to
	return nil
}
