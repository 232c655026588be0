// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// changeCRD changes the CRD of a kind, again when the API server has written it too.
func changeCRD(t *testing.T, kind string, change func(crd map[string]any)) {
	t.Helper()
	name := v1alpha1.Resource(kind).Resource + "." + v1alpha1.Group
	for {
		crd, err := raw.Resource(crds).Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		change(crd.Object)
		if _, err = raw.Resource(crds).Update(t.Context(), crd, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			must(t, err)
			return
		}
	}
}

// withoutRules removes the rules of a schema.
func withoutRules(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "x-kubernetes-validations")
		for _, below := range v {
			withoutRules(below)
		}
	case []any:
		for _, below := range v {
			withoutRules(below)
		}
	}
}

// storeUnreadable stores what the rules of the CRD refuse, as before they were there.
func storeUnreadable(t *testing.T, kind, name string, spec map[string]any) {
	t.Helper()
	var rules any
	changeCRD(t, kind, func(crd map[string]any) {
		rules = (&unstructured.Unstructured{Object: crd}).DeepCopy().Object["spec"]
		withoutRules(crd["spec"])
	})
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.APIVersion, "kind": kind, "metadata": map[string]any{"name": name, "labels": map[string]any{"team": "net"}}, "spec": spec,
	}}
	all := raw.Resource(v1alpha1.Resource(kind))
	until := func(refused bool, options metav1.CreateOptions) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			_, err := all.Create(ctx, o, options)
			if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsAlreadyExists(err) { // rules come before existence
				return false, err
			}
			return apierrors.IsInvalid(err) == refused, nil
		})
		must(t, err)
	}
	until(false, metav1.CreateOptions{})
	changeCRD(t, kind, func(crd map[string]any) { crd["spec"] = rules })
	o.SetName("probe")
	if kind == v1alpha1.KindConfiguration {
		o.SetName("default")
	}
	until(true, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func tryAttach(t *testing.T, node, pod string) error {
	t.Helper()
	c, _ := library(t)
	_, err := c.Attach(t.Context(), ipam.AttachRequest{AutoAssignRequest: ipam.AutoAssignRequest{
		Num4: 1, Host: pool.Node{Name: node}, Use: pool.UseWorkload, Owner: owner(node, pod),
	}})
	return err
}

// An object that is stored and cannot be read stops every ADD; apply replaces it, keeping
// what others wrote beside the spec, and delete removes it.
func TestUnreadableIsRepaired(t *testing.T) {
	v4 := poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28")
	for name, tt := range map[string]struct {
		kind, object string
		spec         map[string]any
		good         string // a manifest of the object
	}{
		"configuration": {v1alpha1.KindConfiguration, "default", map[string]any{"leakGracePeriod": "9999999h"}, manifest(v1alpha1.KindConfiguration, "default", "leakGracePeriod: 1h")},
		"reservation":   {v1alpha1.KindReservation, "r", map[string]any{"reservedCIDRs": []any{"10.64.0.0"}}, manifest(v1alpha1.KindReservation, "r", "reservedCIDRs: [10.64.0.0/30]")},
		"pool":          {v1alpha1.KindPool, "v6", map[string]any{"cidr": "fd00:64::/112", "gateway": "last"}, poolManifest("v6", "cidr: 'fd00:64::/112'")},
	} {
		t.Run(name, func(t *testing.T) {
			o := administrator(t)
			o.apply(v4).ends(0)
			ref := strings.ToLower(tt.kind) + "/" + tt.object
			store := func() {
				t.Helper()
				storeUnreadable(t, tt.kind, tt.object, tt.spec)
				if err := tryAttach(t, "node-a", "web"); err == nil {
					t.Fatalf("an ADD goes by %s, which cannot be read", ref)
				}
				o.run("", "check").ends(3, "Unreadable")
			}
			store()
			o.apply(tt.good).ends(0, ref+" replaced")
			if got := object(t, tt.kind, tt.object); got.GetLabels()["team"] != "net" {
				t.Errorf("labels %v", got.GetLabels())
			}
			must(t, tryAttach(t, "node-a", "web"))
			detach(t, "node-a", "web")
			o.apply(tt.good).ends(0, ref+" unchanged")
			o.run("", "delete", ref).ends(0, ref+" deleted")
			store()
			o.run("", "delete", ref).ends(0, ref+" deleted")
			wantGone(t, tt.kind, tt.object)
			must(t, tryAttach(t, "node-a", "web"))
			o.run("", "check").ends(0)
		})
	}
}

// A pool that cannot be read does not go before its blocks: nobody can tell where it is.
func TestUnreadablePoolInUse(t *testing.T) {
	o := administrator(t)
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28")).ends(0)
	attach(t, "node-a", "web", 1)
	patch(t, v1alpha1.KindPool, "v4", `{"metadata":{"finalizers":null}}`)
	must(t, raw.Resource(v1alpha1.Resource(v1alpha1.KindPool)).Delete(t.Context(), "v4", metav1.DeleteOptions{}))
	storeUnreadable(t, v1alpha1.KindPool, "v4", map[string]any{"cidr": "10.64.0.0/24", "blockSize": int64(28), "gateway": "last"})
	o.run("", "delete", "ippool/v4").ends(1, "it cannot be read, is marked as deleted, and 1 block and 1 claim name it")
	if got := object(t, v1alpha1.KindPool, "v4"); got.GetDeletionTimestamp() == nil || strings.Join(got.GetFinalizers(), ",") != v1alpha1.PoolFinalizer {
		t.Errorf("marked %v, finalizers %v", got.GetDeletionTimestamp(), got.GetFinalizers())
	}
	patch(t, v1alpha1.KindPool, "v4", `{"spec":{"gateway":null}}`)
	detach(t, "node-a", "web")
	o.run("", "delete", "ippool/v4").ends(0, "ippool/v4 deleted")
}

// A pool that goes, and is created again under its name, while its deletion waits: the
// new one keeps its claims, and the deletion is done.
func TestDeleteKnowsTheNextPoolOfTheName(t *testing.T) {
	o := administrator(t)
	v4 := poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28")
	o.apply(v4).ends(0)
	patch(t, v1alpha1.KindPool, "v4", `{"metadata":{"finalizers":["example.com/keep","`+v1alpha1.PoolFinalizer+`"]}}`)
	last, created := "", false
	slow, _ := o.through(func(call string, _ http.ResponseWriter, _ *http.Request) bool {
		if last == "get ippools" && call == "list ipamblocks" && !created { // it looks what holds the pool
			created = true
			patch(t, v1alpha1.KindPool, "v4", `{"metadata":{"finalizers":null}}`)
			o.apply(v4).ends(0, "ippool/v4 created")
			attach(t, "node-a", "web", 1)
			detach(t, "node-a", "web")
			attach(t, "node-b", "db", 1)
		}
		last = call
		return false
	})
	slow.run("", "delete", "ippool/v4").ends(0, "ippool/v4 deleted")
	if !created {
		t.Fatal("nobody came between")
	}
	wantCondition(t, "v4", admitted)
	if b, a := left(t, v1alpha1.KindBlock), left(t, v1alpha1.KindAffinity); b != 2 || a != 2 {
		t.Errorf("%d blocks and %d claims of the new pool are left; want 2 and 2", b, a)
	}
}

// A pool that is created anew between the judgement and the deletion is not the one that
// was judged.
func TestDeleteOfAnotherThanJudged(t *testing.T) {
	o := administrator(t)
	v4 := poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28")
	o.apply(v4).ends(0)
	replaced := false
	slow, _ := o.through(func(call string, _ http.ResponseWriter, _ *http.Request) bool {
		if call == "get ippools" && !replaced {
			replaced = true
			o.run("", "delete", "ippool/v4").ends(0)
			o.apply(v4).ends(0, "ippool/v4 created")
			attach(t, "node-a", "web", 1)
		}
		return false
	})
	slow.run("", "delete", "ippool/v4").ends(1, "nothing was changed", "another pool of this name has been created meanwhile")
	wantCondition(t, "v4", admitted)
}

// What is left out of a list is told, and what cannot be told apart is not concluded.
func TestUnreadableClaimIsTold(t *testing.T) {
	o := administrator(t)
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28")).ends(0)
	claim := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.APIVersion, "kind": v1alpha1.KindAffinity,
		"metadata": map[string]any{"name": "by-hand-" + strings.Repeat("a", 52)},
		"spec":     map[string]any{"type": string(block.VirtualAffinity), "name": "load-balancer", "cidr": "10.64.0.0/28", "pool": "v4"},
	}}
	_, err := raw.Resource(v1alpha1.Resource(v1alpha1.KindAffinity)).Create(t.Context(), claim, metav1.CreateOptions{})
	must(t, err)
	o.run("", "delete", "ippool/v4").ends(1, "nothing was changed", claim.GetName())
	wantCondition(t, "v4", admitted)
	if r := o.apply(poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28, natOutgoing: true")); !strings.Contains(r.err, claim.GetName()) {
		t.Errorf("apply does not tell about the claim: %s", r.err)
	}
}
