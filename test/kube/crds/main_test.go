// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/allod/allod/test/fixture"
	"github.com/allod/allod/test/kube/apiserver"
)

// What TestMain prepares once for all tests.
var (
	server    *apiserver.Server
	manifests string // the folder of that name
)

func TestMain(m *testing.M) {
	os.Exit(apiserver.Main(m, func(ctx context.Context, s *apiserver.Server) error {
		root, err := fixture.ModuleRoot(ctx)
		if err != nil {
			return err
		}
		server, manifests = s, filepath.Join(root, "manifests")
		files, err := filepath.Glob(filepath.Join(manifests, "crds", "*.yaml"))
		if err != nil {
			return err
		}
		return s.ApplyFile(ctx, files...)
	}))
}
