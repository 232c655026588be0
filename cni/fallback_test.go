// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allod/allod/cni/agentapi"
)

// silent is an agent that takes a DEL and answers nothing.
type silent struct{ recorder }

func (*silent) Del(ctx context.Context, _ agentapi.DelRequest) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", agentapi.ErrNoAnswer, ctx.Err())
}

// INV-10: an agent that hangs holds a DEL up, but not until the runtime gives up.
func TestDelDoesNotWaitForASilentAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		var direct time.Duration
		f := fallback{agent: &silent{}, direct: func(error) error { direct = time.Since(started); return nil }}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		if err := f.Del(ctx, agentapi.DelRequest{}); err != nil || direct != delTimeout {
			t.Errorf("direct mode after %v, %v", direct, err)
		}
	})
}

// An answer of the agent is final, also for DEL and also if it is a refusal.
func TestAnAnswerStands(t *testing.T) {
	refusal := &agentapi.Error{Code: agentapi.CodeTryAgain, Msg: "store away"}
	for _, want := range []error{nil, refusal} {
		f := fallback{agent: &recorder{err: want}, direct: func(error) error { return errors.New("went direct") }}
		_, addErr := f.Add(t.Context(), agentapi.AddRequest{})
		for verb, err := range map[string]error{
			"ADD":    addErr,
			"CHECK":  f.Check(t.Context(), agentapi.CheckRequest{}),
			"DEL":    f.Del(t.Context(), agentapi.DelRequest{}),
			"GC":     f.GC(t.Context(), agentapi.GCRequest{}),
			"STATUS": f.Status(t.Context(), agentapi.StatusRequest{}),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", verb, err, want)
			}
		}
	}
}
