// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/test/kube/apiserver"
)

// account makes a service account with a ClusterRole of these rules and returns an
// operator with its token.
func account(t *testing.T, name string, rules []rbacv1.PolicyRule) *operator {
	t.Helper()
	core, err := kubernetes.NewForConfig(server.Config())
	must(t, err)
	ctx := t.Context()
	_, err = core.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	role := name
	if rules == nil {
		role = "allod-operator" // the manifest's, which TestMain applied
	} else {
		_, err = core.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
		must(t, err)
	}
	_, err = core.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
	}, metav1.CreateOptions{})
	must(t, err)
	token, err := core.CoreV1().ServiceAccounts("default").CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	return with(t, token.Status.Token)
}

// granted are the rules of manifests/rbac/operator.yaml.
func granted(t *testing.T) (rules []rbacv1.PolicyRule) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot, "manifests", "rbac", "operator.yaml"))
	must(t, err)
	objects, err := apiserver.Decode(text)
	must(t, err)
	for _, o := range objects {
		var role rbacv1.ClusterRole
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role))
		rules = append(rules, role.Rules...)
	}
	return rules
}

// The verbs that the manifest grants are the verbs that are used, both ways, and every
// verb of the command line works with no other right.
func TestRoleOfOperators(t *testing.T) {
	empty(t)
	o, p := account(t, "golden", nil).through(nil)
	all := poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28") + manifest(v1alpha1.KindConfiguration, "default", "ipCooldownSeconds: 0") +
		manifest(v1alpha1.KindReservation, "r", "reservedCIDRs: [10.64.1.0/24]")
	changed := poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28, natOutgoing: true") + manifest(v1alpha1.KindConfiguration, "default", "strictAffinity: true") +
		manifest(v1alpha1.KindReservation, "r", "reservedCIDRs: [10.64.0.0/24]")
	o.apply(all).ends(0)
	got := attach(t, "node-a", "web", 1).V4[0]
	o.apply(changed).ends(0, "configured") // labels the block anew
	o.run("", "show").ends(0)
	o.run("", "check").ends(0)
	detach(t, "node-a", "web")
	_, s := library(t)
	stray := datastore.AffinityKey{Owner: block.Host("node-b"), CIDR: got.Block}
	_, err := s.Store().Affinities.Create(t.Context(), stray, datastore.Affinity{State: datastore.Pending, Pool: "v4"})
	must(t, err)
	o.run("", "delete", "ippool/v4", "ipreservation/r", "ipamconfiguration/default").ends(0)

	calls, _ := p.take()
	used := map[string]bool{}
	for _, c := range calls {
		used[c] = true
	}
	var grants []string
	for _, r := range granted(t) {
		if !slices.Equal(r.APIGroups, []string{v1alpha1.Group}) || len(r.ResourceNames)+len(r.NonResourceURLs) > 0 {
			t.Errorf("a rule that this test does not understand: %v", r)
		}
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				grants = append(grants, verb+" "+resource)
			}
		}
	}
	slices.Sort(grants)
	if d := cmp.Diff(grants, slices.Sorted(maps.Keys(used))); d != "" {
		t.Errorf("granted against used (-granted +used):\n%s", d)
	}
}

// Without a right the message names the verb and the resource, and nothing is changed.
func TestNoPermission(t *testing.T) {
	empty(t)
	nobody := account(t, "nobody", []rbacv1.PolicyRule{})
	nobody.run("", "show").ends(1, "RBAC is missing: a ClusterRole bound to this account needs the verb list on ippools in group ipam.allod.io")
	nobody.run("", "delete", "ippool/v4").ends(1, "needs the verb list on ippools")

	var rules []rbacv1.PolicyRule
	for _, r := range granted(t) {
		r.Verbs = slices.DeleteFunc(slices.Clone(r.Verbs), func(v string) bool {
			return v == "create" && slices.Contains(r.Resources, "ipreservations") || v == "delete" && slices.Contains(r.Resources, "ippools")
		})
		rules = append(rules, r)
	}
	some := account(t, "some", rules)
	some.apply(poolManifest("v4", "cidr: 10.64.0.0/24")+manifest(v1alpha1.KindReservation, "r", "reservedCIDRs: [10.64.0.0/28]")).
		ends(1, "nothing was changed", "ipreservation/r: create IPReservation r: ", "needs the verb create on ipreservations")
	if left(t, v1alpha1.KindPool) != 0 {
		t.Error("the pool is stored")
	}
	some.apply(poolManifest("v4", "cidr: 10.64.0.0/24")).ends(0)
	some.run("", "delete", "ippool/v4").ends(1, "nothing was changed", "needs the verb delete on ippools")
	wantCondition(t, "v4", admitted)

	rules = slices.DeleteFunc(granted(t), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "ippools/status") })
	empty(t)
	account(t, "nostatus", rules).apply(poolManifest("v4", "cidr: 10.64.0.0/24")).
		ends(1, "ippool/v4 created", "every object is stored, but not all that follows from it", "needs the verb patch on ippools/status",
			"ippool/v4 hands out nothing: NotAdmitted: ").lacks(": : ")
}
