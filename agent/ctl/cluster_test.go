// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/allod/allod/agent/config"
	"github.com/allod/allod/ipam/datastore/kubestore"
)

// clusterAt is a cluster on a server that is none, or not one to trust.
func clusterAt(t *testing.T, cfg *rest.Config) *cluster {
	t.Helper()
	s, err := kubestore.New(cfg, kubestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &cluster{name: cfg.Host, store: s}
}

// A server that hangs, before or amid its answer, is told about, and so is one with
// another certificate; an interrupt is no fault of the server.
func TestClusterFailures(t *testing.T) {
	quiet := newProgress(new(bytes.Buffer))
	release := make(chan struct{})
	hang := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half/apis/ipam.allod.io/v1alpha1/ippools" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"items":[`)
			w.(http.Flusher).Flush()
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	server := httptest.NewServer(http.HandlerFunc(hang))
	defer server.Close()
	defer close(release)
	for _, path := range []string{"", "/half"} {
		cfg := &rest.Config{Host: server.URL + path}
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return patience{next, 50 * time.Millisecond} })
		_, err := clusterAt(t, cfg).snapshot(t.Context(), quiet)
		if err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("path %q: %v", path, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := clusterAt(t, &rest.Config{Host: server.URL}).snapshot(ctx, quiet)
	if err == nil || strings.Contains(err.Error(), "reached") || strings.Contains(err.Error(), "answer") {
		t.Errorf("interrupted: %v", err)
	}
	trusted := httptest.NewTLSServer(http.HandlerFunc(hang))
	defer trusted.Close()
	trusted.Config.ErrorLog = nil
	_, err = clusterAt(t, &rest.Config{Host: trusted.URL}).snapshot(t.Context(), quiet)
	if err == nil || !strings.Contains(err.Error(), "does not vouch for") {
		t.Errorf("another certificate: %v", err)
	}
}

// A kubeconfig of several files, as KUBECONFIG may name them, is one.
func TestKubeconfigOfSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := write("one", `clusters: [{name: c, cluster: {server: "https://192.0.2.1"}}]`)
	two := write("two", "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n")
	t.Setenv("KUBECONFIG", one+string(filepath.ListSeparator)+two)
	cfg, name, err := restConfig(config.Datastore{Type: config.Kubernetes})
	if err != nil || cfg.Host != "https://192.0.2.1" || name != "x" {
		t.Errorf("config %+v, context %q, %v", cfg, name, err)
	}
	if _, _, err := restConfig(config.Datastore{Kubeconfig: one}); err == nil || !strings.Contains(err.Error(), "no current-context") {
		t.Errorf("one of them alone: %v", err)
	}
}

// Paths in a kubeconfig are relative to it, however it is named, and what is wrong with
// one is told without what is secret in it.
func TestKubeconfigWithRelativePaths(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"ca.crt": "x", "token": "x", "config": `apiVersion: v1
kind: Config
current-context: x
clusters: [{name: c, cluster: {server: "https://192.0.2.1", certificate-authority: ca.crt}}]
users: [{name: u, user: {tokenFile: token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
`, "bad": "apiVersion: v1\nkind: Config\nusers: [{name: u, user: {token: {a: hunter2}}}]\n",
		"proxy": `apiVersion: v1
kind: Config
current-context: x
clusters: [{name: c, cluster: {server: "https://192.0.2.1", proxy-url: "ftp://bob:hunter2@192.0.2.2"}}]
contexts: [{name: x, context: {cluster: c}}]
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "config")
	t.Setenv("KUBECONFIG", path)
	for what, ds := range map[string]config.Datastore{"by flag": {Kubeconfig: path}, "by KUBECONFIG": {}} {
		cfg, _, err := restConfig(ds)
		if err != nil || cfg.CAFile != filepath.Join(dir, "ca.crt") || cfg.BearerTokenFile != filepath.Join(dir, "token") {
			t.Errorf("%s: %+v, %v", what, cfg, err)
		}
	}
	for _, name := range []string{"bad", "proxy", "no-such"} {
		_, _, err := restConfig(config.Datastore{Kubeconfig: filepath.Join(dir, name)})
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, name)) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A count is shown on a terminal only, and a line that matters stands for itself.
func TestProgress(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		var out bytes.Buffer
		p := newProgress(&out)
		if p.terminal {
			t.Error("a buffer is taken for a terminal")
		}
		p.terminal = terminal
		p.count("reading: %d", 500)
		p.count("reading: %d", 1000) // too soon
		p.say("said")
		p.done()
		want := "said\n"
		if terminal {
			want = "\r\x1b[Kreading: 500\r\x1b[Ksaid\n"
		}
		if out.String() != want {
			t.Errorf("terminal %v: %q, want %q", terminal, out.String(), want)
		}
	}
}
