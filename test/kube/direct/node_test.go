// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/allod/allod/test/fixture"
)

// object is a JSON object of a configuration.
type object = fixture.Object

// node is one node of a cluster as the runtime on it sees it: the plugin, and the
// files that its installation wrote. What it calls on the API server is logged.
type node struct {
	t          *testing.T
	c          *cluster
	name       string
	dir        string
	kubeconfig string
	log        *callLog
	plugin     fixture.Plugin
}

// node makes a Node object with these labels and installs Allod on it: a
// kubeconfig with a token of its account that is bound to the Node.
func (c *cluster) node(name string, labels map[string]string) *node {
	c.t.Helper()
	c.nodeObject(name, labels)
	n := c.bareNode(name)
	must(c.t, c.server.Kubeconfig(n.kubeconfig, n.token()))
	return n
}

// bareNode is a node without a kubeconfig.
func (c *cluster) bareNode(name string) *node {
	c.t.Helper()
	dir := c.t.TempDir()
	n := &node{
		t: c.t, c: c, name: name, dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig"),
		log: newCallLog(c.t, filepath.Join(dir, "calls")),
	}
	n.plugin = fixture.Plugin{Binary: filepath.Join(binDir, "allod"), Env: []string{n.log.env()}}
	return n
}

// token is a new token of the nodes' account that is bound to the Node.
func (n *node) token() string {
	n.t.Helper()
	token, err := n.c.server.NodeToken(n.t.Context(), "kube-system", "allod-node", n.name)
	must(n.t, err)
	return token
}

// in is the same node for a subtest.
func (n *node) in(t *testing.T) *node {
	sub := *n
	sub.t, sub.c = t, n.c.in(t)
	return &sub
}

// ipam is the ipam object for this node, with the fields of more set or (nil)
// removed. Nobody listens on the socket: direct mode.
func (n *node) ipam(more object) object {
	return fixture.Merge(object{
		"type":      "allod",
		"socket":    filepath.Join(n.dir, "agent.sock"),
		"lockFile":  filepath.Join(n.dir, "host.lock"),
		"datastore": object{"type": "kubernetes", "kubeconfig": n.kubeconfig},
	}, more)
}

// conf is the configuration that a main plugin hands on to allod: of macvlan,
// which needs no gateway, unless top says otherwise.
func (n *node) conf(ipam, top object) []byte {
	n.t.Helper()
	return mustJSON(n.t, fixture.Merge(object{
		"cniVersion": "1.1.0", "name": "k8s-pod-network", "type": "macvlan", "ipam": n.ipam(ipam),
	}, top))
}

// call executes allod once.
func (n *node) call(verb string, conf []byte, s fixture.Sandbox) fixture.Answer {
	n.t.Helper()
	a, err := n.plugin.Run(n.t.Context(), fixture.Call{Verb: verb, Sandbox: s, Config: conf})
	must(n.t, err)
	if strings.Contains(string(a.Stderr), "goroutine ") {
		n.t.Errorf("%s %s: the plugin panicked:\n%s", verb, s.Pod, a.Stderr)
	}
	return a
}

// add executes an ADD that must succeed.
func (n *node) add(conf []byte, s fixture.Sandbox) fixture.Result {
	n.t.Helper()
	a := n.call("ADD", conf, s)
	res, err := a.Result()
	if err != nil {
		n.t.Fatalf("ADD %s on %s: %v\nstderr: %s", s.Pod, n.name, err, a.Stderr)
	}
	if len(res.IPs) == 0 {
		n.t.Fatalf("ADD %s: no address in %s", s.Pod, a.Stdout)
	}
	return res
}

// ok executes a verb that must succeed.
func (n *node) ok(verb string, conf []byte, s fixture.Sandbox) {
	n.t.Helper()
	if a := n.call(verb, conf, s); a.Err() != nil {
		n.t.Fatalf("%s %s on %s: %v\nstderr: %s", verb, s.Pod, n.name, a.Err(), a.Stderr)
	}
}

// refused executes a verb that must be refused with the CNI error code and a
// message or details that hold every one of words. It returns both.
func (n *node) refused(verb string, conf []byte, s fixture.Sandbox, code uint, words ...string) string {
	n.t.Helper()
	return wantRefusal(n.t, verb+" "+s.Pod, n.call(verb, conf, s), code, words...)
}

func wantRefusal(t *testing.T, what string, a fixture.Answer, code uint, words ...string) string {
	t.Helper()
	var e *types.Error
	if !errors.As(a.Err(), &e) {
		t.Errorf("%s: want an error result with code %d, got exit %d: %v\nstdout: %s", what, code, a.Exit, a.Err(), a.Stdout)
		return ""
	}
	text := e.Msg + "\n" + e.Details
	if e.Code != code {
		t.Errorf("%s: code %d, want %d: %s", what, e.Code, code, text)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%s: the error does not say %q:\n%s", what, w, text)
		}
	}
	return text
}

// again is the sandbox that a runtime makes anew for the same pod.
func again(s fixture.Sandbox) fixture.Sandbox {
	s.ContainerID = fixture.Digest("after " + s.ContainerID)
	return s
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	return text
}

// unmarshalNumbers decodes JSON and keeps its numbers as they are written.
func unmarshalNumbers(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(v)
}
