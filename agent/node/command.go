// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/allod/allod/agent/config"
	"github.com/allod/allod/cni/plugin"
)

// ErrReported says that a CNI error has been printed as the specification wants
// it; nothing is left to say.
var ErrReported = errors.New("CNI error reported")

// DirectCommand is "allod-agent cni": the plugin allod executes it when no agent
// answers, with the environment and stdin of a CNI call.
func DirectCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "cni",
		Short: "Serve one CNI call in this process, without a node agent (run by allod)",
		Long: `Serve one CNI call in this process, without a node agent.

The plugin allod runs this when it cannot reach the agent's socket. The call is in
the environment (CNI_COMMAND and the other CNI_ variables) and on standard input;
the result is printed as the CNI specification says.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := config.CallLog()
			if err != nil {
				slog.Warn("calls are not logged", "err", err) // it must not end a request
			}
			p := plugin.Plugin{Version: version, Backend: DirectMode{Version: version, CallLog: log}.Backend}
			if code := p.Main(cmd.Context()); code != 0 {
				return ErrReported
			}
			return nil
		},
	}
}
