// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// What STATUS asks about is what manifests/rbac/node.yaml grants. That it is also what
// is used is TestGrantedIsUsed of test/kube/direct.
func TestAccessIsTheManifests(t *testing.T) {
	text, err := os.ReadFile("../../manifests/rbac/node.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var granted, listed []string
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(doc, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						granted = append(granted, verb+" "+resource+" "+group)
					}
				}
			}
		}
	}
	for _, a := range access {
		for _, verb := range a.Verbs {
			listed = append(listed, verb+" "+a.Resource+" "+a.Group)
		}
	}
	slices.Sort(granted)
	slices.Sort(listed)
	if d := cmp.Diff(granted, listed); d != "" || len(granted) == 0 {
		t.Errorf("(-manifest +access):\n%s", d)
	}
}
