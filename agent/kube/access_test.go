// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// authorizer is an API server that answers reviews as a test scripts it.
type authorizer struct {
	rules      []authorizationv1.ResourceRule
	incomplete bool
	allows     []string // "verb resource": answers to single questions
	fails      string   // the question that is answered with an error

	mu           sync.Mutex
	asked        []string
	now, atOnce  int
	rulesReviews int
}

func (a *authorizer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/selfsubjectrulesreviews") {
		a.rulesReviews++
		_ = json.NewEncoder(w).Encode(authorizationv1.SelfSubjectRulesReview{
			Status: authorizationv1.SubjectRulesReviewStatus{ResourceRules: a.rules, Incomplete: a.incomplete},
		})
		return
	}
	var review authorizationv1.SelfSubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Spec.ResourceAttributes == nil {
		http.Error(w, "no question", http.StatusBadRequest)
		return
	}
	about := review.Spec.ResourceAttributes
	question := strings.TrimSuffix(about.Verb+" "+about.Resource+"."+about.Group, ".")
	a.mu.Lock()
	a.asked = append(a.asked, question)
	a.now++
	a.atOnce = max(a.atOnce, a.now)
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.now--
		a.mu.Unlock()
	}()
	if question == a.fails {
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"scripted"}`, http.StatusForbidden)
		return
	}
	review.Status.Allowed = slices.Contains(a.allows, question)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review)
}

// jsonAt is the configuration of a client that sends no protobuf.
func jsonAt(url string) *rest.Config {
	return &rest.Config{Host: url, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
}

// Case C6: what the account may not do is named, also where an authorizer cannot list
// its rules: then what no rule gives is asked about, each verb alone.
func TestMissing(t *testing.T) {
	need := []Access{{Group: "g", Resource: "things", Verbs: []string{"get", "list"}}, {Resource: "pods", Verbs: []string{"get"}}}
	rule := func(group, resource string, verbs ...string) authorizationv1.ResourceRule {
		return authorizationv1.ResourceRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	named := rule("", "pods", "get")
	named.ResourceNames = []string{"one"}
	type rules = []authorizationv1.ResourceRule
	all := []string{"get pods", "get things.g", "list things.g"}
	for name, tt := range map[string]struct {
		a     *authorizer
		want  []string
		asked []string
	}{
		"all":                               {a: &authorizer{rules: rules{rule("g", "things", "get", "list"), rule("", "pods", "get")}}},
		"over two rules":                    {a: &authorizer{rules: rules{rule("g", "things", "get"), rule("g", "things", "list"), rule("", "pods", "*")}}},
		"everything":                        {a: &authorizer{rules: rules{rule("*", "*", "*")}}},
		"a verb":                            {a: &authorizer{rules: rules{rule("g", "things", "get"), rule("", "pods", "get")}}, want: []string{"list on things.g"}},
		"another group":                     {a: &authorizer{rules: rules{rule("h", "*", "*"), rule("", "pods", "get")}}, want: []string{"get, list on things.g"}},
		"one object only":                   {a: &authorizer{rules: rules{rule("g", "*", "*"), named}}, want: []string{"get on pods"}},
		"nothing":                           {a: &authorizer{}, want: []string{"get, list on things.g", "get on pods"}},
		"no rule is listed, all is allowed": {a: &authorizer{incomplete: true, allows: all}, asked: all},
		"no rule is listed, nothing is allowed": {
			a: &authorizer{incomplete: true}, asked: all, want: []string{"get, list on things.g", "get on pods"},
		},
		"some rules are listed, a webhook gives one more": {
			a:     &authorizer{incomplete: true, rules: rules{rule("g", "things", "get")}, allows: []string{"get pods"}},
			asked: []string{"get pods", "list things.g"}, want: []string{"list on things.g"},
		},
		"the rules that are listed are enough": {a: &authorizer{incomplete: true, rules: rules{rule("*", "*", "*")}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := tt.a
			server := httptest.NewServer(a)
			defer server.Close()
			lacks, err := Missing(t.Context(), jsonAt(server.URL), need)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range lacks {
				got = append(got, l.String())
			}
			slices.Sort(a.asked)
			if d := cmp.Diff(tt.want, got) + cmp.Diff(tt.asked, a.asked); d != "" || a.rulesReviews != 1 {
				t.Errorf("%d reviews of rules; what is missing, what was asked (-want +got):\n%s", a.rulesReviews, d)
			}
		})
	}
}

// A question that is not answered proves neither; the questions are few at a time.
func TestMissingCannotBeAsked(t *testing.T) {
	a := &authorizer{incomplete: true, fails: "get things3.g"}
	server := httptest.NewServer(a)
	defer server.Close()
	var need []Access
	for i := range 20 {
		need = append(need, Access{Group: "g", Resource: "things" + string(rune('0'+i)), Verbs: []string{"get"}})
	}
	_, err := Missing(t.Context(), jsonAt(server.URL), need)
	if err == nil || !strings.Contains(err.Error(), "get on things3.g") || !strings.Contains(err.Error(), "scripted") {
		t.Errorf("%v; want the question that failed", err)
	}
	if a.atOnce > askAtOnce || len(a.asked) != len(need) {
		t.Errorf("%d questions, %d at once; want %d, at most %d", len(a.asked), a.atOnce, len(need), askAtOnce)
	}
}
