// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kubestore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/test/fixture"
	"github.com/allod/allod/test/kube/apiserver"
)

const namespace = "shop" // of the pods, unless a test says otherwise

// deleteNow waits for no grace period.
var (
	deleteNow  = metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	everything = metav1.ListOptions{}
)

// cluster is what an administrator does and sees on an API server.
type cluster struct {
	t      *testing.T
	server *apiserver.Server
	core   *kubernetes.Clientset
	kinds  dynamic.Interface // ours, as plain objects
	store  *kubestore.Store
}

// newCluster is the shared API server without a record of anything.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := clusterOn(t, shared)
	c.empty()
	return c
}

// clusterOn is a view of a server with Allod installed, as it is.
func clusterOn(t *testing.T, s *apiserver.Server) *cluster {
	t.Helper()
	c := &cluster{t: t, server: s}
	var errs [3]error
	quiet := s.Config()
	quiet.WarningHandler = rest.NoWarnings{} // of names that are long on purpose
	c.core, errs[0] = kubernetes.NewForConfig(quiet)
	c.kinds, errs[1] = dynamic.NewForConfig(s.Config())
	c.store, errs[2] = kubestore.New(s.Config(), kubestore.Options{})
	for _, err := range errs {
		must(t, err)
	}
	t.Cleanup(c.store.Close)
	c.namespace(namespace, nil, nil)
	return c
}

// in is the same cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	sub := *c
	sub.t = t
	return &sub
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// empty deletes every record, and every pod and node.
func (c *cluster) empty() {
	c.t.Helper()
	ctx := c.t.Context()
	for _, kind := range []string{
		v1alpha1.KindPool, v1alpha1.KindReservation, v1alpha1.KindConfiguration, v1alpha1.KindBlock, v1alpha1.KindAffinity,
	} {
		all := c.kinds.Resource(v1alpha1.Resource(kind))
		if kind == v1alpha1.KindPool { // finalizers hold them
			list, err := all.List(ctx, metav1.ListOptions{})
			must(c.t, err)
			for _, o := range list.Items {
				c.patch(kind, o.GetName(), `{"metadata":{"finalizers":null}}`)
			}
		}
		must(c.t, all.DeleteCollection(ctx, deleteNow, everything))
	}
	namespaces, err := c.core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	must(c.t, err)
	for _, ns := range namespaces.Items {
		must(c.t, c.core.CoreV1().Pods(ns.Name).DeleteCollection(ctx, deleteNow, everything))
	}
	must(c.t, c.core.CoreV1().Nodes().DeleteCollection(ctx, deleteNow, everything))
}

// apply stores a manifest of our kinds or others.
func (c *cluster) apply(manifest string) {
	c.t.Helper()
	must(c.t, c.server.Apply(c.t.Context(), []byte(manifest)))
}

// pools applies pools and admits them.
func (c *cluster) pools(manifest string) {
	c.t.Helper()
	c.apply(manifest)
	c.admit()
}

// admit decides about the pools as they are now; `allod-agent apply` does the same.
func (c *cluster) admit() {
	c.t.Helper()
	all, err := c.library().ReconcilePools(c.t.Context())
	must(c.t, err)
	for _, p := range all {
		if !p.Status.Allocatable {
			c.t.Fatalf("pool %s hands out nothing: %s", p.Name, p.Status.Message)
		}
	}
}

// library is the library in the administrator's hands.
func (c *cluster) library() *ipam.Client {
	return ipam.New(c.store.Store(), ipam.Options{Clock: c.store})
}

// object is a stored object as the API server has it.
func (c *cluster) object(kind, name string) *unstructured.Unstructured {
	c.t.Helper()
	o, err := c.kinds.Resource(v1alpha1.Resource(kind)).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatalf("%s %s: %v", kind, name, err)
	}
	return o
}

// write stores an object as somebody else would.
func (c *cluster) write(kind string, o *unstructured.Unstructured) {
	c.t.Helper()
	_, err := c.kinds.Resource(v1alpha1.Resource(kind)).Update(c.t.Context(), o, metav1.UpdateOptions{})
	must(c.t, err)
}

// patch changes an object as `kubectl patch --type merge` would.
func (c *cluster) patch(kind, name, merge string) {
	c.t.Helper()
	_, err := c.kinds.Resource(v1alpha1.Resource(kind)).Patch(
		c.t.Context(), name, "application/merge-patch+json", []byte(merge), metav1.PatchOptions{})
	must(c.t, err)
}

// namespace makes a namespace, or gives the one that is there these labels and annotations.
func (c *cluster) namespace(name string, labels, annotations map[string]string) {
	c.t.Helper()
	ctx, all := c.t.Context(), c.core.CoreV1().Namespaces()
	want := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}}
	_, err := all.Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = all.Update(ctx, want, metav1.UpdateOptions{})
	}
	must(c.t, err)
	// Admission gives every pod this account; a controller would make it.
	_, err = c.core.CoreV1().ServiceAccounts(name).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		must(c.t, err)
	}
}

// pod makes a pod and returns a sandbox of it.
func (c *cluster) pod(name string, annotations map[string]string) fixture.Sandbox {
	c.t.Helper()
	return c.podIn(namespace, name, annotations)
}

func (c *cluster) podIn(ns, name string, annotations map[string]string) fixture.Sandbox {
	c.t.Helper()
	p, err := c.core.CoreV1().Pods(ns).Create(c.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	must(c.t, err)
	return fixture.Sandbox{
		ContainerID: fixture.Digest("container of " + string(p.UID)), Netns: "/var/run/netns/" + fixture.Digest(name)[:12],
		Namespace: ns, Pod: name, UID: string(p.UID),
	}
}

func (c *cluster) deletePod(s fixture.Sandbox) {
	c.t.Helper()
	must(c.t, c.core.CoreV1().Pods(s.Namespace).Delete(c.t.Context(), s.Pod, deleteNow))
}

func (c *cluster) nodeObject(name string, labels map[string]string) {
	c.t.Helper()
	_, err := c.core.CoreV1().Nodes().Create(c.t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	must(c.t, err)
}

// blocks reads every block back; each must be sound (INV-4).
func (c *cluster) blocks() []datastore.Entry[netip.Prefix, block.Block] {
	c.t.Helper()
	list, err := c.store.Store().Blocks.List(context.WithoutCancel(c.t.Context()), datastore.Query{})
	must(c.t, err)
	for _, e := range list {
		if err := e.Value.Check(); err != nil {
			c.t.Errorf("block %s: %v", e.Key, err)
		}
		for _, p := range e.Value.Problems() {
			c.t.Errorf("block %s: %s", e.Key, p)
		}
	}
	return list
}

// held is who has what by the blocks: addresses and container IDs.
func (c *cluster) held() map[netip.Addr]string {
	c.t.Helper()
	held := map[netip.Addr]string{}
	for _, e := range c.blocks() {
		for a, slot := range e.Value.All() {
			if slot.State == block.Allocated {
				held[a] = slot.Active.ContainerID
			}
		}
	}
	return held
}

// counts compares how many addresses are allocated.
func (c *cluster) counts(want int) {
	c.t.Helper()
	if held := c.held(); len(held) != want {
		c.t.Errorf("%d addresses are allocated, want %d: %v", len(held), want, held)
	}
}

// affinities are the claims.
func (c *cluster) affinities() map[datastore.AffinityKey]datastore.Affinity {
	c.t.Helper()
	list, err := c.store.Store().Affinities.List(c.t.Context(), datastore.Query{})
	must(c.t, err)
	all := map[datastore.AffinityKey]datastore.Affinity{}
	for _, e := range list {
		all[e.Key] = e.Value
	}
	return all
}

// settled wants every claim to be what its block says: confirmed, of the block's
// owner, and one for each block with an owner (INV-6).
func (c *cluster) settled() {
	c.t.Helper()
	claims := c.affinities()
	for _, e := range c.blocks() {
		key := datastore.AffinityKey{Owner: e.Value.Affinity, CIDR: e.Key}
		if a, ok := claims[key]; !e.Value.Affinity.IsZero() && (!ok || a.State != datastore.Confirmed) {
			c.t.Errorf("block %s is of %s, whose affinity is %q", e.Key, e.Value.Affinity, a.State)
		}
		delete(claims, key)
	}
	for key, a := range claims {
		c.t.Errorf("%s has an affinity (%s) for %s, which is not its block", key.Owner, a.State, key.CIDR)
	}
}

// poolManifest is a manifest of a pool with these fields of its spec, in YAML flow style.
func poolManifest(name, spec string) string {
	return "---\napiVersion: ipam.allod.io/v1alpha1\nkind: IPPool\nmetadata: {name: " + name + "}\nspec: {" + strings.TrimSpace(spec) + "}\n"
}
