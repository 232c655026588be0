// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// api answers every call with what answer says.
func api(t *testing.T, answer func(path string) (int, string)) *rest.Config {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, body := answer(r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL, QPS: -1}
}

func status(code int, reason metav1.StatusReason) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"said no"}`, code, reason)
}

func TestReader(t *testing.T) {
	var asked string
	r, err := NewReader(api(t, func(path string) (int, string) {
		asked = path
		return 200, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"web","uid":"u1","annotations":{"a":"b"}},"spec":{"nodeName":"node-a"}}`
	}))
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.Pod(t.Context(), "shop", "web")
	if err != nil || asked != "/api/v1/namespaces/shop/pods/web" {
		t.Fatalf("asked %s: %v", asked, err)
	}
	// No labels are known labels: a selector "!x" holds.
	if m.UID != "u1" || m.Annotations["a"] != "b" || m.Labels == nil || m.Node != "node-a" {
		t.Errorf("got %+v", m)
	}
}

// Each error says what was read and, where an operator can, what to do.
func TestReaderErrors(t *testing.T) {
	for _, tt := range []struct {
		code   int
		reason metav1.StatusReason
		says   string
	}{
		{http.StatusNotFound, metav1.StatusReasonNotFound, "has no pod shop/web"},
		{http.StatusNotFound, "", "check the server's address"}, // of a proxy, or of what is no API server
		{http.StatusForbidden, metav1.StatusReasonForbidden, "needs the verb get on pods"},
		{http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "renew it"},
		{http.StatusInternalServerError, metav1.StatusReasonInternalError, "read pod shop/web"},
	} {
		r, err := NewReader(api(t, func(string) (int, string) {
			if tt.reason == "" {
				return tt.code, "<html>not here</html>"
			}
			return tt.code, status(tt.code, tt.reason)
		}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Pod(t.Context(), "shop", "web"); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%d: %v; want %q", tt.code, err, tt.says)
		}
	}
}

// The log has method, status and path of each call, is nobody else's to read, and
// follows no link.
func TestLogCalls(t *testing.T) {
	cfg := api(t, func(string) (int, string) {
		return http.StatusNotFound, status(http.StatusNotFound, metav1.StatusReasonNotFound)
	})
	path := filepath.Join(t.TempDir(), "calls")
	if err := LogCalls(cfg, path); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Node(t.Context(), "node-a"); err == nil {
		t.Fatal("a missing node was read")
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != "GET 404 /api/v1/nodes/node-a\n" {
		t.Errorf("got %q, %v", text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := LogCalls(cfg, link); err == nil {
		t.Error("a link was followed")
	}
}
