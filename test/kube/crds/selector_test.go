// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// selectorPattern returns the expression that the CRD of pools holds selectors
// against; the API server's language has no parser for them.
func selectorPattern(t *testing.T) *regexp.Regexp {
	t.Helper()
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
	if len(node) != 1 || len(namespace) != 1 || node[0] != namespace[0] {
		t.Fatalf("the selectors have other rules than one, the same: %v, %v", node, namespace)
	}
	pattern, begins := strings.CutPrefix(node[0].Rule, "(self + ',').matches(r'")
	pattern, ends := strings.CutSuffix(pattern, "')")
	if !begins || !ends {
		t.Fatalf("the rule of a selector is %s", node[0].Rule)
	}
	return regexp.MustCompile(pattern)
}

// The rule of the CRD and the parser of the library take the same selectors.
func TestSelectorRuleIsTheParsers(t *testing.T) {
	pattern := selectorPattern(t)
	check := func(t interface{ Errorf(string, ...any) }, text string) {
		_, err := labels.Parse(text)
		if rule := pattern.MatchString(text + ","); rule != (err == nil) {
			t.Errorf("%q: the rule takes it: %v; the parser says %v", text, rule, err)
		}
	}
	for _, text := range []string{
		"", " ", "\t\n", "a", "!a", "! a", "!!a", "a,b", "a,", ",a", ",", "a,,b", "a=b", "a==b", "a != b", "a=", "a==", "a!=", "a=,b",
		"a===b", "a in (b)", "a in(b)", "a in ( b , c )", "a in (b,)", "a in (,)", "a in ()", "a notin (b)", "a notin b", "ain (b)",
		"in", "in in (in)", "notin in (notin)", "a in in", "a > 1", "a<10", "a>b", "a>-1", "a>", "a>=1", "a b", "a=b c", "a.b/c=d",
		"A.b/c", "a_b/c", "a/b/c", "/a", "a/", "-a", "a-", "a=-b", "a=b-", "a=b/c", "a=b.c_d-e", "all()", "has(a)", "a && b", "a='b'",
		"ä", "a=ä", strings.Repeat("a", 63), strings.Repeat("a", 64), "a=" + strings.Repeat("b", 63), "a=" + strings.Repeat("b", 64),
		"x.y.z/" + strings.Repeat("a", 63) + " in (x,y, z),!b",
	} {
		check(t, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SampledFrom([]string{"a", "B1", "a.b/c", "a_b", "-", "in", "notin", "!", "=", "==", "!=", ">", "<", "1", "27", "(", ")", ",", ",", " ", " ", "\t", "", "''", "/", "."})
		text := strings.Join(rapid.SliceOfN(tokens, 0, 12).Draw(t, "tokens"), "")
		if rapid.Bool().Draw(t, "spaced") {
			text = strings.Join(rapid.SliceOfN(tokens, 0, 9).Draw(t, "spaced tokens"), " ")
		}
		check(t, text)
	})
}
