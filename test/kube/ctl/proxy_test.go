// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// proxy stands between an operator and the API server: it notes what is asked, and may
// answer itself.
type proxy struct {
	mu     sync.Mutex
	calls  []string // "verb resource" as RBAC names them
	writes []string // of those, what was to be stored
	answer func(call string, w http.ResponseWriter, r *http.Request) bool
}

// through returns an operator whose calls go over a proxy. answer, unless nil, may
// answer a call: it then returns true.
func (o *operator) through(answer func(call string, w http.ResponseWriter, r *http.Request) bool) (*operator, *proxy) {
	o.t.Helper()
	p := &proxy{answer: answer}
	cfg := server.Config()
	target, err := url.Parse(cfg.Host)
	must(o.t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cfg.CAData)
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := callOf(r)
		p.mu.Lock()
		p.calls = append(p.calls, call)
		if r.Method != http.MethodGet && !dry(r) {
			p.writes = append(p.writes, call)
		}
		p.mu.Unlock()
		if p.answer == nil || !p.answer(call, w, r) {
			forward.ServeHTTP(w, r)
		}
	}))
	o.t.Cleanup(front.Close)
	c, err := clientcmd.LoadFromFile(o.kubeconfig)
	must(o.t, err)
	c.Clusters["test"] = &api.Cluster{
		Server:                   front.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}),
	}
	path := filepath.Join(o.t.TempDir(), "kubeconfig")
	must(o.t, clientcmd.WriteToFile(*c, path))
	return &operator{o.t, path}, p
}

// dry reports whether nothing is to be stored. Of a DELETE only its body says so.
func dry(r *http.Request) bool {
	if r.Method != http.MethodDelete {
		return r.URL.Query().Get("dryRun") != ""
	}
	text, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(text))
	return err == nil && bytes.Contains(text, []byte(`"dryRun":["All"]`))
}

// callOf names a request as RBAC does.
func callOf(r *http.Request) string {
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/"+v1alpha1.APIVersion+"/"), "/")
	resource := path[0]
	if len(path) == 3 {
		resource += "/" + path[2]
	}
	verb := map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[r.Method]
	if verb == "get" && len(path) == 1 {
		verb = "list"
		if r.URL.Query().Get("watch") != "" {
			verb = "watch"
		}
	}
	return verb + " " + resource
}

// take returns what was asked and what was to be stored since it was called last.
func (p *proxy) take() (calls, writes []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls, writes = p.calls, p.writes
	p.calls, p.writes = nil, nil
	return calls, writes
}
