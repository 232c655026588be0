// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"os"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/allod/allod/test/kube/apiserver"
)

// clusterRole reads the one ClusterRole of a manifest.
func clusterRole(t *testing.T, path string) *rbacv1.ClusterRole {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	objects, err := apiserver.Decode(text)
	must(t, err)
	var found *rbacv1.ClusterRole
	for _, o := range objects {
		if o.GetKind() != "ClusterRole" {
			continue
		}
		if found != nil {
			t.Fatalf("%s has several ClusterRoles", path)
		}
		found = &rbacv1.ClusterRole{}
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, found))
	}
	if found == nil || len(found.Rules) == 0 {
		t.Fatalf("%s has no ClusterRole with rules", path)
	}
	return found
}

// rightsOf lists what the ClusterRole of a manifest grants, each right once.
func rightsOf(t *testing.T, path string) []right {
	t.Helper()
	var out []right
	for _, rule := range clusterRole(t, path).Rules {
		if len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 {
			t.Errorf("%s: %v names objects or URLs, which these tests do not judge", path, rule)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					r := right{group, resource, verb}
					if slices.Contains(out, r) {
						t.Errorf("%s grants %s twice", path, r)
					}
					out = append(out, r)
				}
			}
		}
	}
	return out
}
