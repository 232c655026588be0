// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// recorder is a Backend that keeps the last request and answers as told.
type recorder struct {
	got   any
	reply AddReply
	err   error
}

func (r *recorder) Add(_ context.Context, q AddRequest) (AddReply, error) {
	r.got = q
	return r.reply, r.err
}
func (r *recorder) Check(_ context.Context, q CheckRequest) error   { r.got = q; return r.err }
func (r *recorder) Del(_ context.Context, q DelRequest) error       { r.got = q; return r.err }
func (r *recorder) GC(_ context.Context, q GCRequest) error         { r.got = q; return r.err }
func (r *recorder) Status(_ context.Context, q StatusRequest) error { r.got = q; return r.err }

var (
	eth0    = Attachment{Network: "k8s-pod-network", ContainerID: "3f9c", IfName: "eth0"}
	web0    = Pod{Namespace: "shop", Name: "web-0", UID: "95f1"}
	compare = cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}
)

// listen makes a unix socket that closes with the test.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// serve runs Serve until the test ends and gives a client of it.
func serve(t *testing.T, b Backend) *Client {
	t.Helper()
	l := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, b, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return NewClient(l.Addr().String())
}

func TestEveryRequestArrivesAsSent(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.64.0.5"), netip.MustParseAddr("fd00::5")
	add := AddRequest{
		Attachment: eth0, Pod: web0, Num4: 1, Num6: 1, Addrs: []netip.Addr{v4, v6},
		Pools4: []string{"a", "10.0.0.0/8"}, Pools6: []string{"b"}, NeedGateway: true, BlockMask: true,
	}
	reply := AddReply{Addresses: []Address{
		{Addr: v4, Block: netip.MustParsePrefix("10.64.0.0/26"), Pool: netip.MustParsePrefix("10.64.0.0/16"), Gateway: netip.MustParseAddr("10.64.0.1")},
		{Addr: v6, Block: netip.MustParsePrefix("fd00::/122"), Pool: netip.MustParsePrefix("fd00::/64")},
	}}
	check := CheckRequest{Attachment: eth0, Pod: web0, Addrs: []netip.Addr{v4, v6}}
	del := DelRequest{Attachment: eth0}
	gc := GCRequest{Network: eth0.Network, Valid: []Attachment{eth0}}
	gcNone := GCRequest{Network: eth0.Network, Valid: []Attachment{}}

	for name, c := range map[string]struct {
		call func(context.Context, Backend) error
		want any
	}{
		"add": {func(ctx context.Context, b Backend) error {
			got, err := b.Add(ctx, add)
			if diff := cmp.Diff(reply, got, compare); diff != "" {
				t.Errorf("reply (-want +got):\n%s", diff)
			}
			return err
		}, add},
		"check":             {func(ctx context.Context, b Backend) error { return b.Check(ctx, check) }, check},
		"del without a pod": {func(ctx context.Context, b Backend) error { return b.Del(ctx, del) }, del},
		"gc":                {func(ctx context.Context, b Backend) error { return b.GC(ctx, gc) }, gc},
		"gc, nothing valid": {func(ctx context.Context, b Backend) error { return b.GC(ctx, gcNone) }, gcNone},
		"status": {func(ctx context.Context, b Backend) error {
			return b.Status(ctx, StatusRequest{Num6: 1, Pools6: []string{"v6"}, NeedGateway: true})
		}, StatusRequest{Num6: 1, Pools6: []string{"v6"}, NeedGateway: true}},
		"status of an older plugin": {func(ctx context.Context, b Backend) error { return b.Status(ctx, StatusRequest{}) }, StatusRequest{}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &recorder{reply: reply}
			if err := c.call(t.Context(), serve(t, b)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, b.got, compare); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	full := &Error{Code: CodeTryAgain, Msg: "no address", Details: "pool full"}
	for name, c := range map[string]struct {
		err  error
		want Error
	}{
		"as it is":    {full, *full},
		"wrapped":     {errorf("batch", full), Error{Code: CodeTryAgain, Msg: "batch: no address: pool full"}},
		"deadline":    {errorf("lock", context.DeadlineExceeded), Error{Code: CodeTryAgain, Msg: "lock: context deadline exceeded"}},
		"cancelled":   {context.Canceled, Error{Code: CodeTryAgain, Msg: "context canceled"}},
		"unforeseen":  {errors.New("boom"), Error{Code: CodeInternal, Msg: "boom"}},
		"not running": {&Error{Code: CodeNotAvailable, Msg: "starting"}, Error{Code: CodeNotAvailable, Msg: "starting"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := serve(t, &recorder{err: c.err}).Status(t.Context(), StatusRequest{})
			e, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("got %T %v, want *Error", err, err)
			}
			if diff := cmp.Diff(c.want, *e); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if AsError(nil) != nil {
		t.Error("AsError(nil) is an error")
	}
}

type wrapped struct {
	noun string
	err  error
}

func errorf(noun string, err error) error { return wrapped{noun, err} }
func (w wrapped) Error() string           { return w.noun + ": " + w.err.Error() }
func (w wrapped) Unwrap() error           { return w.err }

// Which errors say that the agent has seen nothing decides whether an ADD may be
// done elsewhere (INV-1).
func TestOnlyAFailedConnectIsNotConnected(t *testing.T) {
	type outcome struct{ notConnected, noAnswer bool }
	for name, c := range map[string]struct {
		socket func(t *testing.T) string
		want   outcome
	}{
		"no socket": {func(t *testing.T) string { return filepath.Join(t.TempDir(), "none") }, outcome{notConnected: true}},
		"nobody listens": {func(t *testing.T) string {
			l := listen(t)
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			l.Close()
			return l.Addr().String()
		}, outcome{notConnected: true}},
		"path too long":           {func(*testing.T) string { return "/" + strings.Repeat("x", 200) }, outcome{notConnected: true}},
		"closed at once":          {peer("", 0), outcome{noAnswer: true}},
		"closed after a byte":     {peer("", 1), outcome{noAnswer: true}},
		"closed after the header": {peer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", 1), outcome{noAnswer: true}},
		"not HTTP":                {peer("hello\r\n\r\n", 1), outcome{noAnswer: true}},
		"not JSON":                {peer(response("200 OK", "{]"), 1), outcome{noAnswer: true}},
		"two values":              {peer(response("200 OK", "{}{}"), 1), outcome{noAnswer: true}},
		"bad address":             {peer(response("200 OK", `{"addresses":[{"addr":"x"}]}`), 1), outcome{noAnswer: true}},
		"reply too long":          {peer(response("200 OK", `{"x":"`+strings.Repeat("x", maxReply)+`"}`), 1), outcome{noAnswer: true}},
		"unknown verb":            {peer(response("404 Not Found", "404 page not found"), 1), outcome{noAnswer: true}},
		"error without code":      {peer(response("500 Oh", `{"msg":"x"}`), 1), outcome{noAnswer: true}},
		"error":                   {peer(response("422 Oh", `{"code":11,"msg":"full"}`), 1), outcome{}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewClient(c.socket(t)).Add(t.Context(), AddRequest{Attachment: eth0, Num4: 1})
			if err == nil {
				t.Fatal("no error")
			}
			got := outcome{errors.Is(err, ErrNotConnected), errors.Is(err, ErrNoAnswer)}
			if got != c.want {
				t.Errorf("got %+v, want %+v: %v", got, c.want, err)
			}
			if e := AsError(err); e.Code != CodeTryAgain {
				t.Errorf("code %d, want %d: %v", e.Code, CodeTryAgain, err)
			}
		})
	}
}

// A deadline that passes before the connection stands is no failed connect: the
// caller has no time left for anything else.
func TestDeadlineIsNotAFailedConnect(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := NewClient(filepath.Join(t.TempDir(), "none")).Status(ctx, StatusRequest{})
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrNotConnected) {
		t.Errorf("got %v", err)
	}
}

// peer is a server that reads n bytes of the request (or, if it answers, all
// that comes), writes raw and closes.
func peer(raw string, n int) func(*testing.T) string {
	return func(t *testing.T) string {
		l := listen(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			if raw == "" {
				_, _ = io.ReadFull(conn, make([]byte, n))
				return
			}
			_, _ = conn.Read(make([]byte, 64<<10))
			_, _ = io.WriteString(conn, raw)
		}()
		t.Cleanup(func() { l.Close(); <-done })
		return l.Addr().String()
	}
}

func response(status, body string) string {
	return "HTTP/1.1 " + status + "\r\nConnection: close\r\n\r\n" + body
}

// A request must not end because it takes long, and must end when its caller is
// gone, so that a batch can drop it.
func TestRequestEndsWithItsCaller(t *testing.T) {
	b := &waiter{started: make(chan struct{}), ended: make(chan error, 1)}
	c := serve(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Del(ctx, DelRequest{Attachment: eth0}) }()
	<-b.started
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("caller: %v", err)
	}
	if err := <-b.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("backend: %v", err)
	}
}

// waiter is a Backend whose Del lasts until its context ends.
type waiter struct {
	recorder
	started chan struct{}
	ended   chan error
}

func (w *waiter) Del(ctx context.Context, _ DelRequest) error {
	close(w.started)
	<-ctx.Done()
	w.ended <- ctx.Err()
	return ctx.Err()
}

// Serve lets a request in flight finish when it is told to stop.
func TestServeDrains(t *testing.T) {
	b := &gate{started: make(chan struct{}), open: make(chan struct{})}
	l := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, b, slog.New(slog.DiscardHandler)) }()
	called := make(chan error, 1)
	go func() { called <- NewClient(l.Addr().String()).Del(t.Context(), DelRequest{Attachment: eth0}) }()
	<-b.started
	cancel()
	close(b.open)
	if err := <-called; err != nil {
		t.Errorf("request in flight: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

type gate struct {
	recorder
	started, open chan struct{}
}

func (g *gate) Del(ctx context.Context, _ DelRequest) error {
	close(g.started)
	<-g.open
	return ctx.Err()
}

func TestServeReportsALostListener(t *testing.T) {
	l := listen(t)
	l.Close()
	if err := Serve(t.Context(), l, &recorder{}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no error")
	}
}

func TestHandlerRefuses(t *testing.T) {
	ok := `{"network":"n","containerID":"c","ifName":"eth0","num4":1}`
	for name, c := range map[string]struct {
		method, path, contentType, body string
		status                          int
		message                         string
	}{
		"GET":                   {"GET", pathAdd, contentType, ok, 405, "method"},
		"no content type":       {"POST", pathAdd, "", ok, 415, "content type"},
		"form":                  {"POST", pathAdd, "application/x-www-form-urlencoded", ok, 415, "content type"},
		"not JSON":              {"POST", pathAdd, contentType, "{", 400, "body"},
		"no body":               {"POST", pathAdd, contentType, "", 400, "body"},
		"two values":            {"POST", pathAdd, contentType, ok + ok, 400, "body"},
		"too long":              {"POST", pathAdd, contentType, strings.Repeat(" ", maxRequest) + ok, 400, "longer"},
		"wrong type":            {"POST", pathAdd, contentType, `{"num4":"1"}`, 400, "num4"},
		"no network":            {"POST", pathDel, contentType, `{}`, 400, "network"},
		"no container":          {"POST", pathDel, contentType, `{"network":"n"}`, 400, "containerID"},
		"no interface":          {"POST", pathDel, contentType, `{"network":"n","containerID":"c"}`, 400, "ifName"},
		"nothing asked":         {"POST", pathAdd, contentType, `{"network":"n","containerID":"c","ifName":"eth0"}`, 400, "num4"},
		"too many":              {"POST", pathAdd, contentType, `{"network":"n","containerID":"c","ifName":"eth0","num4":65}`, 400, "num4"},
		"negative":              {"POST", pathAdd, contentType, `{"network":"n","containerID":"c","ifName":"eth0","num4":2,"num6":-1}`, 400, "num6"},
		"counts differ":         {"POST", pathAdd, contentType, `{"network":"n","containerID":"c","ifName":"eth0","num4":1,"addrs":["fd00::1"]}`, 400, "addrs"},
		"empty address":         {"POST", pathAdd, contentType, `{"network":"n","containerID":"c","ifName":"eth0","num6":1,"addrs":[""]}`, 400, "addrs[0]"},
		"mapped address":        {"POST", pathAdd, contentType, `{"network":"n","containerID":"c","ifName":"eth0","num6":1,"addrs":["::ffff:10.0.0.1"]}`, 400, "addrs[0]"},
		"twice":                 {"POST", pathAdd, contentType, `{"network":"n","containerID":"c","ifName":"eth0","num4":2,"addrs":["10.0.0.1","10.0.0.1"]}`, 400, "addrs[1]"},
		"check of nothing":      {"POST", pathCheck, contentType, `{"network":"n","containerID":"c","ifName":"eth0"}`, 400, "addrs"},
		"INV-2: no valid list":  {"POST", pathGC, contentType, `{"network":"n"}`, 400, "valid: missing"},
		"INV-2: null list":      {"POST", pathGC, contentType, `{"network":"n","valid":null}`, 400, "valid: missing"},
		"INV-2: hole in list":   {"POST", pathGC, contentType, `{"network":"n","valid":[{"network":"n","containerID":"c"}]}`, 400, "valid[0].ifName"},
		"INV-2: other network":  {"POST", pathGC, contentType, `{"network":"n","valid":[{"network":"m","containerID":"c","ifName":"eth0"}]}`, 400, "valid[0].network"},
		"gc without a network":  {"POST", pathGC, contentType, `{"valid":[]}`, 400, "network"},
		"status wants a value":  {"POST", pathStatus, contentType, ``, 400, "body"},
		"newer peer's field":    {"POST", pathAdd, contentType, strings.TrimSuffix(ok, "}") + `,"colour":"red"}`, 200, ""},
		"content type's detail": {"POST", pathAdd, contentType + "; charset=utf-8", ok, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := &recorder{}
			r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
			r.Header.Set("Content-Type", c.contentType)
			w := httptest.NewRecorder()
			Handler(b).ServeHTTP(w, r)
			if w.Code != c.status {
				t.Fatalf("status %d, want %d: %s", w.Code, c.status, w.Body)
			}
			if c.status == http.StatusOK {
				return
			}
			if b.got != nil {
				t.Errorf("reached the backend: %+v", b.got)
			}
			var e Error
			if err := decode(w.Body, maxReply, &e); err != nil || e.Code != CodeUndecodable {
				t.Errorf("body %v, %+v", err, e)
			}
			if !strings.Contains(e.Details, c.message) {
				t.Errorf("details %q do not name %q", e.Details, c.message)
			}
		})
	}
}

// The client refuses what the server would: a list that is nil never leaves it.
func TestClientRefusesNilList(t *testing.T) {
	b := &recorder{}
	err := serve(t, b).GC(t.Context(), GCRequest{Network: "n"})
	if err == nil || b.got != nil {
		t.Errorf("error %v, backend got %v", err, b.got)
	}
}

// A reply of a newer agent is understood.
func TestReplyFieldsUnknownAreIgnored(t *testing.T) {
	c := NewClient(peer(response("200 OK", `{"addresses":[],"colour":"red"}`), 1)(t))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Add(ctx, AddRequest{Attachment: eth0, Num4: 1}); err != nil {
		t.Error(err)
	}
}
