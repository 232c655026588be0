// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
	"github.com/allod/allod/test/fixture"
)

// What an ADD reads that finds an address in a block of its node: the configuration,
// pools, reservations, the node's blocks and affinities, the pod, its namespace.
const warmReads = 7

// budget prints what a call of the plugin cost and holds it to its limit.
func (n *node) budget(what string, maxReads, maxWrites int) []call {
	n.t.Helper()
	calls := n.log.take(n.t)
	r, w := reads(calls), writes(calls)
	n.t.Attr("figures", fmt.Sprintf("%s: %d reads, %d writes", what, r, w))
	if r > maxReads || w > maxWrites {
		n.t.Errorf("%s: %d reads, %d writes; want at most %d, %d", what, r, w, maxReads, maxWrites)
		for _, c := range calls {
			n.t.Logf("%s %d %s?%s", c.method, c.status, c.path, c.query.Encode())
		}
	}
	if len(calls) == 0 {
		n.t.Errorf("%s: no call was logged", what)
	}
	return calls
}

// needs reports whether one of the calls was of this right.
func needs(calls []call, resource, verb string) bool {
	for _, c := range calls {
		if r := c.right(); r.resource == resource && r.verb == verb {
			return true
		}
	}
	return false
}

// The API calls of ADD, of DEL, and of CHECK and STATUS, stay in their budgets.
func TestCalls(t *testing.T) {
	c := newCluster(t)
	c.pools(dualPools)
	n := c.node("node-a", map[string]string{"rack": "r1"})
	one, both := n.conf(nil, nil), n.conf(dual, nil)
	cold, warm, two := c.pod("cold", nil), c.pod("warm", nil), c.pod("two", nil)

	n.add(one, cold)
	// Beyond the warm reads: the pool, read live. The LIST of affinities is of everybody's,
	// because the node's blocks have no room.
	n.budget("cold ADD, which claims a block", warmReads+1, 3)
	res := n.add(one, warm)
	if calls := n.budget("warm ADD", warmReads, 1); needs(calls, "nodes", "get") {
		t.Error("a warm ADD reads the Node, and no pool has a nodeSelector")
	}
	n.add(both, two) // claims the IPv6 block
	n.log.take(t)
	dualPod := c.pod("dual", nil)
	n.add(both, dualPod)
	n.budget("warm ADD, dual stack", warmReads, 2)
	n.add(one, warm)
	n.budget("repeated ADD", warmReads, 0)

	prev := object{"prevResult": object{"cniVersion": "1.1.0", "ips": []object{{"address": res.IPs[0].Address.String()}}}}
	n.ok("CHECK", n.conf(nil, prev), warm)
	n.budget("CHECK", 1, 0)
	n.ok("STATUS", one, fixture.Sandbox{})
	n.budget("STATUS", 4, 0)

	n.ok("DEL", one, warm)
	isLabelledList(t, n.budget("DEL", 1, 1))
	n.ok("DEL", both, dualPod)
	isLabelledList(t, n.budget("DEL, dual stack", 1, 2))
	n.ok("DEL", one, warm)
	isLabelledList(t, n.budget("DEL of nothing", 1, 0))

	c.patch(v1alpha1.KindPool, "v4", `{"spec":{"nodeSelector":"rack=r1"}}`)
	c.admit()
	n.add(one, c.pod("selected", nil))
	if calls := n.budget("warm ADD, the pool has a nodeSelector", warmReads+1, 1); !needs(calls, "nodes", "get") {
		t.Error("the Node was not read")
	}
}

// isLabelledList wants the one read of a DEL to be a consistent LIST by label: what
// it does not show is absent (INV-10), and its cost is that of the node's blocks.
func isLabelledList(t *testing.T, calls []call) {
	t.Helper()
	for _, c := range calls {
		if !c.isRead() {
			continue
		}
		if c.right() != (right{v1alpha1.Group, "ipamblocks", "list"}) || c.query.Get("resourceVersion") != "" ||
			c.query.Get("labelSelector") != v1alpha1.NodeLabel("node-a")+"=" {
			t.Errorf("DEL reads %s?%s; want a consistent LIST of the node's blocks", c.path, c.query.Encode())
		}
	}
}

// A pool of 128 blocks in which one address is left, and then none, costs three
// calls more than a warm ADD (case E3).
func TestCallsAtTheEndOfAPool(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.0.0.0/24, blockSize: 31"))
	n := c.node("node-a", nil)
	c.fill("10.0.0.0/24", 255)
	beyond := func(what string, calls []call) {
		t.Helper()
		if more := len(calls) - warmReads; more > 3 {
			t.Errorf("%s: %d calls beyond the warm reads, want at most 3", what, more)
		}
	}
	n.add(n.conf(nil, nil), c.pod("last", nil))
	beyond("last address", n.budget("ADD of the last address of 128 blocks", warmReads+1, 1))
	n.refused("ADD", n.conf(nil, nil), c.pod("none", nil), 11, "v4 (10.0.0.0/24)", "0 free and 0 cooling", "add a pool")
	beyond("full pool", n.budget("ADD when 128 blocks are full", warmReads+3, 0))
	c.counts(256)
}

// fill has a host take n addresses of the only pool, with claims without a cap.
func (c *cluster) fill(cidr string, n int) {
	c.t.Helper()
	c.apply("apiVersion: ipam.allod.io/v1alpha1\nkind: IPAMConfiguration\nmetadata: {name: default}\nspec: {maxBlocksPerHost: 1000}\n")
	got, err := c.library().Attach(c.t.Context(), ipam.AttachRequest{AutoAssignRequest: ipam.AutoAssignRequest{
		Num4: n, Host: pool.Node{Name: "filler"}, Use: pool.UseWorkload, Pools4: []string{cidr},
		Owner: block.Owner{Network: "k8s-pod-network", Namespace: namespace, Pod: "filler", PodUID: "filler", ContainerID: "filler", IfName: "eth0"},
	}})
	must(c.t, err)
	if len(got.V4) != n {
		c.t.Fatalf("the filler got %d addresses", len(got.V4))
	}
	must(c.t, c.kinds.Resource(v1alpha1.Resource(v1alpha1.KindConfiguration)).DeleteCollection(c.t.Context(), deleteNow, everything))
}

// A DEL writes each block once, whatever it held there.
func TestCallsOfDelOverSeveralBlocks(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.0.0.0/28, blockSize: 30"))
	n := c.node("node-a", nil)
	s := c.pod("web-0", map[string]string{"ipam.allod.io/ipAddrs": `["10.0.0.1","10.0.0.2","10.0.0.5","10.0.0.6"]`})
	res := n.add(n.conf(nil, nil), s)
	sameAddrs(t, "given addresses", []netip.Addr{
		netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.6"),
	}, res.Addrs())
	n.log.take(t)
	n.ok("DEL", n.conf(nil, nil), s)
	calls := n.budget("DEL of 4 addresses in 2 blocks", 1, 2)
	if answered(calls, http.StatusOK) != 3 {
		t.Errorf("calls %v; want all answered 200", calls)
	}
	c.counts(0)
}
