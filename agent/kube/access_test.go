// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
)

func TestMissing(t *testing.T) {
	need := []Access{{Group: "g", Resource: "things", Verbs: []string{"get", "list"}}, {Resource: "pods", Verbs: []string{"get"}}}
	rule := func(group, resource string, verbs ...string) authorizationv1.ResourceRule {
		return authorizationv1.ResourceRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	named := rule("", "pods", "get")
	named.ResourceNames = []string{"one"}
	for name, tt := range map[string]struct {
		rules      []authorizationv1.ResourceRule
		incomplete bool
		want       []string
	}{
		"all":              {rules: []authorizationv1.ResourceRule{rule("g", "things", "get", "list"), rule("", "pods", "get")}},
		"over two rules":   {rules: []authorizationv1.ResourceRule{rule("g", "things", "get"), rule("g", "things", "list"), rule("", "pods", "*")}},
		"everything":       {rules: []authorizationv1.ResourceRule{rule("*", "*", "*")}},
		"a verb":           {rules: []authorizationv1.ResourceRule{rule("g", "things", "get"), rule("", "pods", "get")}, want: []string{"list on things.g"}},
		"another group":    {rules: []authorizationv1.ResourceRule{rule("h", "*", "*"), rule("", "pods", "get")}, want: []string{"get, list on things.g"}},
		"one object only":  {rules: []authorizationv1.ResourceRule{rule("g", "*", "*"), named}, want: []string{"get on pods"}},
		"nothing":          {want: []string{"get, list on things.g", "get on pods"}},
		"nobody knows all": {incomplete: true},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, a := range missing(authorizationv1.SubjectRulesReviewStatus{ResourceRules: tt.rules, Incomplete: tt.incomplete}, need) {
				got = append(got, a.String())
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
