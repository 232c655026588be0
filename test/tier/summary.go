// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// summaryLine is a tier's line of the summary file: name, passed, failed,
// skipped, seconds, separated by tabs. The Makefile writes the lines of steps
// that run no tests itself, with "-" for the counts.
func summaryLine(name string, t Tally, took time.Duration) string {
	return fmt.Sprintf("%s\t%d\t%d\t%d\t%.0f\n", name, t.Passed, t.Failed+len(t.Broken), len(t.SkippedTests), took.Seconds())
}

// printTable writes the summary file's lines as a table with minutes and totals.
func printTable(out io.Writer, lines string) error {
	var total [4]float64
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\ntier\tpassed\tfailed\tskipped\tminutes\t")
	for line := range strings.Lines(lines) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 5 {
			return fmt.Errorf("summary line %q: want 5 fields, have %d", line, len(f))
		}
		for i, field := range f[1:] {
			if field == "-" {
				continue
			}
			n, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return fmt.Errorf("summary line %q: field %d: %w", line, i+2, err)
			}
			total[i] += n
		}
		seconds, err := strconv.ParseFloat(f[4], 64)
		if err != nil {
			return fmt.Errorf("summary line %q: seconds: %w", line, err)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.1f\t\n", f[0], f[1], f[2], f[3], seconds/60)
	}
	fmt.Fprintf(w, "total\t%.0f\t%.0f\t%.0f\t%.1f\t\n", total[0], total[1], total[2], total[3]/60)
	return w.Flush()
}
