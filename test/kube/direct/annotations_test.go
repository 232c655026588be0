// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/allod/allod/test/fixture"
)

const (
	ipv4Pools  = "ipam.allod.io/ipv4pools"
	ipv6Pools  = "ipam.allod.io/ipv6pools"
	ipFamilies = "ipam.allod.io/ipFamilies"
	ipAddrs    = "ipam.allod.io/ipAddrs"
)

// choice is four IPv4 pools and one IPv6 pool. Their first three numbers tell them apart.
var choice = poolManifest("auto", "cidr: 10.1.0.0/24") +
	poolManifest("conf", "cidr: 10.2.0.0/24, assignmentMode: Manual") +
	poolManifest("ns", "cidr: 10.3.0.0/24, assignmentMode: Manual") +
	poolManifest("pod", "cidr: 10.4.0.0/24, assignmentMode: Manual") +
	poolManifest("six", `cidr: "fd00:6::/120"`)

// from are the prefixes that addresses must begin with, one each, in order.
func from(t *testing.T, res fixture.Result, want ...string) {
	t.Helper()
	got := res.Addrs()
	ok := len(got) == len(want)
	for i := range got {
		ok = ok && strings.HasPrefix(got[i].String(), want[i])
	}
	if !ok {
		t.Errorf("got %v, want addresses from %q", got, want)
	}
}

// A pod's annotation goes before its namespace's, and that before the network's
// configuration; without any the automatic pools serve.
func TestAnnotationPrecedence(t *testing.T) {
	c := newCluster(t)
	c.pools(choice)
	n := c.node("node-a", nil)
	configured := object{"ipv4Pools": []string{"conf"}}
	for _, tt := range []struct {
		name    string
		pod, ns map[string]string
		conf    object
		want    []string
	}{
		{"nothing said", nil, nil, nil, []string{"10.1."}},
		{"the configuration's pool", nil, nil, configured, []string{"10.2."}},
		{"the namespace's pool", nil, map[string]string{ipv4Pools: `["ns"]`}, configured, []string{"10.3."}},
		{"the pod's pool", map[string]string{ipv4Pools: `["pod"]`}, map[string]string{ipv4Pools: `["ns"]`}, configured, []string{"10.4."}},
		{"a pool by its CIDR", map[string]string{ipv4Pools: `["10.4.0.0/24"]`}, nil, nil, []string{"10.4."}},
		{"the configuration's families", nil, nil, dual, []string{"10.1.", "fd00:6:"}},
		{"the namespace's families", nil, map[string]string{ipFamilies: `["IPv6"]`}, dual, []string{"fd00:6:"}},
		{"the pod's families", map[string]string{ipFamilies: `["IPv4"]`}, map[string]string{ipFamilies: `["IPv6"]`}, dual, []string{"10.1."}},
		{"the pod's families, the namespace's pool", map[string]string{ipFamilies: `["IPv4","IPv6"]`}, map[string]string{ipv4Pools: `["ns"]`, ipv6Pools: `["six"]`}, nil, []string{"10.3.", "fd00:6:"}},
		{"given addresses", map[string]string{ipAddrs: `["10.4.0.9"]`}, nil, nil, []string{"10.4.0.9"}},
		{
			"several given addresses of both families",
			map[string]string{ipAddrs: `["10.4.0.20","10.4.0.21","fd00:6::20","fd00:6::21"]`},
			nil, nil,
			[]string{"10.4.0.20", "10.4.0.21", "fd00:6::20", "fd00:6::21"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := n.in(t)
			n.c.namespace("annotated", nil, tt.ns)
			s := n.c.podIn("annotated", "web-"+fixture.Digest(tt.name)[:8], tt.pod)
			conf := n.conf(tt.conf, nil)
			res := n.add(conf, s)
			from(t, res, tt.want...)
			sameAddrs(t, "repeated", res.Addrs(), n.add(conf, s).Addrs())
			n.c.counts(len(tt.want))
			n.ok("DEL", conf, s)
			n.c.counts(0)
		})
	}
}

// A given address that somebody has is not given twice, and the message says who.
func TestGivenAddressInUse(t *testing.T) {
	c := newCluster(t)
	c.pools(choice)
	n := c.node("node-a", nil)
	first, second := c.pod("first", map[string]string{ipAddrs: `["10.4.0.9"]`}), c.pod("second", map[string]string{ipAddrs: `["10.4.0.10", "10.4.0.9"]`})
	n.add(n.conf(nil, nil), first)
	n.refused("ADD", n.conf(nil, nil), second, 11, "10.4.0.9", "shop/first", "node-a")
	c.counts(1) // all or none (INV-11)
	n.ok("DEL", n.conf(nil, nil), first)
	n.add(n.conf(nil, nil), second)
	c.counts(2)
}

// Addresses that the runtime gives are served as well, and never beside those of an
// annotation.
func TestGivenByTheRuntime(t *testing.T) {
	c := newCluster(t)
	c.pools(choice)
	n := c.node("node-a", nil)
	plain, both := c.pod("plain", map[string]string{ipFamilies: `["IPv6"]`}), c.pod("both", map[string]string{ipAddrs: `["10.4.0.9"]`})
	plain.IP, both.IP = "10.4.0.8", "10.4.0.10"
	from(t, n.add(n.conf(nil, nil), plain), "10.4.0.8")
	n.refused("ADD", n.conf(nil, nil), both, 7, "pod annotation "+ipAddrs, "use one of the two")
	c.counts(1)
}

// What an annotation says wrongly is refused with its name: a pod must not silently
// get another address than it asked for.
func TestWrongAnnotations(t *testing.T) {
	c := newCluster(t)
	c.pools(choice)
	n := c.node("node-a", nil)
	for _, tt := range []struct {
		name    string
		pod, ns map[string]string
		words   []string
	}{
		{"no JSON", map[string]string{ipv4Pools: "pod"}, nil, []string{"pod annotation " + ipv4Pools, "JSON"}},
		{"no JSON in the namespace", nil, map[string]string{ipv6Pools: "{}"}, []string{"namespace annotation " + ipv6Pools, "JSON"}},
		{"no list", map[string]string{ipv4Pools: `"pod"`}, nil, []string{"pod annotation " + ipv4Pools}},
		{"an empty list", map[string]string{ipFamilies: `[]`}, nil, []string{"pod annotation " + ipFamilies}},
		{"a family that does not exist", map[string]string{ipFamilies: `["IPv5"]`}, nil, []string{"pod annotation " + ipFamilies, "IPv5"}},
		{"no address", map[string]string{ipAddrs: `["10.4.0"]`}, nil, []string{"pod annotation " + ipAddrs, "10.4.0"}},
		{"addresses of a namespace", nil, map[string]string{ipAddrs: `["10.4.0.9"]`}, []string{"namespace annotation " + ipAddrs}},
		{"a pool that does not exist", map[string]string{ipv4Pools: `["typo"]`}, nil, []string{"typo"}},
		{"a pool of the other family", map[string]string{ipv4Pools: `["six"]`}, nil, []string{"six"}},
		{"an address of no pool", map[string]string{ipAddrs: `["10.9.0.9"]`}, nil, []string{"10.9.0.9"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := n.in(t)
			n.c.namespace("annotated", nil, tt.ns)
			s := n.c.podIn("annotated", "web-"+fixture.Digest(tt.name)[:8], tt.pod)
			n.refused("ADD", n.conf(nil, nil), s, 7, tt.words...)
			n.c.counts(0)
			n.ok("DEL", n.conf(nil, nil), s)
		})
	}
	if calls := n.log.all(t); writes(calls) != 0 {
		t.Errorf("%d writes for requests that ask wrongly", writes(calls))
	}
}

// Selectors always apply, also to a pool that is named.
func TestSelectors(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("any", "cidr: 10.1.0.0/24") +
		poolManifest("tenant", "cidr: 10.2.0.0/24, namespaceSelector: team=red") +
		poolManifest("rack", "cidr: 10.3.0.0/24, nodeSelector: rack=r1, assignmentMode: Manual"))
	in, out := c.node("node-a", map[string]string{"rack": "r1"}), c.node("node-b", nil)
	c.namespace("red", map[string]string{"team": "red"}, nil)
	c.namespace("blue", map[string]string{"team": "blue"}, nil)

	tenant := object{"ipv4Pools": []string{"tenant"}}
	from(t, in.add(in.conf(tenant, nil), c.podIn("red", "a", nil)), "10.2.")
	in.refused("ADD", in.conf(tenant, nil), c.podIn("blue", "a", nil), 7, "tenant", "team=red", "blue")

	rack := map[string]string{ipv4Pools: `["rack"]`}
	from(t, in.add(in.conf(nil, nil), c.podIn("blue", "b", rack)), "10.3.")
	out.refused("ADD", out.conf(nil, nil), c.podIn("blue", "c", rack), 7, "rack", "rack=r1", "node-b")
	given := map[string]string{ipAddrs: `["10.3.0.77"]`}
	out.refused("ADD", out.conf(nil, nil), c.podIn("blue", "d", given), 7, "10.3.0.77")
	sameAddrs(t, "a given address", []netip.Addr{netip.MustParseAddr("10.3.0.77")},
		in.add(in.conf(nil, nil), c.podIn("blue", "e", given)).Addrs())
	c.counts(3)
}
