// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/allod/allod/test/fixture"
)

// object is a JSON object of a configuration.
type object = fixture.Object

// rig is one host's embedded store with the binaries that work on it.
type rig struct {
	t      *testing.T
	dir    string
	agent  fixture.Agent
	plugin fixture.Plugin
}

// newRig applies a manifest to a new store.
func newRig(t *testing.T, manifest string) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{
		t: t, dir: dir,
		agent:  fixture.Agent{Binary: filepath.Join(binDir, "allod-agent"), Store: filepath.Join(dir, "ipam.db")},
		plugin: fixture.Plugin{Binary: filepath.Join(binDir, "allod")},
	}
	if err := r.agent.Apply(t.Context(), manifest); err != nil {
		t.Fatal(err)
	}
	return r
}

// in is the same rig for a subtest.
func (r *rig) in(t *testing.T) *rig {
	sub := *r
	sub.t = t
	return &sub
}

// ipam is the ipam object for this rig's store, with the fields of more set or
// (nil) removed. Nobody listens on the socket: direct mode.
func (r *rig) ipam(more object) object {
	conf := object{
		"type":      "allod",
		"socket":    filepath.Join(r.dir, "agent.sock"),
		"lockFile":  filepath.Join(r.dir, "host.lock"),
		"nodeName":  "node-a",
		"datastore": object{"type": "bolt", "path": r.agent.Store},
	}
	return fixture.Merge(conf, more)
}

// conf is the configuration that a main plugin hands on to allod: of macvlan,
// which needs no gateway, in CNI 1.1.0, unless top says otherwise.
func (r *rig) conf(ipam, top object) []byte {
	return mustJSON(r.t, fixture.Merge(object{
		"cniVersion": "1.1.0", "name": "k8s-pod-network", "type": "macvlan", "ipam": r.ipam(ipam),
	}, top))
}

// network is a configuration list of one main plugin with allod as its IPAM.
func (r *rig) network(name string, main, ipam object) *libcni.NetworkConfigList {
	r.t.Helper()
	main = fixture.Merge(main, object{"ipam": r.ipam(ipam)})
	list, err := fixture.Network(mustJSON(r.t, object{"cniVersion": "1.1.0", "name": name, "plugins": []object{main}}))
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

// call executes allod once.
func (r *rig) call(verb string, conf []byte, s fixture.Sandbox) fixture.Answer {
	r.t.Helper()
	a, err := r.plugin.Run(r.t.Context(), fixture.Call{Verb: verb, Sandbox: s, Config: conf})
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// add executes an ADD that must succeed.
func (r *rig) add(conf []byte, s fixture.Sandbox) fixture.Result {
	r.t.Helper()
	a := r.call("ADD", conf, s)
	res, err := a.Result()
	if err != nil {
		r.t.Fatalf("ADD %s: %v\nstderr: %s", s.Pod, err, a.Stderr)
	}
	if len(res.IPs) == 0 {
		r.t.Fatalf("ADD %s: no address in %s", s.Pod, a.Stdout)
	}
	return res
}

// ok executes a verb that must succeed.
func (r *rig) ok(verb string, conf []byte, s fixture.Sandbox) {
	r.t.Helper()
	if a := r.call(verb, conf, s); a.Err() != nil {
		r.t.Fatalf("%s %s %s: %v\nstderr: %s", verb, s.Pod, s.IfName, a.Err(), a.Stderr)
	}
}

// refused executes a verb that must be refused with the CNI error code and a
// message or details that hold every one of words.
func (r *rig) refused(verb string, conf []byte, s fixture.Sandbox, code uint, words ...string) *types.Error {
	r.t.Helper()
	a := r.call(verb, conf, s)
	var e *types.Error
	if !errors.As(a.Err(), &e) {
		r.t.Fatalf("%s %s: want an error result with code %d, got exit %d: %v\nstdout: %s", verb, s.Pod, code, a.Exit, a.Err(), a.Stdout)
	}
	if e.Code != code {
		r.t.Errorf("%s %s: code %d, want %d: %v", verb, s.Pod, e.Code, code, e)
	}
	text := e.Msg + "\n" + e.Details
	for _, w := range words {
		if !strings.Contains(text, w) {
			r.t.Errorf("%s %s: the error does not say %q:\n%s", verb, s.Pod, w, text)
		}
	}
	return e
}

// counts compares what the store says is allocated and cooling.
func (r *rig) counts(allocated, cooling int) {
	r.t.Helper()
	got, err := r.agent.Usage(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if got.Allocated != allocated || got.Cooling != cooling {
		r.t.Errorf("the store has %d allocated and %d cooling, want %d and %d", got.Allocated, got.Cooling, allocated, cooling)
	}
}

// clean runs `allod-agent check`, which must find nothing.
func (r *rig) clean() {
	r.t.Helper()
	out, err := r.agent.Run(r.t.Context(), "", "check")
	if err != nil {
		r.t.Fatal(err)
	}
	if out.Exit != 0 {
		r.t.Errorf("allod-agent check: exit %d\n%s%s", out.Exit, out.Stdout, out.Stderr)
	}
}

// pod is a sandbox with an identity made from its name.
func pod(name string) fixture.Sandbox {
	return fixture.Sandbox{
		ContainerID: fixture.Digest("container of " + name), Netns: "/var/run/netns/" + name, IfName: "eth0",
		Namespace: "shop", Pod: name, UID: uid(name),
	}
}

func uid(name string) string {
	h := fixture.Digest("pod " + name)
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:32]}, "-")
}

// node is a node's namespace with its container runtime.
type node struct {
	*fixture.Runtime
	t   *testing.T
	log *logBuffer
}

// newNode makes a node that is removed when the test ends. What plugins print on
// stderr is shown if the test fails.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, log: &logBuffer{}}
	n.Runtime = fixture.NewRuntime(newNetns(t, workspace, name(t, "node")), []string{binDir, cniDir}, t.TempDir(), n.log)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stderr of the plugins:\n%s", n.log)
		}
	})
	return n
}

// name makes a namespace's name from the test's.
func name(t *testing.T, what string) string { return fixture.Digest(t.Name())[:12] + "-" + what }

func newNetns(t *testing.T, w *fixture.Workspace, name string) *fixture.Netns {
	t.Helper()
	n, err := w.NewNetns(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Delete() }) // a test may have deleted it
	return n
}

// ping must be answered.
func ping(t *testing.T, from *fixture.Netns, to netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := fixture.Ping(ctx, from, to); err != nil {
		t.Error(err)
	}
}

// resultAddrs lists the addresses of a main plugin's result.
func resultAddrs(res *types100.Result) []netip.Addr {
	var out []netip.Addr
	for _, ip := range res.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		out = append(out, a.Unmap())
	}
	return out
}

// logBuffer collects what concurrent processes print.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
