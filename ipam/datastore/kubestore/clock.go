// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"net/http"
	"sync"
	"time"
)

// serverClock is the API server's time, learnt from the Date of its answers.
type serverClock struct {
	start time.Time // with its monotonic reading

	mu    sync.Mutex // guards the rest
	known bool
	ahead time.Duration // the server's time is start plus what has passed plus this
}

// Now falls back to this machine's time until the first answer.
func (c *serverClock) Now() time.Time {
	c.mu.Lock()
	known, ahead := c.known, c.ahead
	c.mu.Unlock()
	if !known {
		return time.Now()
	}
	return c.start.Round(0).Add(time.Since(c.start) + ahead)
}

// observe takes in that the server said date in answer to a request, both times of
// which are what has passed since start.
func (c *serverClock) observe(date time.Time, sent, received time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = adjust(c.known, c.ahead, date.Sub(c.start.Round(0)), sent, received)
	c.known = true
}

// adjust returns how far the server is ahead of start. A Date has whole seconds: the
// server's time was in [date, date+1 s) at some moment between sent and received. An
// estimate that allows for this stays, so that the clock does not jitter; another
// one moves the least that does.
func adjust(known bool, ahead, date, sent, received time.Duration) time.Duration {
	low, high := date-received, date+time.Second-sent
	if !known {
		return low
	}
	return min(max(ahead, low), high)
}

// watch lets the clock see every answer that next gets.
func (c *serverClock) watch(next http.RoundTripper) http.RoundTripper {
	return &observer{next: next, clock: c}
}

type observer struct {
	next  http.RoundTripper
	clock *serverClock
}

// RoundTrip implements http.RoundTripper.
func (o *observer) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Since(o.clock.start)
	resp, err := o.next.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		o.clock.observe(date, sent, time.Since(o.clock.start))
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport below.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }
