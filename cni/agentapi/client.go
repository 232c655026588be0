// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
)

// Client is the Backend at the other end of a unix socket. Each call opens its
// own connection, sends one request and never repeats it; the deadline is ctx's
// alone. An error the agent answered is an *Error, as it sent it. Any other has
// ErrNotConnected or ErrNoAnswer in its chain, and its code is try-again.
//
// Safe for concurrent use.
type Client struct {
	socket string
	http   http.Client
}

var _ Backend = (*Client)(nil)

// NewClient makes a client of the agent that listens on socket. It does not
// connect.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", socket)
		if err != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("%w: %w", ErrNotConnected, err)
		}
		return conn, err
	}
	return &Client{socket: socket, http: http.Client{CheckRedirect: asItIs, Transport: &http.Transport{
		DialContext:            dial,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}}}
}

// asItIs follows no redirect: a request is sent once.
func asItIs(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Add asks for an attachment's addresses.
func (c *Client) Add(ctx context.Context, r AddRequest) (AddReply, error) {
	return call[AddReply](ctx, c, pathAdd, r)
}

// Check compares an attachment with what the store says.
func (c *Client) Check(ctx context.Context, r CheckRequest) error {
	_, err := call[none](ctx, c, pathCheck, r)
	return err
}

// Del releases an attachment.
func (c *Client) Del(ctx context.Context, r DelRequest) error {
	_, err := call[none](ctx, c, pathDel, r)
	return err
}

// GC releases all attachments of a network but the valid ones.
func (c *Client) GC(ctx context.Context, r GCRequest) error {
	_, err := call[none](ctx, c, pathGC, r)
	return err
}

// Status asks whether the agent can serve an Add of a network.
func (c *Client) Status(ctx context.Context, r StatusRequest) error {
	_, err := call[none](ctx, c, pathStatus, r)
	return err
}

// call posts one request and decodes the one answer.
func call[Reply any](ctx context.Context, c *Client, path string, r request) (Reply, error) {
	var reply, zero Reply
	if err := r.validate(); err != nil {
		return zero, &Error{Code: CodeInternal, Msg: "request to the agent", Details: err.Error()}
	}
	body, err := json.Marshal(r)
	if err != nil {
		return zero, fmt.Errorf("encode request to the agent: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		return zero, fmt.Errorf("request to the agent: %w", err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := c.http.Do(req)
	if err != nil {
		return zero, c.lost(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return zero, c.refusal(resp)
	}
	if err := decode(resp.Body, maxReply, &reply); err != nil {
		return zero, c.lost(fmt.Errorf("reply: %w", err))
	}
	return reply, nil
}

// lost is the error of a call that got no answer that can be understood.
func (c *Client) lost(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the made-up URL says nothing
	}
	if errors.Is(err, ErrNotConnected) {
		return fmt.Errorf("agent at %s: %w", c.socket, err)
	}
	return fmt.Errorf("agent at %s: %w: %w", c.socket, ErrNoAnswer, err)
}

// refusal is the error that a response other than OK carries.
func (c *Client) refusal(resp *http.Response) error {
	var e Error
	if err := decode(resp.Body, maxReply, &e); err == nil && e.Code != 0 {
		return &e
	}
	if resp.StatusCode == http.StatusNotFound {
		return c.lost(errors.New("it does not know this request: update allod-agent"))
	}
	return c.lost(fmt.Errorf("it said only %s: see its log", resp.Status))
}
