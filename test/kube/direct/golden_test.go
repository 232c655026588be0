// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/test/fixture"
)

// scenarios are the ways of direct mode through an API server, each on an empty
// cluster. Together they need every right of a node, and no other.
var scenarios = []struct {
	name string
	run  func(c *cluster) *node
}{
	{"every verb", everyVerb},
	{"a node selector", nodeSelected},
	{"a pending affinity that a crash left is completed", pendingCompleted},
	{"a pending affinity for another's block goes", pendingWithdrawn},
	{"the pool is closed between affinity and block", poolClosed},
	{"a block is borrowed", borrowed},
	{"a confirmed affinity without a block is rebuilt", rebuilt},
	{"another node's empty block is reclaimed, and its affinity goes", reclaimed},
	{"a block changes between LIST and PUT", conflicted},
}

// The manifest grants what is used, and nothing else. (That the agent's own list,
// which STATUS asks about, is the same is TestAccessIsTheManifests of agent/node.)
func TestGrantedIsUsed(t *testing.T) {
	granted := rightsOf(t, rbacFile())
	var used []right
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			n := s.run(newCluster(t))
			n.c.settled()
			used = append(used, rights(n.log.all(t))...)
		})
	}
	for _, r := range granted {
		if !slices.Contains(used, r) {
			t.Errorf("the manifest grants %s, and nothing uses it", r)
		}
	}
	for _, r := range used {
		if !slices.Contains(granted, r) && r != review {
			t.Errorf("%s is used, and the manifest does not grant it", r)
		}
	}
}

const tiny = "cidr: 10.0.0.0/30, blockSize: 30" // one block of four

var tinyBlock = netip.MustParsePrefix("10.0.0.0/30")

func (n *node) claimOf(cidr netip.Prefix) datastore.AffinityKey {
	return datastore.AffinityKey{Owner: block.Host(n.name), CIDR: cidr}
}

// claims stores an affinity as a crash of the node would have left it.
func (n *node) claims(cidr netip.Prefix, state datastore.AffinityState) {
	n.t.Helper()
	_, err := n.c.store.Store().Affinities.Create(n.t.Context(), n.claimOf(cidr), datastore.Affinity{State: state, Pool: "v4", BlockSeq: 1})
	must(n.t, err)
}

func everyVerb(c *cluster) *node {
	c.pools(dualPools)
	n := c.node("node-a", nil)
	conf, a, b := n.conf(dual, nil), c.pod("a", nil), c.pod("b", nil)
	n.ok("STATUS", conf, fixture.Sandbox{})
	res := n.add(conf, a)
	n.add(conf, b)
	prev := object{"prevResult": object{"cniVersion": "1.1.0", "ips": []object{{"address": res.IPs[0].Address.String()}, {"address": res.IPs[1].Address.String()}}}}
	n.ok("CHECK", n.conf(dual, prev), a)
	n.refused("CHECK", n.conf(dual, prev), b, 100, "belongs to")
	n.ok("GC", n.conf(dual, object{"cni.dev/valid-attachments": []object{{"containerID": a.ContainerID, "ifname": "eth0"}}}), fixture.Sandbox{})
	c.counts(2)
	n.ok("DEL", conf, a)
	c.counts(0)
	return n
}

func nodeSelected(c *cluster) *node {
	c.pools(poolManifest("v4", "cidr: 10.0.0.0/24, nodeSelector: rack=r1"))
	n, other := c.node("node-a", map[string]string{"rack": "r1"}), c.node("node-b", nil)
	n.ok("STATUS", n.conf(nil, nil), fixture.Sandbox{})
	n.add(n.conf(nil, nil), c.pod("a", nil))
	other.refused("STATUS", other.conf(nil, nil), fixture.Sandbox{}, 50, "v4", "rack=r1")
	other.refused("ADD", other.conf(nil, nil), c.pod("b", nil), 7, "v4", "rack=r1", "node-b")
	c.counts(1)
	return n
}

func pendingCompleted(c *cluster) *node {
	c.pools(poolManifest("v4", tiny))
	n := c.node("node-a", nil)
	n.claims(tinyBlock, datastore.Pending)
	n.add(n.conf(nil, nil), c.pod("a", nil))
	c.counts(1)
	return n
}

func pendingWithdrawn(c *cluster) *node {
	c.pools(poolManifest("v4", "cidr: 10.0.0.0/29, blockSize: 30"))
	n, other := c.node("node-a", nil), c.node("node-b", nil)
	other.add(other.conf(nil, nil), c.pod("b", nil))
	theirs := c.blocks()[0].Key
	n.claims(theirs, datastore.Pending)
	n.add(n.conf(nil, nil), c.pod("a", nil))
	if _, there := c.affinities()[n.claimOf(theirs)]; there {
		c.t.Error("the node still has an affinity for the other's block")
	}
	c.counts(2)
	return n
}

func poolClosed(c *cluster) *node {
	c.pools(poolManifest("v4", tiny))
	n, closed := c.node("node-a", nil), false
	lib := n.library(func(r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/blockaffinities") {
			n.c.patch(v1alpha1.KindPool, "v4", `{"spec":{"disabled":true}}`) // the GET of the pool comes after
			closed = true
		}
	})
	_, err := lib.Attach(c.t.Context(), n.attachRequest(c.pod("a", nil)))
	if !errors.Is(err, ipam.ErrNoPool) || !closed {
		c.t.Errorf("%v; want that no pool can serve it", err)
	}
	if left := c.affinities(); len(left) != 0 || len(c.blocks()) != 0 {
		c.t.Errorf("left: affinities %v, blocks %v", left, c.blocks())
	}
	return n
}

func borrowed(c *cluster) *node {
	c.pools(poolManifest("v4", tiny))
	n, other := c.node("node-a", nil), c.node("node-b", nil)
	other.add(other.conf(nil, nil), c.pod("b", nil))
	a := c.pod("a", nil)
	n.add(n.conf(nil, nil), a)
	if e := c.blocks()[0]; e.Value.Affinity != block.Host("node-b") {
		c.t.Errorf("the block is of %s", e.Value.Affinity)
	}
	n.ok("DEL", n.conf(nil, nil), a)
	c.counts(1)
	return n
}

func rebuilt(c *cluster) *node {
	c.pools(poolManifest("v4", tiny))
	n := c.node("node-a", nil)
	n.claims(tinyBlock, datastore.Confirmed)
	n.add(n.conf(nil, nil), c.pod("a", nil))
	if e := c.blocks(); len(e) != 1 || e[0].Value.Seq <= 1 {
		c.t.Errorf("blocks %v; want one, above the affinity's sequence (INV-15)", e)
	}
	return n
}

func reclaimed(c *cluster) *node {
	c.pools(poolManifest("v4", tiny))
	n, other := c.node("node-a", nil), c.node("node-b", nil)
	b := c.pod("b", nil)
	n.add(n.conf(nil, nil), b)
	n.ok("DEL", n.conf(nil, nil), b)
	longAgo := c.store.Now().Add(-2 * time.Minute).UTC().Format(time.RFC3339)
	c.patch(v1alpha1.KindBlock, v1alpha1.BlockName(tinyBlock), `{"spec":{"claimedAt":"`+longAgo+`"}}`)
	other.add(other.conf(nil, nil), c.pod("c", nil))
	if e := c.blocks()[0]; e.Value.Affinity != block.Host("node-b") {
		c.t.Errorf("the block is of %s", e.Value.Affinity)
	}
	n.add(n.conf(nil, nil), c.pod("d", nil)) // borrows, and finds that its claim is void
	c.counts(2)
	return n
}

func conflicted(c *cluster) *node {
	c.pools(poolManifest("v4", tiny))
	n := c.node("node-a", nil)
	n.add(n.conf(nil, nil), c.pod("a", nil))
	done := false
	lib := n.library(func(r *http.Request) {
		if r.Method == http.MethodPut && !done {
			done = true
			n.c.patch(v1alpha1.KindBlock, v1alpha1.BlockName(tinyBlock), `{"metadata":{"labels":{"example.com/touched":"yes"}}}`)
		}
	})
	_, err := lib.Attach(c.t.Context(), n.attachRequest(c.pod("b", nil)))
	must(c.t, err)
	if calls := n.log.all(c.t); answered(calls, http.StatusConflict) != 1 || !needs(calls, "ipamblocks", "get") {
		c.t.Errorf("calls %v; want one conflict, and then a GET of the block", calls)
	}
	c.counts(2)
	return n
}
