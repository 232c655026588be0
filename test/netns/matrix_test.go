// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/test/fixture"
)

// The manifests that the masks go with: with mask pool the gateway is one address
// of the pool on every node, with mask block it is the first of each block, and a
// node has one block (a bridge holds one IPv4 gateway).
const (
	poolMaskManifest = `
apiVersion: ipam.allod.io/v1alpha1
kind: IPPool
metadata: {name: default-v4}
spec: {cidr: 10.64.0.0/16, gateway: 10.64.0.1}
---
apiVersion: ipam.allod.io/v1alpha1
kind: IPPool
metadata: {name: default-v6}
spec: {cidr: "fd00:64::/112", gateway: "fd00:64::1"}
`
	blockMaskManifest = `
apiVersion: ipam.allod.io/v1alpha1
kind: IPPool
metadata: {name: default-v4}
spec: {cidr: 10.64.0.0/16, gateway: first}
---
apiVersion: ipam.allod.io/v1alpha1
kind: IPPool
metadata: {name: default-v6}
spec: {cidr: "fd00:64::/112", gateway: first}
---
apiVersion: ipam.allod.io/v1alpha1
kind: IPAMConfiguration
metadata: {name: default}
spec: {strictAffinity: true, autoAllocateBlocks: true, maxBlocksPerHost: 1}
`
)

// mainPlugin is a reference main plugin in one of its set-ups.
type mainPlugin struct {
	name string
	conf object
	// shared: the plugin puts pods on a segment and leaves the gateway to a router
	// on it. The router's cable ends in up0 on the node.
	shared bool
}

var mainPlugins = []mainPlugin{
	{name: "ptp", conf: object{"type": "ptp"}},
	{name: "bridge isGateway", conf: object{"type": "bridge", "bridge": "cni0", "isGateway": true}},
	{name: "bridge plain", conf: object{"type": "bridge", "bridge": segment}, shared: true},
	{name: "macvlan", conf: object{"type": "macvlan", "master": segment, "mode": "bridge"}, shared: true},
}

// segment is a bridge of the node that the router's cable is plugged into.
const segment = "lan0"

type mask struct {
	name     string
	manifest string
	bits     map[bool]int // IPv4: length of the prefix in the result
}

var masks = []mask{
	{"pool", poolMaskManifest, map[bool]int{true: 16, false: 112}},
	{"block", blockMaskManifest, map[bool]int{true: 26, false: 122}},
}

// TestMainPlugins: two pods through each main plugin: the result, what the kernel
// has of it, traffic, CHECK, and nothing left after DEL.
func TestMainPlugins(t *testing.T) {
	for _, m := range mainPlugins {
		for _, k := range masks {
			for _, families := range [][]string{{"IPv4"}, {"IPv6"}, {"IPv4", "IPv6"}} {
				t.Run(m.name+" mask "+k.name+" "+strings.Join(families, "+"), func(t *testing.T) {
					t.Parallel()
					c := mainCase{rig: newRig(t, k.manifest), node: newNode(t), main: m, mask: k, families: families}
					c.run(t)
				})
			}
		}
	}
}

type mainCase struct {
	*rig
	node     *node
	main     mainPlugin
	mask     mask
	families []string
	list     *libcni.NetworkConfigList
	router   *fixture.Netns
}

// member is one pod of a case.
type member struct {
	sandbox fixture.Sandbox
	ns      *fixture.Netns
	result  *types100.Result
}

func (c *mainCase) run(t *testing.T) {
	c.list = c.network("k8s-pod-network", c.main.conf, object{"families": c.families, "mask": c.mask.name})
	if c.main.shared {
		c.router = newNetns(t, workspace, name(t, "router"))
		if err := fixture.Cable(c.node.Node, "up0", c.router, "eth0"); err != nil {
			t.Fatal(err)
		}
		if err := c.node.Node.Segment(segment, "up0"); err != nil {
			t.Fatal(err)
		}
	}
	pods := []member{c.attach(t, "web-0"), c.attach(t, "web-1")}
	if t.Failed() {
		return
	}
	c.counts(2*len(c.families), 0)
	for i, p := range pods {
		for _, a := range resultAddrs(pods[1-i].result) {
			ping(t, p.ns, a)
		}
		for _, ip := range p.result.IPs {
			if c.main.shared {
				c.routerAddr(t, ip)
			}
			ping(t, p.ns, prefixOf(ip).gateway)
		}
		if err := c.node.Check(t.Context(), c.list, p.sandbox); err != nil {
			t.Error(err)
		}
	}
	for range 2 { // the second DEL finds nothing and is a success (INV-10)
		for _, p := range pods {
			if err := c.node.Del(t.Context(), c.list, p.sandbox); err != nil {
				t.Error(err)
			}
		}
	}
	for _, p := range pods {
		if _, err := p.ns.Addrs("eth0"); err == nil {
			t.Errorf("%s still has eth0 after DEL", p.ns.Name)
		}
	}
	c.counts(0, 0)
	c.clean()
}

// attach adds a pod and compares the result, and the kernel's state, with what
// the pool and the mask ask for.
func (c *mainCase) attach(t *testing.T, podName string) member {
	t.Helper()
	m := member{sandbox: pod(podName), ns: newNetns(t, workspace, name(t, podName))}
	m.sandbox.Netns = m.ns.Path
	var err error
	if m.result, err = c.node.Add(t.Context(), c.list, m.sandbox); err != nil {
		t.Fatal(err)
	}
	var families []string
	var want []netip.Prefix
	wantRoutes := map[netip.Prefix]netip.Addr{}
	for _, ip := range m.result.IPs {
		p := prefixOf(ip)
		families = append(families, map[bool]string{true: "IPv4", false: "IPv6"}[p.prefix.Addr().Is4()])
		want = append(want, p.prefix)
		if bits := c.mask.bits[p.prefix.Addr().Is4()]; p.prefix.Bits() != bits {
			t.Errorf("%s: the mask is /%d, want /%d", p.prefix, p.prefix.Bits(), bits)
		}
		// The first address after the network's is the pool's gateway in one
		// manifest; the first itself is the block's in the other.
		gateway := p.prefix.Masked().Addr()
		if c.mask.name == "pool" {
			gateway = gateway.Next()
		}
		if p.gateway != gateway || p.gateway == p.prefix.Addr() {
			t.Errorf("%s: the gateway is %s, want %s", p.prefix, p.gateway, gateway)
		}
		wantRoutes[fixture.DefaultRoute(p.prefix.Addr().Is4())] = gateway
	}
	if diff := cmp.Diff(c.families, families); diff != "" {
		t.Errorf("families of the result (-want +got):\n%s", diff)
	}
	c.kernel(t, m.ns, want, wantRoutes)
	return m
}

// kernel compares what the pod's interface has with the result.
func (c *mainCase) kernel(t *testing.T, ns *fixture.Netns, want []netip.Prefix, wantRoutes map[netip.Prefix]netip.Addr) {
	t.Helper()
	got, err := ns.Addrs("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("addresses of eth0 (-want +got):\n%s", diff)
	}
	routes, err := ns.Routes("eth0")
	if err != nil {
		t.Fatal(err)
	}
	gotRoutes := map[netip.Prefix]netip.Addr{}
	for _, r := range routes {
		if r.Dst.Bits() == 0 {
			gotRoutes[r.Dst] = r.Via
		}
	}
	if diff := cmp.Diff(wantRoutes, gotRoutes, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("default routes (-want +got):\n%s", diff)
	}
}

// routerAddr gives the router the gateway address that a pod was told.
func (c *mainCase) routerAddr(t *testing.T, ip *types100.IPConfig) {
	t.Helper()
	p := prefixOf(ip)
	if err := c.router.AddAddr("eth0", netip.PrefixFrom(p.gateway, p.prefix.Bits())); err != nil {
		t.Fatal(err)
	}
}

type ipConfig struct {
	prefix  netip.Prefix
	gateway netip.Addr
}

func prefixOf(ip *types100.IPConfig) ipConfig {
	a, _ := netip.AddrFromSlice(ip.Address.IP)
	g, _ := netip.AddrFromSlice(ip.Gateway)
	bits, _ := ip.Address.Mask.Size()
	return ipConfig{netip.PrefixFrom(a.Unmap(), bits), g.Unmap()}
}
