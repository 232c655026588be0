// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/allod/allod/test/fixture"
)

// TestDel: DEL completes and gives back, whatever it is called with (INV-10).
func TestDel(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayPool)
	good := r.conf(nil, nil)
	for _, tc := range []struct {
		name string
		conf []byte
		edit func(*fixture.Sandbox)
	}{
		{name: "as it was added", conf: good},
		{name: "case R2: CNI_NETNS is empty", conf: good, edit: func(s *fixture.Sandbox) { s.Netns = "" }},
		{name: "the namespace is gone", conf: good, edit: func(s *fixture.Sandbox) { s.Netns = "/var/run/netns/nowhere" }},
		{name: "no CNI_ARGS", conf: good, edit: func(s *fixture.Sandbox) { s.Namespace, s.Pod, s.UID = "", "", "" }},
		{name: "pools that are gone from the configuration", conf: r.conf(object{"ipv4Pools": []string{"no-such-pool"}}, nil)},
		{name: "a field that ADD refuses", conf: r.conf(object{"maks": "pool", "mask": 7, "families": "IPv9"}, nil)},
		{name: "an older version", conf: r.conf(nil, object{"cniVersion": "0.3.1"})},
		{name: "another node's name in the configuration", conf: r.conf(object{"nodeName": "node-b"}, nil)},
		{name: "no node name in the configuration", conf: r.conf(object{"nodeName": nil}, nil)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := r.in(t)
			web, other := pod("web-0"), pod("web-1")
			r.add(good, web)
			r.add(good, other)
			if tc.edit != nil {
				tc.edit(&web)
			}
			for range 3 {
				r.ok("DEL", tc.conf, web)
				r.counts(1, 0) // the other pod's
			}
			r.ok("DEL", good, other)
			r.counts(0, 0)
		})
	}
	r.clean()
}

// TestDelNeverAdded: what was never there is a success, and makes nothing.
func TestDelNeverAdded(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayPool)
	r.ok("DEL", r.conf(nil, nil), pod("web-0"))
	r.counts(0, 0)
	r.clean()
}

// TestMinimalConfig: without an ipam object beyond its type everything has a
// default: DEL needs no more than name, cniVersion and type (INV-10), and ADD
// says what is missing as long as there is no store.
func TestMinimalConfig(t *testing.T) {
	t.Parallel()
	onHost(t, func(state string) {
		r := &rig{
			t: t, dir: state,
			agent:  fixture.Agent{Binary: filepath.Join(binDir, "allod-agent"), Store: "/var/lib/allod/ipam.db"},
			plugin: fixture.Plugin{Binary: filepath.Join(binDir, "allod")},
		}
		conf := mustJSON(t, object{"cniVersion": "1.1.0", "name": "k8s-pod-network", "type": "macvlan", "ipam": object{"type": "allod"}})
		r.refused("ADD", conf, pod("web-0"), types.ErrTryAgainLater, "allod-agent apply -f")
		if err := r.agent.Apply(t.Context(), gatewayPool); err != nil {
			t.Fatal(err)
		}
		full := mustJSON(t, object{
			"cniVersion": "1.1.0", "name": "k8s-pod-network", "type": "macvlan",
			"ipam": object{"type": "allod", "nodeName": "node-a", "routes": []object{}},
		})
		for name, added := range map[string][]byte{"minimal": conf, "full": full} {
			for _, minimal := range []object{
				{"cniVersion": "1.1.0", "name": "k8s-pod-network", "type": "allod"},
				{"cniVersion": "1.1.0", "name": "k8s-pod-network", "type": "macvlan", "ipam": object{"type": "allod"}},
			} {
				r.add(added, pod("web-0"))
				r.counts(1, 0)
				r.ok("DEL", mustJSON(t, minimal), pod("web-0"))
				r.counts(0, 0)
				if t.Failed() {
					t.Fatalf("ADD %s, DEL with %v", name, minimal)
				}
			}
		}
		r.clean()
	})
}

// onHost runs fn, and what it starts, with folders of its own in the place of
// /var/lib and /run: the defaults of the product, without touching the machine's.
func onHost(t *testing.T, fn func(state string)) {
	t.Helper()
	state := t.TempDir()
	for _, dir := range []string{"lib/allod", "run/allod"} {
		if err := os.MkdirAll(filepath.Join(state, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread() // for ever: the thread ends with the test's goroutine
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatalf("unshare: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatalf("private mounts: %v", err)
	}
	for from, to := range map[string]string{"lib": "/var/lib", "run": "/run"} {
		if err := unix.Mount(filepath.Join(state, from), to, "", unix.MS_BIND, ""); err != nil {
			t.Fatalf("mount over %s: %v", to, err)
		}
	}
	fn(state)
}

// TestStoreMissing: without the store ADD and DEL say "try again later" and which
// file it is; nothing is swallowed and nothing is created.
func TestStoreMissing(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayPool)
	web := pod("web-0")
	r.add(r.conf(nil, nil), web)
	away := r.agent.Store + ".away"
	if err := os.Rename(r.agent.Store, away); err != nil {
		t.Fatal(err)
	}
	r.refused("ADD", r.conf(nil, nil), pod("web-1"), types.ErrTryAgainLater, r.agent.Store, "allod-agent apply -f")
	r.refused("DEL", r.conf(nil, nil), web, types.ErrTryAgainLater, r.agent.Store)
	if _, err := os.Stat(r.agent.Store); err == nil {
		t.Errorf("%s was created", r.agent.Store)
	}
	if err := os.Rename(away, r.agent.Store); err != nil {
		t.Fatal(err)
	}
	r.counts(1, 0)
	r.ok("DEL", r.conf(nil, nil), web)
	r.counts(0, 0)
	r.clean()
}

// TestStoreForeign: a file that is no store of ours, or is empty, is refused by
// every verb and left as it was.
func TestStoreForeign(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{"empty": "", "foreign": strings.Repeat("not a store\n", 4096)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, gatewayPool)
			if err := os.WriteFile(r.agent.Store, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, verb := range []string{"ADD", "DEL"} {
				r.refused(verb, r.conf(nil, nil), pod("web-0"), types.ErrTryAgainLater, r.agent.Store)
			}
			got, err := os.ReadFile(r.agent.Store)
			if err != nil || string(got) != content {
				t.Errorf("the file was changed: %d bytes, %v", len(got), err)
			}
		})
	}
}

// TestTwoInterfaces: Multus attaches one sandbox to several networks, and to one
// network twice. Each interface comes and goes by itself.
func TestTwoInterfaces(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayPool)
	eth0, net1 := pod("web-0"), pod("web-0")
	net1.IfName = "net1"
	other := r.conf(nil, object{"name": "storage"})
	got := map[string]bool{}
	for _, res := range []fixture.Result{
		r.add(r.conf(nil, nil), eth0), r.add(r.conf(nil, nil), net1), r.add(other, net1),
	} {
		got[res.Addrs()[0].String()] = true
	}
	if len(got) != 3 {
		t.Errorf("three interfaces have the addresses %v", got)
	}
	r.ok("DEL", r.conf(nil, nil), net1)
	r.counts(2, 0)
	r.ok("DEL", r.conf(nil, nil), eth0)
	r.counts(1, 0)
	r.ok("DEL", other, net1)
	r.counts(0, 0)
	r.clean()
}

// TestOneInterfaceFails (case R14): a sandbox in two networks, one of which cannot
// be torn down. The other's address comes back all the same, and the first one's
// when its fault is gone.
func TestOneInterfaceFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayPool)
	n := newNode(t)
	web := pod("web-0")
	own := newNetns(t, workspace, name(t, "web-0"))
	web.Netns = own.Path
	net1 := web
	net1.IfName = "net1"
	pods := r.network("k8s-pod-network", object{"type": "ptp"}, nil)
	storage := r.network("storage", object{"type": "bridge", "bridge": "cni0"}, nil)
	if _, err := n.Add(t.Context(), pods, web); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Add(t.Context(), storage, net1); err != nil {
		t.Fatal(err)
	}
	r.counts(2, 0)
	broken := r.network("storage", object{"type": "bridge", "bridge": "cni0"},
		object{"datastore": object{"type": "bolt", "path": r.dir + "/none.db"}})
	// The runtime's cache would hide the fault: a runtime that has lost it.
	amnesiac := fixture.NewRuntime(n.Node, []string{binDir, cniDir}, t.TempDir(), n.log)
	if err := amnesiac.Del(t.Context(), broken, net1); err == nil {
		t.Error("DEL of storage succeeded without its store")
	}
	if err := n.Del(t.Context(), pods, web); err != nil {
		t.Error(err)
	}
	r.counts(1, 0)
	if err := n.Del(t.Context(), storage, net1); err != nil {
		t.Error(err)
	}
	r.counts(0, 0)
	r.clean()
}

// TestMainPluginFails (case R6): the main plugin fails after the address was given
// out. The address stays findable by the container: a retried ADD finds it, DEL
// gives it back.
func TestMainPluginFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayPool)
	n := newNode(t)
	// ptp asks IPAM first and opens the pod's namespace, which is gone, second.
	list := r.network("k8s-pod-network", object{"type": "ptp"}, nil)
	lost := pod("web-0")
	if _, err := n.Add(t.Context(), list, lost); err == nil {
		t.Fatal("ADD into a namespace that does not exist succeeded")
	}
	r.counts(0, 0) // ptp undid what it could

	// A main plugin that dies there undoes nothing.
	first := r.add(r.conf(nil, nil), lost)
	r.counts(1, 0)
	wantSame(t, first, r.add(r.conf(nil, nil), lost))
	if err := n.Del(t.Context(), list, lost); err != nil {
		t.Error(err)
	}
	r.counts(0, 0)
	r.clean()
}
