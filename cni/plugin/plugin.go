// SPDX-License-Identifier: Apache-2.0

// Package plugin is the CNI side of Allod: it decodes the network configuration
// and CNI_ARGS, asks a Backend, and prints the result. The small binary allod and
// direct mode (allod-agent cni) run this same code over different backends. It
// decides masks and nothing else about addresses, opens no store, and never logs
// or repeats its input.
package plugin

import (
	"context"

	"github.com/allod/allod/cni/agentapi"
)

// Plugin is one CNI IPAM plugin.
type Plugin struct {
	// Version is the program's, for the about text.
	Version string
	// Backend gives the backend that serves one request under configuration c. It
	// is not called for VERSION. Its error ends the request like a backend's own.
	Backend func(ctx context.Context, c Conf) (agentapi.Backend, error)
}

// Main serves the one request that environment and stdin describe, prints result
// or error to stdout, and returns the exit code.
func (p Plugin) Main(ctx context.Context) int {
	return 1
}
