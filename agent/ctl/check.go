// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"fmt"
	"io"
	"slices"
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
		Long: `Look at every object of the datastore and report what contradicts itself: each
problem with what, where, why it matters and what to do. A notice is work under way,
or cut short by a crash, that needs nobody. check never changes the datastore.

With bolt everything is of one moment. On Kubernetes it cannot be: there, what two
objects contradict each other in is reported only if it is still so when check looks
again two seconds later.

Exit code 3 when there is a problem, 0 when there is none or there are only notices.`,
		Example: `  allod-agent check
  allod-agent check -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := open(ds, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			p := progressOf(cmd)
			r, err := audited(cmd.Context(), st, p)
			p.done()
			if err != nil {
				return err
			}
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

// lookAgain is how long after the first look check takes the second one. A claim, a
// release or an admission takes a few writes.
const lookAgain = 2 * time.Second

// audited returns the report on a store. What objects that were read at different
// moments contradict each other in counts only if a second look shows it as well.
func audited(ctx context.Context, st store, p *progress) (Report, error) {
	s, err := st.snapshot(ctx, p)
	if err != nil {
		return Report{}, err
	}
	r := Audit(s)
	if _, moments := st.(*cluster); moments && r.between() {
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return Report{}, context.Cause(ctx)
		}
		if s, err = st.snapshot(ctx, p); err != nil {
			return Report{}, err
		}
		r = Audit(s).seenIn(r)
	}
	r.Summary.count(s.asOf(s.At))
	return r, nil
}

// between reports whether any problem of r is one between objects.
func (r Report) between() bool {
	return slices.ContainsFunc(r.Problems, func(p Problem) bool { return !ofOneObject[p.Code] })
}

// seenIn returns r without the problems between objects that an earlier report does
// not have.
func (r Report) seenIn(earlier Report) Report {
	r.Problems = slices.DeleteFunc(slices.Clone(r.Problems), func(p Problem) bool {
		return !ofOneObject[p.Code] && !slices.ContainsFunc(earlier.Problems, func(e Problem) bool {
			return e.Code == p.Code && e.Object == p.Object
		})
	})
	r.Summary.tally(r.Problems)
	return r
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

// are is the verb that goes with n things.
func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func count2(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
