// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/allod/allod/agent/config"
)

func checkCommand() *cobra.Command {
	var ds config.Datastore
	var out format
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look for what is wrong in the datastore",
		Long: `Look at every object of the datastore as it is at one moment and report what
contradicts itself: each problem with what, where, why it matters and what to do.
A notice is work under way, or cut short by a crash, that needs nobody.
check never changes the datastore.

Exit code 3 when there is a problem, 0 when there is none or there are only notices.`,
		Example: `  allod-agent check
  allod-agent check -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := readSnapshot(cmd.Context(), ds)
			if err != nil {
				return err
			}
			r := Audit(s)
			r.Summary.count(s.asOf(time.Now()))
			err = out.write(cmd.OutOrStdout(), r, func(w io.Writer) { writeReport(w, r) })
			if err == nil && r.Summary.Problems > 0 {
				err = ErrProblems
			}
			return err
		},
	}
	out.addFlag(cmd)
	withDatastore(cmd, &ds)
	return cmd
}

func writeReport(w io.Writer, r Report) {
	for _, p := range r.Problems {
		fmt.Fprintf(w, "%s %s: %s\n", p.Severity, p.Code, printable(p.Object))
		fmt.Fprintf(w, "  what  %s\n", printable(p.What))
		fmt.Fprintf(w, "  why   %s\n", p.Why)
		fmt.Fprintf(w, "  do    %s\n\n", p.Action)
	}
	s := r.Summary
	fmt.Fprintf(w, "%s, %s: %s, %s, %s, %s, %d allocated, %d cooling\n",
		count(s.Problems, "problem"), count(s.Notices, "notice"),
		count(s.Pools, "pool"), count(s.Reservations, "reservation"),
		count(s.Blocks, "block"), count2(s.Affinities, "affinity", "affinities"), s.Allocated, s.Cooling)
}

func count(n int, what string) string { return count2(n, what, what+"s") }

func count2(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
