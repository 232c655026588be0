// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/dynamic"

	"github.com/allod/allod/test/fixture"
	"github.com/allod/allod/test/kube/apiserver"
)

// The length of the measurements; `make bench` sets both.
var (
	rounds = flag.Int("rounds", 3, "rounds, in each of which everything is measured in turn")
	writes = flag.Int("writes", 50, "writes of one round")
)

// What TestMain prepares once for all tests.
var (
	server *apiserver.Server
	api    dynamic.Interface
)

func TestMain(m *testing.M) {
	os.Exit(apiserver.Main(m, func(ctx context.Context, s *apiserver.Server) error {
		root, err := fixture.ModuleRoot(ctx)
		if err != nil {
			return err
		}
		path := filepath.Join(root, "manifests", "crds", "ipam.allod.io_ipamblocks.yaml")
		manifest, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		nested, err := nestedCRD(manifest)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		server = s
		if api, err = dynamic.NewForConfig(s.Config()); err != nil {
			return err
		}
		if err := s.Apply(ctx, manifest); err != nil {
			return err
		}
		return s.Apply(ctx, nested)
	}))
}
