// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"net/netip"
	"net/url"
	"slices"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/test/fixture"
)

// dualPools have a gateway, which ptp needs.
var dualPools = poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28, gateway: 10.64.0.1") +
	poolManifest("v6", `cidr: "fd00:64::/120", blockSize: 124, gateway: "fd00:64::1"`)

var dual = object{"families": []string{"IPv4", "IPv6"}}

// runtime is the container runtime of a node, in a namespace from which the API
// server can be reached.
func (n *node) runtime() *fixture.Runtime {
	n.t.Helper()
	n.t.Setenv("ALLOD_CALL_LOG", n.log.path) // libcni hands its environment on
	ns := newNetns(n.t, n.name)
	server, err := url.Parse(n.c.server.Config().Host)
	must(n.t, err)
	stop, err := ns.Forward(n.t.Context(), server.Host)
	must(n.t, err)
	n.t.Cleanup(stop)
	return fixture.NewRuntime(ns, []string{binDir, cniDir}, n.t.TempDir(), n.t.Output())
}

// ptp is a network of the main plugin ptp.
func (n *node) ptp(ipam object) *libcni.NetworkConfigList {
	n.t.Helper()
	list, err := fixture.Network(mustJSON(n.t, object{
		"cniVersion": "1.1.0", "name": "k8s-pod-network", "plugins": []object{{"type": "ptp", "ipam": n.ipam(ipam)}},
	}))
	must(n.t, err)
	return list
}

func newNetns(t *testing.T, what string) *fixture.Netns {
	t.Helper()
	ns, err := workspace.NewNetns(fixture.Digest(t.Name())[:12] + "-" + what)
	must(t, err)
	t.Cleanup(func() { _ = ns.Delete() }) // a test may have deleted it
	return ns
}

// bare are the addresses of prefixes.
func bare(ps []netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for _, p := range ps {
		out = append(out, p.Addr())
	}
	return out
}

func sameAddrs(t *testing.T, what string, want, got []netip.Addr) {
	t.Helper()
	less := func(a, b netip.Addr) int { return a.Compare(b) }
	if d := cmp.Diff(slices.SortedFunc(slices.Values(want), less), slices.SortedFunc(slices.Values(got), less),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// The life of a dual-stack pod under ptp: what the interface has is what the API
// server has, and after DEL nothing is left.
func TestLifecycle(t *testing.T) {
	c := newCluster(t)
	c.pools(dualPools)
	n := c.node("node-a", nil)
	run, list := n.runtime(), n.ptp(dual)
	must(t, run.Status(t.Context(), list))
	web, own := c.pod("web-0", nil), newNetns(t, "web-0")
	web.Netns = own.Path
	if _, err := run.Add(t.Context(), list, web); err != nil {
		t.Fatal(err)
	}
	has, err := own.Addrs("eth0")
	must(t, err)
	held := c.held()
	for _, a := range bare(has) {
		if held[a] != web.ContainerID {
			t.Errorf("eth0 has %s, which the API server says is of %q", a, held[a])
		}
	}
	if len(has) != 2 || len(held) != 2 {
		t.Errorf("eth0 has %v, the API server %v; want one address of each family", has, held)
	}
	must(t, run.Check(t.Context(), list, web))
	for range 2 { // the runtime may say it twice (INV-10)
		must(t, run.Del(t.Context(), list, web))
		c.counts(0)
	}
	c.settled()
}

// Case R2: DEL releases when the network namespace is gone, or its path not even said.
func TestDelWithoutNetns(t *testing.T) {
	c := newCluster(t)
	c.pools(dualPools)
	n := c.node("node-a", nil)
	run, list := n.runtime(), n.ptp(dual)
	for _, path := range []string{"", "gone"} {
		web, own := c.pod("web-"+path+"0", nil), newNetns(t, "web-"+path)
		web.Netns = own.Path
		if _, err := run.Add(t.Context(), list, web); err != nil {
			t.Fatal(err)
		}
		c.counts(2)
		must(t, own.Delete())
		if path == "" {
			web.Netns = ""
		}
		must(t, run.Del(t.Context(), list, web))
		c.counts(0)
	}
}

// Cases S1 and R3: the sandbox of a pod is made anew without a DEL of the old one.
// On a full pool it gets the pod's address; the late DEL of the old container ID, and
// that of an old pod of the same name, release nothing.
func TestLateDel(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("small", "cidr: 10.99.0.0/30, blockSize: 30"))
	n := c.node("node-a", nil)
	conf := n.conf(nil, nil)
	old := c.pod("web-0", nil)
	first := n.add(conf, old)
	for _, name := range []string{"a", "b", "c"} {
		n.add(conf, c.pod(name, nil))
	}
	fresh := again(old)
	sameAddrs(t, "the new sandbox has", first.Addrs(), n.add(conf, fresh).Addrs())
	sameAddrs(t, "repeated, it has", first.Addrs(), n.add(conf, fresh).Addrs()) // case R5
	n.ok("DEL", conf, old)
	c.counts(4)
	if got := c.held()[first.Addrs()[0]]; got != fresh.ContainerID {
		t.Errorf("%s is of %q, want the new sandbox", first.Addrs()[0], got)
	}

	n.ok("DEL", conf, fresh)
	c.deletePod(old)
	successor := c.pod("web-0", nil) // of the same name
	n.add(conf, successor)
	for _, late := range []fixture.Sandbox{old, fresh} {
		n.ok("DEL", conf, late)
		c.counts(4)
	}
	n.ok("DEL", conf, successor)
	c.counts(3)
}

// GC releases this node's attachments that the runtime does not know, and nothing
// of another node or another network. No list is an error, never an empty one.
func TestGC(t *testing.T) {
	c := newCluster(t)
	c.pools(dualPools)
	n, other := c.node("node-a", nil), c.node("node-b", nil)
	conf := n.conf(dual, nil)
	keep, lost, elsewhere, storage := c.pod("keep", nil), c.pod("lost", nil), c.pod("elsewhere", nil), c.pod("storage", nil)
	n.add(conf, keep)
	n.add(conf, lost)
	n.add(n.conf(dual, object{"name": "storage"}), storage)
	other.add(other.conf(dual, nil), elsewhere)
	c.counts(8)
	n.refused("GC", conf, fixture.Sandbox{}, 7, "cni.dev/valid-attachments")
	c.counts(8)
	valid := object{"cni.dev/valid-attachments": []object{{"containerID": keep.ContainerID, "ifname": "eth0"}}}
	for range 2 {
		n.ok("GC", n.conf(dual, valid), fixture.Sandbox{})
		c.counts(6)
	}
	for _, id := range c.held() {
		if id == lost.ContainerID {
			t.Error("GC left the attachment that the runtime does not know")
		}
	}
}

// CHECK tells what the API server says; STATUS whether an ADD could be served.
func TestCheckAndStatus(t *testing.T) {
	c := newCluster(t)
	n := c.node("node-a", nil)
	n.refused("STATUS", n.conf(nil, nil), fixture.Sandbox{}, 50, "no IPv4 pool", "IPPool")
	c.apply(poolManifest("v4", "cidr: 10.64.0.0/24"))
	n.refused("STATUS", n.conf(nil, nil), fixture.Sandbox{}, 50, "v4")
	c.admit()
	n.ok("STATUS", n.conf(nil, nil), fixture.Sandbox{})

	web, db := c.pod("web-0", nil), c.pod("db-0", nil)
	has := n.add(n.conf(nil, nil), web)
	others := n.add(n.conf(nil, nil), db)
	prev := func(a string) []byte {
		return n.conf(nil, object{"prevResult": object{"cniVersion": "1.1.0", "ips": []object{{"address": a}}}})
	}
	n.ok("CHECK", prev(has.IPs[0].Address.String()), web)
	n.refused("CHECK", prev(others.IPs[0].Address.String()), web, 100, "belongs to", "db-0")
	n.refused("CHECK", prev("10.64.0.250/24"), web, 100, "10.64.0.250 is free")
	n.ok("DEL", n.conf(nil, nil), web)
	n.refused("CHECK", prev(has.IPs[0].Address.String()), web, 100, has.Addrs()[0].String())
}
