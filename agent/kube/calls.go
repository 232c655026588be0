// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"net/http"
	"os"
	"syscall"

	"k8s.io/client-go/rest"
)

// LogCalls has every call of clients made from cfg appended to the file at path: one
// line "METHOD STATUS PATH", with 0 for a call that was not answered. Bodies, headers
// and credentials are not written. Several processes may share the file. What cannot
// be written is lost: the log must not end a request.
func LogCalls(cfg *rest.Config, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("log of API calls: %w", err)
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &callLog{next: next, to: f} })
	return nil
}

type callLog struct {
	next http.RoundTripper
	to   *os.File // the process's end closes it
}

// RoundTrip implements http.RoundTripper.
func (l *callLog) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	status := 0
	if err == nil {
		status = resp.StatusCode
	}
	// One write of a line is not interleaved with another's.
	_, _ = fmt.Fprintf(l.to, "%s %d %s\n", r.Method, status, r.URL.RequestURI())
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport below.
func (l *callLog) WrappedRoundTripper() http.RoundTripper { return l.next }
