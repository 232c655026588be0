// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/allod/allod/agent/config"
	"github.com/allod/allod/agent/ctl"
)

const cliDoc = "../docs/cli.md"

// What stands between "<!-- generated: NAME -->" and "<!-- end -->".
var generated = regexp.MustCompile(`(?s)<!-- generated: ([^>]*) -->\n(.*?)<!-- end -->\n`)

// docs/cli.md describes the commands as they are. -update rewrites its generated
// parts.
func TestCLIDocs(t *testing.T) {
	want := map[string]string{"problems": problemTable()}
	addCommands(want, newRoot("allod-agent"))

	doc := string(readFile(t, cliDoc))
	fresh := doc
	for _, m := range generated.FindAllStringSubmatch(doc, -1) {
		text, ok := want[m[1]]
		if !ok {
			t.Errorf("%s has a part %q, which is no command", cliDoc, m[1])
			continue
		}
		delete(want, m[1])
		fresh = strings.Replace(fresh, m[0], fmt.Sprintf("<!-- generated: %s -->\n%s<!-- end -->\n", m[1], text), 1)
	}
	for name := range want {
		t.Errorf("%s lacks %q: add the lines\n<!-- generated: %s -->\n<!-- end -->\nand run the test with -update", cliDoc, name, name)
	}
	if *update {
		if err := os.WriteFile(cliDoc, []byte(fresh), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(fresh, doc); diff != "" {
		t.Errorf("%s is out of date, run the test with -update (-want +got):\n%s", cliDoc, diff)
	}
}

// addCommands makes the generated part of each command that has something to run.
func addCommands(parts map[string]string, cmd *cobra.Command) {
	if cmd.Hidden {
		return
	}
	if cmd.HasParent() {
		parts[cmd.CommandPath()] = commandText(cmd)
	}
	for _, c := range cmd.Commands() {
		addCommands(parts, c)
	}
}

func commandText(cmd *cobra.Command) string {
	var b bytes.Buffer
	cmd.InitDefaultHelpFlag()
	fmt.Fprintf(&b, "```\n%s\n```\n\n", cmd.UseLine())
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	fmt.Fprintf(&b, "%s\n", long)
	if flags := cmd.NonInheritedFlags(); flags.HasAvailableFlags() {
		b.WriteString("\n| flag | default | |\n|---|---|---|\n")
		flags.VisitAll(func(f *pflag.Flag) { b.WriteString(flagRow(f)) })
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\n```sh\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(cmd.Example, "  "), "\n  ", "\n"))
	}
	return b.String()
}

func flagRow(f *pflag.Flag) string {
	if f.Hidden {
		return ""
	}
	name := "`--" + f.Name + "`"
	if f.Shorthand != "" {
		name = "`-" + f.Shorthand + "`, " + name
	}
	def := ""
	if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" {
		def = "`" + f.DefValue + "`"
	}
	return fmt.Sprintf("| %s | %s | %s |\n", name, def, f.Usage)
}

func problemTable() string {
	var b strings.Builder
	b.WriteString("| code | severity | why it matters | what to do |\n|---|---|---|---|\n")
	for _, p := range ctl.Kinds() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", p.Code, p.Severity, p.Why, p.Action)
	}
	return b.String()
}

// Every field of the JSON and YAML output is described, every exit code and every
// environment variable named.
func TestCLIDocsAreComplete(t *testing.T) {
	doc := string(readFile(t, cliDoc))
	for section, types := range map[string][]any{
		"### Pools":     {ctl.PoolList{}, ctl.PoolRow{}, ctl.Usage{}},
		"### Blocks":    {ctl.BlockList{}, ctl.BlockRow{}},
		"### Addresses": {ctl.AddressList{}, ctl.AddressRow{}},
		"### Report":    {ctl.Report{}, ctl.Summary{}, ctl.Problem{}},
	} {
		_, text, ok := strings.Cut(doc, "\n"+section+"\n")
		if !ok {
			t.Errorf("no section %q", section)
			continue
		}
		text, _, _ = strings.Cut(text, "\n##")
		for _, v := range types {
			for _, name := range jsonNames(reflect.TypeOf(v)) {
				if !strings.Contains(text, "`"+name+"`") {
					t.Errorf("section %q does not describe %s", section, name)
				}
			}
		}
	}
	for _, code := range []int{ctl.ExitOK, ctl.ExitError, ctl.ExitUsage, ctl.ExitProblems} {
		if !strings.Contains(doc, fmt.Sprintf("\n| %d | ", code)) {
			t.Errorf("exit code %d is not in the table", code)
		}
	}
	for _, env := range []string{config.EnvDatastore, config.EnvDatastorePath, config.EnvKubeconfig} {
		if !strings.Contains(doc, "`"+env+"`") {
			t.Errorf("%s is not described", env)
		}
	}
}

// jsonNames are the names of the fields of a struct type, embedded ones not.
func jsonNames(typ reflect.Type) []string {
	var names []string
	for i := range typ.NumField() {
		if f := typ.Field(i); !f.Anonymous {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}
