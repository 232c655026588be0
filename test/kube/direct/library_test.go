// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"fmt"
	"net/http"
	"os"
	"sync"

	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore/kubestore"
	"github.com/allod/allod/ipam/pool"
	"github.com/allod/allod/test/fixture"
)

// library is the library in this process under a new token of the node: for paths
// that need something to happen between two calls. before is asked for each call,
// which is then logged like those of the binary.
func (n *node) library(before func(*http.Request)) *ipam.Client {
	n.t.Helper()
	cfg := n.c.server.ConfigFor(n.token())
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &hooked{next: next, before: before, log: n.log.path}
	})
	s, err := kubestore.New(cfg, kubestore.Options{})
	must(n.t, err)
	n.t.Cleanup(s.Close)
	return ipam.New(s.Store(), ipam.Options{Clock: s})
}

type hooked struct {
	next   http.RoundTripper
	before func(*http.Request)
	log    string

	mu sync.Mutex
}

// RoundTrip implements http.RoundTripper.
func (h *hooked) RoundTrip(r *http.Request) (*http.Response, error) {
	h.before(r)
	resp, err := h.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f, err := os.OpenFile(h.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(f, "%s %d %s\n", r.Method, resp.StatusCode, r.URL.RequestURI())
	if err != nil {
		return nil, err
	}
	return resp, f.Close()
}

// attachRequest is what direct mode asks the library for.
func (n *node) attachRequest(s fixture.Sandbox) ipam.AttachRequest {
	return ipam.AttachRequest{AutoAssignRequest: ipam.AutoAssignRequest{
		Num4: 1, Host: pool.Node{Name: n.name}, Use: pool.UseWorkload, Namespace: pool.Namespace{Name: s.Namespace},
		Owner: block.Owner{
			Network: "k8s-pod-network", Namespace: s.Namespace, Pod: s.Pod, PodUID: s.UID, ContainerID: s.ContainerID, IfName: "eth0",
		},
	}}
}
