// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// fake answers as a test scripts it, where a real API server cannot be made to. What
// an API server does is tested on one, in test/kube/store.
type fake struct {
	url string
	log bytes.Buffer

	mu     sync.Mutex
	calls  []string // method and URI behind the group
	bodies []string
}

const group = "/apis/ipam.allod.io/v1alpha1/"

// serve starts a fake; the n-th answer gets n from 0.
func serve(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) (*Store, *fake) {
	t.Helper()
	f := &fake{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		n := len(f.calls)
		f.calls = append(f.calls, r.Method+" "+strings.TrimPrefix(r.URL.RequestURI(), group))
		f.bodies = append(f.bodies, string(body))
		f.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		answer(n, w, r)
	}))
	t.Cleanup(server.Close)
	f.url = server.URL
	s, err := New(&rest.Config{Host: server.URL}, Options{PageSize: 2, Log: slog.New(slog.NewTextHandler(&f.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, f
}

func (f *fake) made() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

// failure is the body of a status that is an error, as an API server writes it.
func failure(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"scripted"}`, reason, code)
}

func list(rev, next string, items ...string) string {
	return fmt.Sprintf(`{"apiVersion":"ipam.allod.io/v1alpha1","kind":"IPAMHandleList","metadata":{"resourceVersion":%q,"continue":%q},"items":[%s]}`, rev, next, strings.Join(items, ","))
}

func handle(name, rev string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"uid":"u-%s","resourceVersion":%q},"spec":{"handle":%q}}`, name, name, rev, name)
}
