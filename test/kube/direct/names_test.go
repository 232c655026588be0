// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"strings"
	"testing"

	"github.com/allod/allod/test/fixture"
)

// longName is a DNS subdomain of 253 characters that ends with a letter of one's own.
func longName(last string) string {
	part := strings.Repeat("x", 63)
	return strings.Join([]string{part, part, part, strings.Repeat("y", 60) + last}, ".")
}

// Case S5: names of pods, nodes and pools at the limit of 253 characters, and of a
// namespace at its 63, two of which differ in the last letter only.
func TestLongNames(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest(longName("p"), "cidr: 10.0.0.0/29, blockSize: 30") + poolManifest(longName("q"), "cidr: 10.1.0.0/29, blockSize: 30"))
	ns := strings.Repeat("n", 63)
	c.namespace(ns, nil, nil)
	nodes := []*node{c.node(longName("a"), nil), c.node(longName("b"), nil)}
	conf := object{"ipv4Pools": []string{longName("q")}}
	var pods []fixture.Sandbox
	for i, n := range nodes {
		s := c.podIn(ns, longName(string(rune('a'+i))), nil)
		pods = append(pods, s)
		n.ok("STATUS", n.conf(conf, nil), fixture.Sandbox{})
		res := n.add(n.conf(conf, nil), s)
		from(t, res, "10.1.0.")
		sameAddrs(t, "repeated", res.Addrs(), n.add(n.conf(conf, nil), s).Addrs())
		prev := object{"prevResult": object{"cniVersion": "1.1.0", "ips": []object{{"address": res.IPs[0].Address.String()}}}}
		n.ok("CHECK", n.conf(conf, prev), s)
	}
	if claims := c.affinities(); len(claims) != 2 {
		t.Errorf("affinities %v; want one of each node", claims)
	}
	for _, e := range c.blocks() {
		if e.Value.Pool != longName("q") {
			t.Errorf("block %s is of pool %q", e.Key, e.Value.Pool)
		}
		for a, slot := range e.Value.All() {
			o := slot.Active
			if len(o.Node) != 253 || len(o.Pod) != 253 || o.Node[252] != o.Pod[252] || o.Namespace != ns {
				t.Errorf("%s is of %+v", a, o)
			}
		}
	}
	for i, n := range nodes { // the other node's DEL finds nothing of its own
		n.ok("DEL", n.conf(conf, nil), pods[1-i])
		c.counts(2)
	}
	for i, n := range nodes {
		n.ok("DEL", n.conf(conf, nil), pods[i])
		c.counts(1 - i)
	}
	c.settled()
}
