// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/allod/allod/test/fixture"
)

// What TestMain prepares once for all tests.
var (
	workspace  *fixture.Workspace
	moduleRoot string
	binDir     string // allod and allod-agent
	cniDir     string // the reference plugins
)

// TestMain takes the binaries from ALLOD_BIN, which the Makefile may set to what
// it built, or else builds them; the reference plugins are in CNI_PATH.
func TestMain(m *testing.M) {
	code, err := prepare(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "netns:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func prepare(m *testing.M) (code int, err error) {
	ctx := context.Background()
	if os.Geteuid() != 0 {
		return 0, errors.New("network namespaces need root: run `make test-netns` as root")
	}
	if cniDir = os.Getenv("CNI_PATH"); cniDir == "" {
		return 0, errors.New("CNI_PATH is not set to the reference plugins: run `make test-netns`")
	}
	if err := fixture.NeedFiles(cniDir, "make cni-plugins", "ptp", "bridge", "macvlan", "host-local"); err != nil {
		return 0, err
	}
	if workspace, err = fixture.OpenWorkspace(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, workspace.Close()) }()
	if moduleRoot, err = fixture.ModuleRoot(ctx); err != nil {
		return 0, err
	}
	if binDir = os.Getenv("ALLOD_BIN"); binDir == "" {
		if binDir, err = os.MkdirTemp("", "allod-netns-"); err != nil { // /run may be noexec
			return 0, err
		}
		defer os.RemoveAll(binDir)
		if err := fixture.Build(ctx, moduleRoot, binDir); err != nil {
			return 0, err
		}
	}
	if err := fixture.NeedFiles(binDir, "make build", "allod", "allod-agent"); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
