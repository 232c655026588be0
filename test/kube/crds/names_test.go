// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"net/netip"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// drawn CIDRs of blocks; of IPv6, with runs of zeros that its text shortens.
func drawCIDR(t *rapid.T) netip.Prefix {
	if rapid.Bool().Draw(t, "is v4") {
		b := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4")
		return netip.PrefixFrom(netip.AddrFrom4([4]byte(b)), rapid.IntRange(24, 32).Draw(t, "bits")).Masked()
	}
	b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0, 0, 1, 0x10, 0xfd}), 16, 16).Draw(t, "v6")
	p := netip.PrefixFrom(netip.AddrFrom16([16]byte(b)), rapid.IntRange(120, 128).Draw(t, "bits")).Masked()
	if p.Addr().Is4In6() {
		return netip.MustParsePrefix("::/128")
	}
	return p
}

func drawOwner(t *rapid.T) string {
	return rapid.OneOf(
		rapid.StringMatching(`[nN](-(fd00|10|0))?(-(0|10|1))*`),
		rapid.StringMatching(`[a-cA-C._\-]{1,4}`),
		rapid.StringMatching(`n{225,252}`), // around where a name with the block's is too long
		rapid.SampledFrom([]string{"worker-7", "worker-7.example.org", "é", "<&>", " "}),
	).Draw(t, "owner")
}

// dry asks the API server whether it would take o under this name.
func dry(t *testing.T, o *unstructured.Unstructured, name string) error {
	t.Helper()
	o = o.DeepCopy()
	o.SetName(name)
	_, err := resource(t, o).Create(t.Context(), o, metav1.CreateOptions{
		FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll},
	})
	return err
}

// Case S5: the API server takes an object of the library's own under the name that
// the library gives it, and under no other readable one, for IPv6 too.
func TestServerKnowsTheNames(t *testing.T) {
	record := func(kind string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": kind, "metadata": map[string]any{}, "spec": spec}}
	}
	for kind, draw := range map[string]func(t *rapid.T) (string, *unstructured.Unstructured){
		v1alpha1.KindBlock: func(t *rapid.T) (string, *unstructured.Unstructured) {
			c := drawCIDR(t)
			return v1alpha1.BlockName(c), record(v1alpha1.KindBlock, map[string]any{"format": int64(1), "cidr": c.String(), "queue": ""})
		},
		v1alpha1.KindAffinity: func(t *rapid.T) (string, *unstructured.Unstructured) {
			k := datastore.AffinityKey{CIDR: drawCIDR(t), Owner: block.Affinity{
				Type: rapid.SampledFrom([]block.AffinityType{"", block.HostAffinity, block.VirtualAffinity}).Draw(t, "type"), Name: drawOwner(t),
			}}
			spec := map[string]any{"name": k.Owner.Name, "cidr": k.CIDR.String()}
			if k.Owner.Type != "" {
				spec["type"] = string(k.Owner.Type)
			}
			return v1alpha1.AffinityName(k), record(v1alpha1.KindAffinity, spec)
		},
		v1alpha1.KindHandle: func(t *rapid.T) (string, *unstructured.Unstructured) {
			id := drawOwner(t)
			return v1alpha1.HandleName(block.HandleID(id)), record(v1alpha1.KindHandle, map[string]any{"handle": id})
		},
	} {
		t.Run(kind, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				name, o := draw(rt)
				if err := dry(t, o, name); err != nil {
					rt.Fatalf("%v: %v", o.Object, err)
				}
				for _, other := range []string{"x" + name[1:], name + "0", strings.TrimSuffix(name, name[len(name)-1:]) + "z", "by-hand"} {
					if len(other) > 253 || other == name || hashed(name) && hashed(other) {
						continue // no name at all; the same; a hash that the API server cannot make
					}
					err := dry(t, o, other)
					if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.name: ") {
						rt.Fatalf("%v under the name %s: %v; want it refused by its name", o.Object, other, err)
					}
				}
			})
		})
	}
}

// hashed reports whether a name ends like one with a hash in it.
func hashed(name string) bool {
	sum := name[strings.LastIndexByte(name, '-')+1:]
	return len(sum) == 52 && strings.Trim(sum, "abcdefghijklmnopqrstuvwxyz234567") == ""
}
