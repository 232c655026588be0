// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// selectorPatterns returns the expressions that the CRD of pools holds selectors
// against, one that they match and one that they do not; the API server's language has
// no parser for them.
func selectorPatterns(t *testing.T) (good, bad *regexp.Regexp) {
	t.Helper()
	var patterns [2]*regexp.Regexp
	text, err := os.ReadFile(filepath.Join(manifests, "crds", "ipam.allod.io_ippools.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	type rules struct {
		Validations []struct{ Rule string } `json:"x-kubernetes-validations"`
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema struct {
						Properties struct {
							Spec struct {
								Properties map[string]rules `json:"properties"`
							} `json:"spec"`
						} `json:"properties"`
					} `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	properties := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties.Spec.Properties
	node, namespace := properties["nodeSelector"].Validations, properties["namespaceSelector"].Validations
	if len(node) != 2 || !slices.Equal(node, namespace) {
		t.Fatalf("the selectors have other rules than two, the same: %v, %v", node, namespace)
	}
	for i, begins := range []string{"(self + ',').matches(r'", "!self.matches(r'"} {
		text, begins := strings.CutPrefix(node[i].Rule, begins)
		text, ends := strings.CutSuffix(text, "')")
		if !begins || !ends {
			t.Fatalf("a rule of a selector is %s", node[i].Rule)
		}
		patterns[i] = regexp.MustCompile(text)
	}
	return patterns[0], patterns[1]
}

// The rule of the CRD and the parser of the library take the same selectors.
func TestSelectorRuleIsTheParsers(t *testing.T) {
	good, bad := selectorPatterns(t)
	check := func(t interface{ Errorf(string, ...any) }, text string) {
		o := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{CIDR: "10.0.0.0/16", NodeSelector: v1alpha1.Selector(text)}}
		o.Name = "p"
		err := o.Validate()
		if rule := good.MatchString(text+",") && !bad.MatchString(text); rule != (err == nil) {
			t.Errorf("%q: the rule takes it: %v; the parser says %v", text, rule, err)
		}
	}
	for _, text := range []string{
		"", " ", "\t\n", "a", "!a", "! a", "!!a", "a,b", "a,", ",a", ",", "a,,b", "a=b", "a==b", "a != b", "a=", "a==", "a!=", "a=,b",
		"a===b", "a in (b)", "a in(b)", "a in ( b , c )", "a in (b,)", "a in (,)", "a in ()", "a notin (b)", "a notin b", "ain (b)",
		"in", "in in (in)", "notin in (notin)", "a in in", "a > 1", "a<10", "a>b", "a>-1", "a>", "a>=1", "a b", "a=b c", "a.b/c=d",
		"A.b/c", "a_b/c", "a/b/c", "/a", "a/", "-a", "a-", "a=-b", "a=b-", "a=b/c", "a=b.c_d-e", "all()", "has(a)", "a && b", "a='b'",
		"ä", "a=ä", strings.Repeat("a", 63), strings.Repeat("a", 64), "a=" + strings.Repeat("b", 63), "a=" + strings.Repeat("b", 64),
		prefix(253) + "/a", prefix(254) + "/a", "!" + prefix(254) + "/a", "b," + prefix(254) + "/a in (c)", "a=" + prefix(300), "a<" + nines(18), "a<" + nines(19), "a>" + nines(63),
		"x.y.z/" + strings.Repeat("a", 63) + " in (x,y, z),!b",
	} {
		check(t, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SampledFrom([]string{"a", "B1", "a.b/c", "a_b", "-", "in", "notin", "!", "=", "==", "!=", ">", "<", "1", "27", nines(18), nines(19), prefix(253) + "/", prefix(254) + "/", prefix(254), "(", ")", ",", ",", " ", " ", "\t", "", "''", "/", "."})
		text := strings.Join(rapid.SliceOfN(tokens, 0, 12).Draw(t, "tokens"), "")
		if rapid.Bool().Draw(t, "spaced") {
			text = strings.Join(rapid.SliceOfN(tokens, 0, 9).Draw(t, "spaced tokens"), " ")
		}
		check(t, text)
	})
}
