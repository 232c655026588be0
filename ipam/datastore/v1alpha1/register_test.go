// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/allod/allod/ipam/block"
)

// Every kind is known with its list and its resource, and has a CRD of that name.
func TestAddToScheme(t *testing.T) {
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for kind, plural := range resources {
		for _, k := range []string{kind, kind + "List"} {
			if !s.Recognizes(GroupVersion.WithKind(k)) {
				t.Errorf("the scheme does not know %s", k)
			}
		}
		if got := Resource(kind).String(); got != "ipam.allod.io/v1alpha1, Resource="+plural {
			t.Errorf("Resource(%s) = %s", kind, got)
		}
		if _, err := os.Stat(filepath.Join("..", "..", "..", "manifests", "crds", Group+"_"+plural+".yaml")); err != nil {
			t.Error(err)
		}
	}
	if !Resource("Pod").Empty() {
		t.Error("Pod is a kind of ours")
	}
}

// A copy shares nothing with what it was made from.
func TestDeepCopyOfBlock(t *testing.T) {
	in := &IPAMBlock{Spec: IPAMBlockSpec{
		Format: 1, CIDR: "10.0.0.0/30", Queue: "0-2", Slots: []string{"3 allocated - 5"},
		Extra: []block.Extra{{Key: "shade", JSON: []byte(`"blue"`)}},
	}}
	in.Labels = map[string]string{"a": "b"}
	out, ok := in.DeepCopyObject().(*IPAMBlock)
	if !ok {
		t.Fatalf("copied to %T", in.DeepCopyObject())
	}
	if d := diff(in, out); d != "" {
		t.Errorf("copy (-want +got):\n%s", d)
	}
	before, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	out.Labels["a"], out.Spec.Slots[0] = "c", "changed"
	out.Spec.Extra[0].JSON[1] = 'x'
	if after, err := json.Marshal(in); err != nil || string(after) != string(before) {
		t.Errorf("the original has changed with its copy: %s, %v", after, err)
	}
}

func TestTunnelEndpointValidate(t *testing.T) {
	const good = `
metadata: {name: worker-7}
spec:
  nodeUID: 6a0b6c1e
  underlayAddress: 192.0.2.7
  ipipTunnelAddress: 10.80.3.18
  vxlanV6TunnelAddress: fd00:80::42
  vtepMAC: 66:3e:0a:50:03:13
  wireguardPublicKey: mK2e0bq1bV0m6R2yV4G1C8k3r8aQZsT9wJxH5uYdL0Q=
  hostRoutes: [{addr: 10.80.9.4, sequence: "1796026530250000009"}]
`
	for _, tt := range []struct{ name, from, to, want string }{
		{"as it is", "", "", ""},
		{"name", "worker-7", "Worker", "metadata.name"},
		{"no node", "6a0b6c1e", `""`, "spec.nodeUID: missing"},
		{"a mapped address", "192.0.2.7", `"::ffff:192.0.2.7"`, `spec.underlayAddress: "::ffff:192.0.2.7" is no IPv4 address`},
		{"the other family", "10.80.3.18", `"fd00::1"`, `spec.ipipTunnelAddress: "fd00::1" is no IPv4 address`},
		{"IPv4 where IPv6 belongs", "fd00:80::42", "10.80.3.18", `spec.vxlanV6TunnelAddress: "10.80.3.18" is no IPv6 address`},
		{"a zone", "fd00:80::42", `"fe80::1%eth0"`, "spec.vxlanV6TunnelAddress"},
		{"capitals in a MAC", "66:3e", "66:3E", "spec.vtepMAC"},
		{"a key of 31 bytes", "mK2e0b", "mK2e", "spec.wireguardPublicKey"},
		{"a route to a CIDR", "10.80.9.4", "10.80.9.0/24", `spec.hostRoutes[0].addr: "10.80.9.0/24" is no address`},
		{"a sequence of 65 bits", "1796026530250000009", "18446744073709551616", "spec.hostRoutes[0].sequence"},
		{"a route twice", "hostRoutes: [", `hostRoutes: [{addr: 10.80.9.4, sequence: "1"}, `, "spec.hostRoutes[1]: Duplicate value"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var o TunnelEndpoint
			if err := yaml.UnmarshalStrict([]byte(strings.Replace(good, tt.from, tt.to, 1)), &o); err != nil {
				t.Fatal(err)
			}
			err := o.Validate()
			if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error %v; want one that begins %q", err, tt.want)
			}
		})
	}
}
