// SPDX-License-Identifier: Apache-2.0

// Command allod-agent is the agent of Allod: the modes that serve a node, and
// the verbs of an operator. Linked as kubectl-allod it is a kubectl plugin with
// the same verbs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/allod/allod/agent/ctl"
	"github.com/allod/allod/agent/node"
)

// version is set by the linker: -X main.version=v1.2.3.
var version = "dev"

// stdio is what a run reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	os.Exit(mainCode())
}

func mainCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills
	return run(ctx, os.Args, stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr})
}

// run executes one command line, args[0] included, and returns the exit code.
func run(ctx context.Context, args []string, io stdio) int {
	root := newRoot(filepath.Base(args[0]))
	root.SetIn(io.in)
	root.SetOut(io.out)
	root.SetErr(io.err)
	root.SetArgs(args[1:])

	// A command line that cobra refuses never reaches its command.
	reached := false
	onReach(root, func() { reached = true })

	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !reached {
		err = ctl.UsageError{Err: err}
	}
	return report(io.err, cmd, err)
}

// onReach has fn called before any command of the tree runs.
func onReach(cmd *cobra.Command, fn func()) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			fn()
			return run(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		onReach(c, fn)
	}
}

// report tells the user about err and returns the exit code that stands for it.
func report(w io.Writer, cmd *cobra.Command, err error) int {
	code := ctl.ExitCode(err)
	if code == ctl.ExitOK || code == ctl.ExitProblems || errors.Is(err, node.ErrReported) {
		return code // what there is to say has been printed
	}
	fmt.Fprintf(w, "%s: %v\n", cmd.CommandPath(), err)
	if errors.As(err, new(ctl.UsageError)) {
		fmt.Fprintf(w, "Run '%s --help' for usage.\n", cmd.CommandPath())
	}
	return code
}

// newRoot builds the tree of commands. name is what the binary was called as.
func newRoot(name string) *cobra.Command {
	root := &cobra.Command{
		Use:   "allod-agent",
		Short: "IP address management for Kubernetes: node modes and operator verbs",
		Long: `allod-agent manages the IP addresses of a Kubernetes cluster.

Linked as kubectl-allod on the PATH it answers to "kubectl allod" with the same verbs.

Exit codes: 0 success, 1 error, 2 wrong usage, 3 check found problems.`,
		Version:           buildVersion(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE: func(*cobra.Command, []string) error {
			return ctl.UsageError{Err: errors.New("a command is required")}
		},
	}
	if name == "kubectl-allod" {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl allod"}
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(modes()...)
	root.AddCommand(ctl.Commands()...)
	root.AddCommand(&cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), buildVersion())
			return err
		},
	})
	return root
}

// modes are the commands that serve rather than answer: each is built by the
// package that runs it. A mode does not take the operator's flags.
func modes() []*cobra.Command {
	return []*cobra.Command{node.DirectCommand(version)}
}

// buildVersion is the version with what the toolchain recorded about the build.
func buildVersion() string {
	v := fmt.Sprintf("allod-agent %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v += " commit " + s.Value
		}
	}
	return v
}
