// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

func genPoolName() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "v4", "v6", "a b", "ü", "-", strings.Repeat("p", 63), strings.Repeat("p", 64)}),
		rapid.StringN(0, 300, -1),
	)
}

// An API server selects by text what the embedded stores select by Match.
func TestLabelSelectorSelectsWhatMatchDoes(t *testing.T) {
	spaces := []block.Space{block.SpaceFree, block.SpaceCooling, block.SpaceFull}
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SampledFrom([]string{"", "node-a", "node-b", strings.Repeat("n", 253)})
		owners := rapid.SampledFrom([]block.Affinity{{}, block.Host("node-a"), {Name: "node-a"}, {Type: block.VirtualAffinity, Name: "node-a"}})
		kind := rapid.SampledFrom([]string{KindBlock, KindAffinity, KindHandle, KindPool}).Draw(t, "kind")
		q := datastore.Query{
			Node: nodes.Draw(t, "node"), Owner: owners.Draw(t, "owner"), Pool: genPoolName().Draw(t, "pool"),
			Space: rapid.SliceOfN(rapid.SampledFrom(spaces), 0, 3).Draw(t, "space"), Empty: rapid.Bool().Draw(t, "empty"),
		}
		set := map[string]string{}
		if rapid.Bool().Draw(t, "labelled") {
			set = blockLabels(block.Labels{
				Nodes: []string{nodes.Draw(t, "its node")}, Pool: rapid.OneOf(rapid.Just(q.Pool), genPoolName()).Draw(t, "its pool"),
				Space: rapid.SampledFrom(spaces).Draw(t, "its space"), Empty: rapid.Bool().Draw(t, "it is empty"),
			})
			set[LabelOwner] = OwnerLabel(owners.Draw(t, "its owner"))
		}
		text := LabelSelector(kind, q)
		selector, err := labels.Parse(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if got, want := selector.Matches(labels.Set(set)), Match(kind, set, q); got != want {
			t.Fatalf("%q selects %v: %v; Match: %v", text, set, got, want)
		}
		if Selects(kind, q) != (text != "") {
			t.Fatalf("%q; Selects: %v", text, Selects(kind, q))
		}
	})
}

// Whatever a pool is called, a block that names it can be written and read back.
func TestPoolLabelIsLegalAndReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := genPoolName().Draw(t, "name")
		if msgs := validation.IsValidLabelValue(PoolLabel(name)); msgs != nil {
			t.Fatalf("PoolLabel(%q) = %q: %v", name, PoolLabel(name), msgs)
		}
		if name == "" {
			return
		}
		l := blockLabels(block.Labels{Pool: name})
		if got := poolName(l, poolAnnotations(name)); got != name {
			t.Fatalf("%q reads back as %q", name, got)
		}
	})
}

// Own knows every label and annotation that is written, and none that another version
// may write: that one survives an update (Adopt).
func TestOwnIsWhatIsWritten(t *testing.T) {
	owner := block.Host("node-a")
	b := block.Block{CIDR: netip.MustParsePrefix("10.0.0.0/30"), Affinity: owner}.Relabel(strings.Repeat("p", 64), nil)
	written := map[string]bool{AnnotationFence: true}
	for _, o := range []metav1.Object{FromBlock(b), FromAffinity(datastore.AffinityKey{Owner: owner, CIDR: b.CIDR}, datastore.Affinity{Pool: "v4"})} {
		for _, keys := range []map[string]string{o.GetLabels(), o.GetAnnotations()} {
			for k := range keys {
				written[k] = true
				if !Own(k) {
					t.Errorf("%s is written by us, and taken for another's", k)
				}
			}
		}
	}
	for _, k := range own {
		if !written[k] {
			t.Errorf("%s is nowhere written", k)
		}
	}
	others := map[string]string{Group + "/later": "x", Group + "/pools": "x", Group + "/": "x", "later." + Group + "/x": "x", "team": "x", "space": "x"}
	if d := diff(others, Adopt(nil, others)); d != "" {
		t.Errorf("others' (-want +got):\n%s", d)
	}
}
