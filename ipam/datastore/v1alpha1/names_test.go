// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

func TestBlockName(t *testing.T) {
	for in, want := range map[string]string{
		"10.64.0.64/29":  "10-64-0-64-29",
		"10.64.0.65/29":  "10-64-0-64-29", // host bits do not make another block
		"fd00::40/122":   "fd00--40-122",
		"fd00:0:0::/120": "fd00---120",
		"::5:0/120":      "0--5-0-120",
		"1::/128":        "1---128",
		"FD00::A0/123":   "fd00--a0-123",
	} {
		if got := BlockName(netip.MustParsePrefix(in)); got != want {
			t.Errorf("BlockName(%s) = %s; want %s", in, got, want)
		}
	}
}

func genCIDR(t *rapid.T, label string) netip.Prefix {
	if rapid.Bool().Draw(t, label+" is v4") {
		b := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, label)
		return netip.PrefixFrom(netip.AddrFrom4([4]byte(b)), rapid.IntRange(24, 32).Draw(t, label+" bits")).Masked()
	}
	b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0, 0, 1, 0x10, 0xfd}), 16, 16).Draw(t, label)
	b[0] = 0xfd
	return netip.PrefixFrom(netip.AddrFrom16([16]byte(b)), rapid.IntRange(120, 128).Draw(t, label+" bits")).Masked()
}

// genNodeName draws names that are likely to be confused with each other.
func genNodeName() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[nN](-(fd00|10|0))?(-(0|10|1))*`),
		rapid.StringMatching(`[a-cA-C.\-]{1,4}`),
		rapid.Map(rapid.StringMatching(`[xyXY]{1,2}`), func(s string) string { return strings.Repeat("n", 251) + s }),
		rapid.StringN(1, 300, -1),
	)
}

// Case S5: whatever owners are called, claims have legal and distinct names.
func TestAffinityNameIsLegalAndDistinct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := func(label string) datastore.AffinityKey {
			typ := rapid.SampledFrom([]block.AffinityType{"", block.HostAffinity, block.VirtualAffinity}).Draw(t, label+" type")
			return datastore.AffinityKey{
				Owner: block.Affinity{Type: typ, Name: genNodeName().Draw(t, label)}, CIDR: genCIDR(t, label+" cidr"),
			}
		}
		a, b := key("a"), key("b")
		if rapid.Bool().Draw(t, "same cidr") {
			b.CIDR = a.CIDR
		}
		for _, k := range []datastore.AffinityKey{a, b} {
			if msgs := validation.IsDNS1123Subdomain(AffinityName(k)); msgs != nil {
				t.Fatalf("AffinityName(%v) = %q: %v", k, AffinityName(k), msgs)
			}
		}
		same := a.Owner.String() == b.Owner.String() && a.CIDR == b.CIDR
		if (AffinityName(a) == AffinityName(b)) != same {
			t.Fatalf("%v and %v: names %q and %q", a, b, AffinityName(a), AffinityName(b))
		}
	})
}

// Case S5.
func TestHandleNameIsLegalAndDistinct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := block.HandleID(genNodeName().Draw(t, "a")), block.HandleID(genNodeName().Draw(t, "b"))
		if msgs := validation.IsDNS1123Subdomain(HandleName(a)); msgs != nil {
			t.Fatalf("HandleName(%q) = %q: %v", a, HandleName(a), msgs)
		}
		if (HandleName(a) == HandleName(b)) != (a == b) {
			t.Fatalf("%q and %q: names %q and %q", a, b, HandleName(a), HandleName(b))
		}
	})
}

func TestReadableNames(t *testing.T) {
	k := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: netip.MustParsePrefix("10.64.0.64/29")}
	if got := AffinityName(k); got != "node-a.10-64-0-64-29" {
		t.Errorf("AffinityName(%v) = %s", k, got)
	}
	if got := HandleName("k8s-pod-network.3f9c"); got != "k8s-pod-network.3f9c" {
		t.Errorf("HandleName = %s; want a legal ID as it is", got)
	}
	k.Owner.Name = "Node-A"
	if got := AffinityName(k); !strings.HasPrefix(got, "node-a-10-64-0-64-29-") {
		t.Errorf("AffinityName(%v) = %s; want the name to begin readable", k, got)
	}
}

func TestLabelsAreLegal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node := genNodeName().Draw(t, "node")
		if msgs := validation.IsQualifiedName(NodeLabel(node)); msgs != nil {
			t.Fatalf("NodeLabel(%q) = %q: %v", node, NodeLabel(node), msgs)
		}
		for _, v := range []string{OwnerLabel(block.Host(node)), PoolLabel(strings.Repeat("p", len(node)))} {
			if msgs := validation.IsValidLabelValue(v); msgs != nil {
				t.Fatalf("label value %q: %v", v, msgs)
			}
		}
	})
	if !regexp.MustCompile(`^node\.ipam\.allod\.io/[a-z2-7]{52}$`).MatchString(NodeLabel("node-a")) {
		t.Errorf("NodeLabel(node-a) = %s", NodeLabel("node-a"))
	}
	if NodeLabel("node-a") == NodeLabel("Node-a") {
		t.Error("two nodes share a label")
	}
}

// legalName is what Kubernetes demands of names.
func TestLegalNameAgreesWithKubernetes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.StringMatching(`[a-z0-9A-Z_.\-]{0,8}`), genNodeName()).Draw(t, "name")
		if want := validation.IsDNS1123Subdomain(s) == nil; legalName(s) != want || (ValidateName(s) == nil) != want {
			t.Fatalf("%q: legal %v, ValidateName %v; want %v", s, legalName(s), ValidateName(s), want)
		}
	})
}
