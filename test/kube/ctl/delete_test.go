// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

func wantGone(t *testing.T, kind, name string) {
	t.Helper()
	_, err := raw.Resource(v1alpha1.Resource(kind)).Get(t.Context(), name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("%s %s is still there (%v)", kind, name, err)
	}
}

func left(t *testing.T, kind string) int {
	t.Helper()
	l, err := raw.Resource(v1alpha1.Resource(kind)).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	return len(l.Items)
}

// A pool goes with its claims and blocks, and only when nobody uses it.
func TestDeletePool(t *testing.T) {
	o := administrator(t)
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28") + manifest(v1alpha1.KindConfiguration, "default", "strictAffinity: true") +
		manifest(v1alpha1.KindReservation, "r", "reservedCIDRs: [10.64.0.0/30]")).ends(0)
	attach(t, "node-a", "web", 1)
	attach(t, "node-b", "db", 1)
	through, p := o.through(nil)
	through.run("", "delete", "ipreservation/r", "ippool/v4").ends(1, "nothing was changed",
		"ippool/v4: 2 of its addresses are allocated and 0 cooling", "apply it with disabled: true")
	if _, writes := p.take(); len(writes) != 0 {
		t.Errorf("it wrote %q", writes)
	}
	object(t, v1alpha1.KindReservation, "r")
	wantCondition(t, "v4", admitted)
	detach(t, "node-a", "web")
	detach(t, "node-b", "db")
	if left(t, v1alpha1.KindBlock) != 2 || left(t, v1alpha1.KindAffinity) != 2 {
		t.Fatal("the nodes have no blocks to lose")
	}
	o.run("", "delete", "ippool/v4", "ipreservation/r", "ipamconfiguration/default", "ippool/v4").
		ends(0, "ippool/v4 deleted\nipreservation/r deleted\nipamconfiguration/default deleted\n", "datastore: kubernetes ")
	for kind, name := range map[string]string{v1alpha1.KindPool: "v4", v1alpha1.KindReservation: "r", v1alpha1.KindConfiguration: "default"} {
		wantGone(t, kind, name)
	}
	if left(t, v1alpha1.KindBlock)+left(t, v1alpha1.KindAffinity) != 0 {
		t.Error("blocks or claims are left")
	}
	o.run("", "delete", "ippool/v4").ends(1, "ippool/v4: IPPool v4: not found", "nothing was changed")
	o.run("", "delete", "ipreservation/r").ends(1, "ipreservation/r: IPReservation r: not found")
}

// A pool that is marked as deleted, by whatever, is completed; one in use says what
// holds it, and cannot be applied meanwhile.
func TestDeleteCompletes(t *testing.T) {
	o := administrator(t)
	v4 := poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28")
	o.apply(v4).ends(0)
	attach(t, "node-a", "web", 1)
	must(t, raw.Resource(v1alpha1.Resource(v1alpha1.KindPool)).Delete(t.Context(), "v4", metav1.DeleteOptions{}))
	o.run("", "delete", "ippool/v4").ends(1, "it is marked as deleted and hands out nothing, but 1 of its addresses is allocated")
	o.apply(v4).ends(1, "nothing was changed: ippool/v4: it is being deleted")
	o.apply(poolManifest("next", "cidr: 10.64.0.0/16")).ends(0, "warning: ippool/next hands out nothing: CIDROverlap")
	detach(t, "node-a", "web")
	o.run("", "delete", "ippool/v4").ends(0, "ippool/v4 deleted")
	wantGone(t, v1alpha1.KindPool, "v4")
	wantCondition(t, "next", admitted)
}

// What others hold: delete waits as long as it was told and says who. A pool that lost
// its finalizer does not vanish before its blocks.
func TestDeleteHeld(t *testing.T) {
	o := administrator(t)
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28")).ends(0)
	attach(t, "node-a", "web", 1)
	detach(t, "node-a", "web")
	patch(t, v1alpha1.KindPool, "v4", `{"metadata":{"finalizers":["example.com/keep"]}}`)
	o.run("", "delete", "ippool/v4", "--timeout", "100ms").ends(1,
		"ippool/v4 is marked as deleted; waiting: finalizers that others have to remove: example.com/keep", "still there after 100ms", "delete it again to complete that").lacks("deleted\n")
	if left(t, v1alpha1.KindBlock)+left(t, v1alpha1.KindAffinity) != 0 {
		t.Error("blocks or claims are left")
	}
	patch(t, v1alpha1.KindPool, "v4", `{"metadata":{"finalizers":null}}`)
	wantGone(t, v1alpha1.KindPool, "v4")

	o.apply(poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28")).ends(0)
	attach(t, "node-a", "web", 1)
	detach(t, "node-a", "web")
	patch(t, v1alpha1.KindPool, "v4", `{"metadata":{"finalizers":null}}`)
	o.run("", "delete", "ippool/v4").ends(0, "ippool/v4 deleted")
	if left(t, v1alpha1.KindBlock)+left(t, v1alpha1.KindAffinity) != 0 {
		t.Error("blocks or claims are left")
	}
}
