// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"github.com/allod/allod/cni/agentapi"
)

// delTimeout is how long the agent has for a DEL before direct mode takes over.
const delTimeout = 30 * time.Second

// fallback asks the agent, and direct mode where it may. After a failed connect it
// always may. Once bytes were sent the agent may be at work on the request, and a
// second ADD beside it could give the pod two addresses; so then it may for DEL
// alone, which has the same end however often it is done (INV-10).
type fallback struct {
	agent agentapi.Backend
	// direct serves this process's request in place of the agent. It returns only
	// if that could not be started.
	direct func(agentGone error) error
}

var _ agentapi.Backend = fallback{}

func (f fallback) Add(ctx context.Context, r agentapi.AddRequest) (agentapi.AddReply, error) {
	reply, err := f.agent.Add(ctx, r)
	return reply, f.ifNotConnected(err)
}

func (f fallback) Check(ctx context.Context, r agentapi.CheckRequest) error {
	return f.ifNotConnected(f.agent.Check(ctx, r))
}

func (f fallback) GC(ctx context.Context, r agentapi.GCRequest) error {
	return f.ifNotConnected(f.agent.GC(ctx, r))
}

func (f fallback) Status(ctx context.Context, r agentapi.StatusRequest) error {
	return f.ifNotConnected(f.agent.Status(ctx, r))
}

// Del goes to direct mode when the agent gave no answer. An answer stands, also a
// refusal: the agent has seen more of the store than direct mode would.
func (f fallback) Del(ctx context.Context, r agentapi.DelRequest) error {
	limit, cancel := context.WithTimeout(ctx, delTimeout)
	defer cancel()
	err := f.agent.Del(limit, r)
	if errors.Is(err, agentapi.ErrNoAnswer) {
		return f.direct(err)
	}
	return f.ifNotConnected(err)
}

func (f fallback) ifNotConnected(err error) error {
	if errors.Is(err, agentapi.ErrNotConnected) {
		return f.direct(err)
	}
	return err
}
