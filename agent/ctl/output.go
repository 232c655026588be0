// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// format is the value of the output flag.
type format string

// The output formats.
const (
	formatTable format = "table"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
)

// String and Type are what pflag.Value asks for.
func (f *format) String() string { return string(*f) }

// Type is how usage names the value.
func (f *format) Type() string { return "format" }

// Set accepts one of the formats.
func (f *format) Set(s string) error {
	switch format(s) {
	case formatTable, formatJSON, formatYAML:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("want %s, %s or %s", formatTable, formatJSON, formatYAML)
}

func (f *format) addFlag(cmd *cobra.Command) {
	*f = formatTable
	cmd.Flags().VarP(f, "output", "o", "table, json or yaml")
}

// write prints v as f says; table writes the tab-separated lines of a table.
// Nothing is written unless everything could be formatted.
func (f format) write(w io.Writer, v any, table func(io.Writer)) error {
	var buf bytes.Buffer
	switch f {
	case formatJSON:
		enc := json.NewEncoder(&buf)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			return fmt.Errorf("format as JSON: %w", err)
		}
	case formatYAML:
		y, err := yaml.Marshal(v)
		if err != nil {
			return fmt.Errorf("format as YAML: %w", err)
		}
		buf.Write(y)
	default:
		table(&buf)
	}
	if _, err := w.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// columns prints rows under a header, aligned. Cells that hold nothing show "-".
func columns(w io.Writer, header string, rows [][]string) {
	var buf bytes.Buffer
	tw := tabwriter.NewWriter(&buf, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, strings.Join(strings.Fields(header), "\t"))
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, c := range r {
			cells[i] = cell(c)
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	_ = tw.Flush() // writes to memory
	for line := range strings.Lines(buf.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// cell makes s fit for a table: stored text may hold anything, also what would
// break the columns or steer a terminal.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}

// printable replaces what is not printable by a question mark.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\u2028' || r == '\u2029' {
			return '?'
		}
		return r
	}, s)
}

// instant prints a time; the zero time is nothing.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
