// SPDX-License-Identifier: Apache-2.0

// Command demo shows Allod at its main job on this machine: three pods, each a
// network namespace, get their addresses through the reference plugin ptp and
// allod, reach each other, and leave nothing behind. `make demo` runs it.
//
// Everything happens in network namespaces of its own and in a temporary store.
// It exits non-zero when anything is not as it should be, above all when an
// address is left at the end. PLANT=1 skips one pod's DEL, to show that a
// leftover is found.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/allod/allod/test/fixture"
)

func main() {
	os.Exit(mainCode())
}

func mainCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "\ndemo: interrupted; namespaces and store are removed")
		return 130
	case err != nil:
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		return 1
	}
	return 0
}

type options struct {
	bin     string // folder of allod and allod-agent
	plugins string // folder of the reference plugins
	plant   bool
}

func run(ctx context.Context) (err error) {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder of allod and allod-agent (`make build`)")
	flag.StringVar(&o.plugins, "plugins", os.Getenv("CNI_PATH"), "folder of the reference plugins (`make cni-plugins`); default: CNI_PATH")
	flag.BoolVar(&o.plant, "plant", os.Getenv("PLANT") == "1", "skip one pod's DEL, to show that a leftover is found; also by PLANT=1")
	flag.Parse()
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("making network namespaces needs root: run `sudo make demo`")
	}
	if o.plugins == "" {
		return errors.New("CNI_PATH is not set to the reference plugins: run `make demo`, which builds them once")
	}
	if err := errors.Join(
		fixture.NeedFiles(o.bin, "make build", "allod", "allod-agent"),
		fixture.NeedFiles(o.plugins, "make cni-plugins", "ptp"),
	); err != nil {
		return err
	}
	w, err := fixture.OpenWorkspace()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	d, err := newDemo(w, o)
	if err != nil {
		return err
	}
	return d.run(ctx)
}
