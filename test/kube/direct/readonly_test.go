// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/test/fixture"
)

// revisions are the objects that there are, and what each was written last as.
func (c *cluster) revisions() map[string]string {
	c.t.Helper()
	all := map[string]string{}
	for _, kind := range []string{
		v1alpha1.KindPool, v1alpha1.KindReservation, v1alpha1.KindConfiguration, v1alpha1.KindBlock,
		v1alpha1.KindAffinity, v1alpha1.KindHandle, v1alpha1.KindTunnelEndpoint,
	} {
		list, err := c.kinds.Resource(v1alpha1.Resource(kind)).List(c.t.Context(), metav1.ListOptions{})
		must(c.t, err)
		for _, o := range list.Items {
			all[kind+" "+o.GetName()] = o.GetResourceVersion()
		}
	}
	return all
}

// INV-12, cases R11 and R16: CHECK and STATUS write nothing, whatever they find: no
// default object, no repair, no release. STATUS asks once what its account may do.
func TestReadsNeverWrite(t *testing.T) {
	c := newCluster(t)
	c.pools(dualPools)
	n := c.node("node-a", nil)
	web, db := c.pod("web-0", nil), c.pod("db-0", nil)
	res := n.add(n.conf(nil, nil), web)
	n.add(n.conf(nil, nil), db)
	// What an ADD would put right: a claim for a block that is not there, and no
	// affinity for the one that is.
	must(t, c.kinds.Resource(v1alpha1.Resource(v1alpha1.KindAffinity)).DeleteCollection(t.Context(), deleteNow, everything))
	n.claims(c.blocks()[0].Key.Masked(), datastore.Pending)
	before := c.revisions()
	n.log.take(t)

	prev := func(addr string) []byte {
		return n.conf(nil, object{"prevResult": object{"cniVersion": "1.1.0", "ips": []object{{"address": addr}}}})
	}
	stranger := web
	stranger.ContainerID = fixture.Digest("stranger")
	n.ok("CHECK", prev(res.IPs[0].Address.String()), web)
	n.refused("CHECK", prev(res.IPs[0].Address.String()), stranger, 100)
	n.refused("CHECK", prev("10.64.0.200/24"), stranger, 100, "is free")
	n.refused("CHECK", prev("192.0.2.1/24"), stranger, 100, "192.0.2.1")
	for _, call := range n.log.take(t) {
		if call.method != "GET" {
			t.Errorf("CHECK calls %s %s", call.method, call.path)
		}
	}
	for _, conf := range [][]byte{n.conf(nil, nil), n.conf(dual, nil), n.conf(object{"ipv4Pools": []string{"v4"}}, nil)} {
		n.ok("STATUS", conf, fixture.Sandbox{})
		reviews := 0
		for _, call := range n.log.take(t) {
			switch {
			case call.right() == review:
				reviews++
			case call.method != "GET":
				t.Errorf("STATUS calls %s %s", call.method, call.path)
			}
		}
		if reviews != 1 {
			t.Errorf("STATUS asks %d times what its account may do, want once", reviews)
		}
	}
	n.refused("STATUS", n.conf(object{"ipv4Pools": []string{"typo"}}, nil), fixture.Sandbox{}, 50, "typo")
	if d := cmp.Diff(before, c.revisions()); d != "" {
		t.Errorf("objects were written (-before +after):\n%s", d)
	}
}
