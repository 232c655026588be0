// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// FuzzRequest: whatever a request's body is, the backend sees valid requests only.
func FuzzRequest(f *testing.F) {
	paths := []string{pathAdd, pathCheck, pathDel, pathGC, pathStatus}
	for i, body := range []string{
		`{"network":"n","containerID":"c","ifName":"eth0","num4":1,"pod":{"namespace":"a","name":"b","uid":"c"}}`,
		`{"network":"n","containerID":"c","ifName":"eth0","addrs":["10.0.0.1","fd00::1%eth0"]}`,
		`{"network":"n","containerID":"c","ifName":"eth0"}`,
		`{"network":"n","valid":[{"network":"n","containerID":"c","ifName":"eth0"}]}`,
		`{}`,
	} {
		f.Add(uint8(i), []byte(body))
	}
	f.Add(uint8(3), []byte(`{"network":"n","valid":null}`))
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, paths[int(which)%len(paths)], bytes.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		Handler(strictBackend{t}).ServeHTTP(w, r)
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
	})
}

// strictBackend fails the test on a request that no backend should have to judge.
type strictBackend struct{ t *testing.T }

func (b strictBackend) attachment(a Attachment) {
	if a.Network == "" || a.ContainerID == "" || a.IfName == "" {
		b.t.Errorf("incomplete attachment %+v", a)
	}
}

func (b strictBackend) Add(_ context.Context, r AddRequest) (AddReply, error) {
	b.attachment(r.Attachment)
	n := 0
	for _, a := range r.Addrs {
		if !a.IsValid() || a.Zone() != "" {
			b.t.Errorf("address %v", a)
		}
		n++
	}
	if r.Num4 < 0 || r.Num6 < 0 || r.Num4+r.Num6 < 1 || n != 0 && n != r.Num4+r.Num6 {
		b.t.Errorf("asks for %d and %d with %d static", r.Num4, r.Num6, n)
	}
	return AddReply{}, nil
}

func (b strictBackend) Check(_ context.Context, r CheckRequest) error {
	b.attachment(r.Attachment)
	if len(r.Addrs) == 0 {
		b.t.Error("nothing to check")
	}
	return nil
}

func (b strictBackend) Del(_ context.Context, r DelRequest) error {
	b.attachment(r.Attachment)
	return nil
}

func (b strictBackend) GC(_ context.Context, r GCRequest) error {
	if r.Network == "" || r.Valid == nil {
		b.t.Errorf("unknown list: %+v", r)
	}
	for _, a := range r.Valid {
		b.attachment(a)
	}
	return nil
}

func (b strictBackend) Status(context.Context, StatusRequest) error { return nil }

// FuzzReply: whatever comes back, the client gives an answer or an error with a
// code, and never takes a refusal for success.
func FuzzReply(f *testing.F) {
	f.Add(200, []byte(`{"addresses":[{"addr":"10.0.0.1","block":"10.0.0.0/26","pool":"10.0.0.0/16","gateway":"10.0.0.1"}]}`))
	f.Add(200, []byte(`{"addresses":[{"addr":"","block":"","pool":""}]}`))
	f.Add(422, []byte(`{"code":11,"msg":"full","details":"x"}`))
	f.Add(404, []byte(`404 page not found`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		c := &Client{socket: "/s", http: http.Client{Transport: canned{status, body}}}
		_, err := c.Add(t.Context(), AddRequest{Attachment: eth0, Num4: 1})
		if err == nil && status != http.StatusOK {
			t.Errorf("status %d is success", status)
		}
		if err != nil && AsError(err).Code == 0 {
			t.Errorf("no code: %v", err)
		}
	})
}

// canned is a transport that answers every request alike.
type canned struct {
	status int
	body   []byte
}

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: c.status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(c.body)), Request: r}, nil
}
