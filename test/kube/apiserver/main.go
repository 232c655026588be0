// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// Main runs the tests of a package on one server and returns the exit code for
// os.Exit. use gets the server, ready, before the first test: it applies what all
// tests need and keeps the pointer. The server and its files are gone afterwards.
func Main(m *testing.M, use func(context.Context, *Server) error) int {
	code, err := runMain(m, use)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/kube:", err)
		return 1
	}
	return code
}

func runMain(m *testing.M, use func(context.Context, *Server) error) (int, error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "allod-kube-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	s, err := Start(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	if err := use(ctx, s); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// New runs a server for one test and stops it when the test ends.
func New(t testing.TB) *Server {
	t.Helper()
	s, err := Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}
