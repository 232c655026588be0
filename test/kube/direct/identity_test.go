// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/test/fixture"
)

// An ADD is for a pod that the API server knows under the UID that the runtime says.
func TestPodIdentity(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.1.0.0/24"))
	n := c.node("node-a", nil)
	conf := n.conf(nil, nil)
	old := c.pod("web-0", nil)

	stranger := old
	stranger.Pod = "nobody"
	n.refused("ADD", conf, stranger, 11, "shop/nobody")
	nowhere := old
	nowhere.Namespace = "nowhere"
	n.refused("ADD", conf, nowhere, 11, "nowhere/web-0")
	noName := old
	noName.Pod = ""
	n.refused("ADD", conf, noName, 4, "K8S_POD_NAME")
	c.counts(0)

	// Case D2: the pod is replaced under its name while its sandbox is made.
	c.deletePod(old)
	fresh := c.pod("web-0", map[string]string{ipAddrs: `["10.1.0.9"]`})
	n.refused("ADD", conf, old, 11, old.UID, fresh.UID, "replaced")
	c.counts(0)
	n.add(conf, fresh)
	noUID := again(fresh)
	noUID.UID, noUID.IfName = "", "net1" // a runtime that says none is believed
	n.refused("ADD", conf, noUID, 11, "10.1.0.9")
	for _, s := range []fixture.Sandbox{old, stranger, nowhere, noName} { // DEL needs no pod
		n.ok("DEL", conf, s)
	}
	c.counts(1)
	n.ok("DEL", conf, fresh)
	c.counts(0)
}

// Case S6: the kubelet passes a static pod's hash as its UID; the API server has the
// mirror pod, which has another UID and the hash in an annotation.
func TestStaticPod(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.1.0.0/24"))
	n := c.node("node-a", nil)
	const hash = "0123456789abcdef0123456789abcdef"
	s := c.pod("etcd-node-a", map[string]string{"kubernetes.io/config.hash": hash})
	mirror := s.UID
	s.UID = hash
	n.add(n.conf(nil, nil), s)
	for _, e := range c.blocks() {
		for a, slot := range e.Value.All() {
			if slot.Active.PodUID != hash {
				t.Errorf("%s is recorded for UID %q; want the one that DEL will say, not the mirror's %q", a, slot.Active.PodUID, mirror)
			}
		}
	}
	s.UID = "another"
	n.refused("ADD", n.conf(nil, nil), again(s), 11, "replaced")
	s.UID = hash
	n.ok("DEL", n.conf(nil, nil), s)
	c.counts(0)
}

// unbound writes a kubeconfig with a token of the nodes' account that no Node is in.
func (n *node) unbound() {
	n.t.Helper()
	r, err := n.c.core.CoreV1().ServiceAccounts("kube-system").CreateToken(
		n.t.Context(), "allod-node", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(n.t, err)
	must(n.t, n.c.server.Kubeconfig(n.kubeconfig, r.Status.Token))
}

// A node's name is the one its token is bound to. What is configured may say the same
// or fill it in, and never another node's (case D4). DEL succeeds all the same (INV-10).
func TestNodeName(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.1.0.0/24"))
	n := c.node("node-a", nil)
	c.nodeObject("node-b", nil)
	named := func(name string) object { return object{"nodeName": name} }
	ofNode := func(s fixture.Sandbox, want string) {
		t.Helper()
		for _, e := range c.blocks() {
			for a, slot := range e.Value.All() {
				if slot.State == block.Allocated && slot.Active.ContainerID == s.ContainerID && slot.Active.Node != want {
					t.Errorf("%s is on %q, want %q", a, slot.Active.Node, want)
				}
			}
		}
	}
	s, other := c.pod("a", nil), c.pod("b", nil)
	n.add(n.conf(nil, nil), s)
	ofNode(s, "node-a")
	n.add(n.conf(named("node-a"), nil), other)
	c.counts(2)

	wrong := n.conf(named("node-b"), nil)
	prev := object{"prevResult": object{"cniVersion": "1.1.0", "ips": []object{{"address": "10.1.0.1/24"}}}}
	n.refused("ADD", wrong, c.pod("c", nil), 7, "nodeName", "node-a", "node-b")
	n.refused("CHECK", n.conf(named("node-b"), prev), s, 7, "nodeName", "node-a", "node-b")
	n.refused("GC", n.conf(named("node-b"), object{"cni.dev/valid-attachments": []object{}}), fixture.Sandbox{}, 7, "nodeName")
	n.refused("STATUS", wrong, fixture.Sandbox{}, 7, "nodeName", "node-a", "node-b")
	c.counts(2)
	n.ok("DEL", wrong, s)
	c.counts(1)

	n.unbound()
	n.refused("ADD", n.conf(nil, nil), s, 7, "no node name", "ipam.nodeName")
	n.refused("STATUS", n.conf(nil, nil), fixture.Sandbox{}, 7, "no node name")
	n.add(n.conf(named("node-b"), nil), s)
	ofNode(s, "node-b")
	n.ok("STATUS", n.conf(named("node-b"), nil), fixture.Sandbox{})
	n.ok("DEL", n.conf(nil, nil), s) // without a name every block is looked at
	n.ok("DEL", n.conf(nil, nil), c.pod("d", nil))
	c.counts(1)
	n.ok("DEL", n.conf(named("node-a"), nil), other)
	c.counts(0)
	c.settled()
}

// A token in a file beside the kubeconfig, which is how it is renewed, is read anew by
// each call, and its node is found in it.
func TestTokenFile(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.1.0.0/24"))
	n := c.node("node-a", nil)
	writeFile(t, filepath.Join(n.dir, "token"), "expired")
	n.editKubeconfig(func(_ *api.Config, user *api.AuthInfo) { user.Token, user.TokenFile = "", "token" }) // beside it
	s := c.pod("a", nil)
	n.refused("ADD", n.conf(nil, nil), s, 7, "no node name") // no token that says one
	n.refused("DEL", n.conf(nil, nil), s, 11, "renew")
	writeFile(t, filepath.Join(n.dir, "token"), n.token()+"\n")
	n.add(n.conf(nil, nil), s)
	n.ok("DEL", n.conf(nil, nil), s)
	c.counts(0)
}

// Case D4: a DEL does not trust either of two names that differ. What was booked under
// the configured one, when the credential was bound to no node, is found all the same
// (INV-10).
func TestDelUnderAnotherName(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.1.0.0/24"))
	n := c.node("node-a", nil)
	c.nodeObject("node-b", nil)
	bound, s := n.token(), c.pod("web-0", nil)
	conf := n.conf(object{"nodeName": "node-b"}, nil)
	n.unbound()
	n.add(conf, s)
	c.counts(1)
	must(t, n.c.server.Kubeconfig(n.kubeconfig, bound))
	n.refused("ADD", conf, c.pod("web-1", nil), 7, "nodeName", "node-a", "node-b", n.kubeconfig)
	n.ok("DEL", conf, s)
	c.counts(0)
}

// Case D4: the pod says which node it is on. A kubeconfig copied from another node gets
// nothing for it.
func TestPodOfAnotherNode(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.1.0.0/24"))
	n, copied := c.node("node-a", nil), c.node("node-b", nil)
	s := c.pod("web-0", nil)
	c.bind(s, "node-a")
	copied.refused("ADD", copied.conf(nil, nil), s, 7, "is on node node-a", "this is node node-b")
	c.counts(0)
	n.add(n.conf(nil, nil), s)
	c.counts(1)
}

// bind does what the scheduler does.
func (c *cluster) bind(s fixture.Sandbox, node string) {
	c.t.Helper()
	must(c.t, c.core.CoreV1().Pods(s.Namespace).Bind(c.t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: s.Pod}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{}))
}
