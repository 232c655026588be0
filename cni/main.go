// SPDX-License-Identifier: Apache-2.0

// Command allod is the CNI IPAM plugin: it hands each request to the node agent,
// or, where no agent listens, becomes `allod-agent cni`, which serves it in
// process. It holds no state and opens no store.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/allod/allod/cni/agentapi"
	"github.com/allod/allod/cni/plugin"
)

var version = "dev" // set by -ldflags "-X main.version=…"

func main() { os.Exit(run(context.Background(), os.Args[1:])) }

// run serves one CNI request, or prints the version. A CNI plugin has no other
// arguments. They are refused because allod, named as its own agentBinary, would
// otherwise start itself for ever.
func run(ctx context.Context, args []string) int {
	switch {
	case len(args) == 0:
		return plugin.Plugin{Version: version, Backend: backend}.Main(ctx)
	case len(args) == 1 && args[0] == "--version":
		fmt.Println("allod", version)
		return 0
	default:
		return plugin.Refuse(&agentapi.Error{
			Code:    agentapi.CodeBadConfig,
			Msg:     "allod takes no arguments but --version",
			Details: "if this is the agentBinary of a network configuration, name allod-agent there",
		})
	}
}

func backend(_ context.Context, c plugin.Conf) (agentapi.Backend, error) {
	return fallback{
		agent:  agentapi.NewClient(c.Socket),
		direct: func(agentGone error) error { return execAgent(c, agentGone) },
	}, nil
}
