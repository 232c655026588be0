// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/allod/allod/test/fixture"
	"github.com/allod/allod/test/kube/apiserver"
)

// What TestMain prepares once for all tests.
var (
	workspace  *fixture.Workspace
	moduleRoot string
	binDir     string // allod and allod-agent
	cniDir     string // the reference plugins
	shared     *apiserver.Server
)

// TestMain takes the binaries from ALLOD_BIN, which the Makefile may set to what
// it built, or else builds them; the reference plugins are in CNI_PATH.
func TestMain(m *testing.M) {
	code, err := prepare(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/kube/direct:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func prepare(m *testing.M) (code int, err error) {
	ctx := context.Background()
	if os.Geteuid() != 0 {
		return 0, errors.New("network namespaces need root: run `make test-kube` as root")
	}
	if cniDir = os.Getenv("CNI_PATH"); cniDir == "" {
		return 0, errors.New("CNI_PATH is not set to the reference plugins: run `make test-kube`")
	}
	if err := fixture.NeedFiles(cniDir, "make cni-plugins", "ptp"); err != nil {
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
		if binDir, err = os.MkdirTemp("", "allod-direct-"); err != nil {
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
	return apiserver.Main(m, func(ctx context.Context, s *apiserver.Server) error {
		shared = s
		return install(ctx, s)
	}), nil
}

// install applies what a cluster with Allod has: the kinds, and the nodes' account.
func install(ctx context.Context, s *apiserver.Server) error {
	files, err := filepath.Glob(filepath.Join(moduleRoot, "manifests", "crds", "*.yaml"))
	if err != nil {
		return err
	}
	return s.ApplyFile(ctx, append(files, rbacFile())...)
}

func rbacFile() string { return filepath.Join(moduleRoot, "manifests", "rbac", "node.yaml") }
