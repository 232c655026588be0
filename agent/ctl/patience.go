// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// callTimeout is how long an API server may take for one call. A page of a list, the
// longest, takes it a second.
const callTimeout = time.Minute

// patience bounds each call, its body included: an operator is told that a server hangs.
type patience struct {
	next    http.RoundTripper
	timeout time.Duration
}

// noAnswer is the error of a call that took too long.
type noAnswer struct{ after time.Duration }

func (e noAnswer) Error() string { return fmt.Sprintf("no answer within %v", e.after) }
func (noAnswer) Timeout() bool   { return true }
func (noAnswer) Temporary() bool { return true }

// RoundTrip implements http.RoundTripper.
func (p patience) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), p.timeout, noAnswer{p.timeout})
	resp, err := p.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		if r.Context().Err() == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		cancel()
		return nil, err
	}
	resp.Body = body{resp.Body, cancel}
	return resp, nil
}

// body ends the call's context with the answer.
type body struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
