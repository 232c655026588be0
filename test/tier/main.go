// SPDX-License-Identifier: Apache-2.0

// Command tier runs one tier of the tests with `go test -json` and counts what
// really ran: a tier fails when a test fails or is skipped, when a package does
// not build, and when nothing ran at all.
//
//	go run ./test/tier -name unit -- ./ipam/... -skip Fault
//	go run ./test/tier -table .tools/test-summary
//
// It must not decide which tests belong to a tier: the Makefile does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "tier:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("tier", flag.ContinueOnError)
	name := flags.String("name", "", "name of the tier; what follows -- are packages and flags for go test")
	summary := flags.String("summary", "", "file to which the result is appended")
	table := flags.String("table", "", "print this summary file as a table, run nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *table != "" {
		lines, err := os.ReadFile(*table)
		if err != nil {
			return err
		}
		return printTable(out, string(lines))
	}
	if *name == "" || flags.NArg() == 0 {
		return errors.New("usage: tier -name NAME [-summary FILE] -- PACKAGES AND FLAGS")
	}

	start := time.Now()
	tally, goErr := goTest(ctx, flags.Args(), out)
	took := time.Since(start)
	if *summary != "" {
		if err := appendLine(*summary, summaryLine(*name, tally, took)); err != nil {
			return errors.Join(goErr, err)
		}
	}
	fmt.Fprintf(out, "\n%s: %d tests and %d subtests in %d packages, %.1f min\n", *name, tally.Tests(), tally.Subtests, tally.Packages, took.Minutes())
	fmt.Fprintf(out, "%s: %s\n", *name, tally)
	return tally.Verdict(goErr)
}

// goTest runs go test and reports its events to out while they come. The tally
// is complete even when err, go test's own failure, is not nil.
func goTest(ctx context.Context, args []string, out io.Writer) (Tally, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-race", "-shuffle=on"}, args...)...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return Tally{}, err
	}
	if err := cmd.Start(); err != nil {
		return Tally{}, fmt.Errorf("start go test: %w", err)
	}
	tally, readErr := Read(stdout, out)
	if err := cmd.Wait(); err != nil {
		return tally, fmt.Errorf("go test: %w", err)
	}
	return tally, readErr
}

func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}
