// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/cni/agentapi"
)

func TestAnnotated(t *testing.T) {
	base := agentapi.AddRequest{Attachment: attachment("c1"), Num4: 1, Pools4: []string{"conf"}}
	with := func(set func(*agentapi.AddRequest)) agentapi.AddRequest {
		r := base
		set(&r)
		return r
	}
	type kv = map[string]string
	tests := []struct {
		name           string
		namespace, pod kv
		want           agentapi.AddRequest
		says           string
	}{
		{"none", nil, kv{"other": "x"}, base, ""},
		{"the namespace goes before the configuration", kv{IPv4PoolsKey: `["ns"]`}, nil, with(func(r *agentapi.AddRequest) { r.Pools4 = []string{"ns"} }), ""},
		{"the pod goes before the namespace", kv{IPv4PoolsKey: `["ns"]`}, kv{IPv4PoolsKey: `["p1","10.0.0.0/8"]`}, with(func(r *agentapi.AddRequest) { r.Pools4 = []string{"p1", "10.0.0.0/8"} }), ""},
		{"each key on its own", kv{IPv6PoolsKey: `["ns6"]`}, kv{FamiliesKey: `["IPv6"]`}, with(func(r *agentapi.AddRequest) { r.Num4, r.Num6, r.Pools6 = 0, 1, []string{"ns6"} }), ""},
		{"dual stack", kv{FamiliesKey: `["IPv4","IPv6"]`}, nil, with(func(r *agentapi.AddRequest) { r.Num6 = 1 }), ""},
		{"given addresses decide the families", kv{FamiliesKey: `["IPv4"]`}, kv{AddrsKey: `["fd00::5","10.0.0.5","10.0.0.6"]`}, with(func(r *agentapi.AddRequest) {
			r.Num4, r.Num6, r.Pools4 = 2, 1, nil
			r.Addrs = []netip.Addr{netip.MustParseAddr("fd00::5"), netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.6")}
		}), ""},
		{"naming an address is naming its pool", kv{IPv4PoolsKey: `["ns"]`}, kv{AddrsKey: `["10.0.0.5"]`}, with(func(r *agentapi.AddRequest) {
			r.Pools4, r.Addrs = nil, []netip.Addr{netip.MustParseAddr("10.0.0.5")}
		}), ""},
		{"a pod's own pools go with its addresses", kv{IPv4PoolsKey: `["ns"]`}, kv{AddrsKey: `["10.0.0.5"]`, IPv4PoolsKey: `["p"]`}, with(func(r *agentapi.AddRequest) {
			r.Pools4, r.Addrs = []string{"p"}, []netip.Addr{netip.MustParseAddr("10.0.0.5")}
		}), ""},
		{"a slip of the pen", nil, kv{"ipam.allod.io/ipv4Pools": `["a"]`}, base, "pod annotation ipam.allod.io/ipv4Pools: unknown; known are ipam.allod.io/ipv4pools"},
		{"of a namespace", kv{"ipam.allod.io/ipv4pool": `["a"]`}, nil, base, "namespace annotation ipam.allod.io/ipv4pool: unknown"},
		{"pools of a family the pod does not get", nil, kv{IPv6PoolsKey: `["a"]`}, base, "pod annotation ipam.allod.io/ipv6pools: the pod gets no address of that family"},
		{"a namespace may name pools of both", kv{IPv6PoolsKey: `["a"]`}, nil, with(func(r *agentapi.AddRequest) { r.Pools6 = []string{"a"} }), ""},
		{"no list", nil, kv{IPv4PoolsKey: `"a"`}, base, "pod annotation ipam.allod.io/ipv4pools: want a JSON list"},
		{"null", kv{IPv4PoolsKey: `null`}, nil, base, "namespace annotation ipam.allod.io/ipv4pools: want a JSON list"},
		{"empty list", nil, kv{IPv6PoolsKey: `[]`}, base, "0 entries"},
		{"trailing", nil, kv{IPv6PoolsKey: `["a"] x`}, base, "something follows"},
		{"twice", nil, kv{IPv6PoolsKey: `["a","a"]`}, base, "twice"},
		{"too long", nil, kv{IPv6PoolsKey: `["` + strings.Repeat("a", maxAnnotation) + `"]`}, base, "longer than"},
		{"bad family", nil, kv{FamiliesKey: `["ipv4"]`}, base, `"ipv4" is neither IPv4 nor IPv6`},
		{"bad address", nil, kv{AddrsKey: `["10.0.0.5/24"]`}, base, `"10.0.0.5/24" is no IPv4 or IPv6 address`},
		{"address of a namespace", kv{AddrsKey: `["10.0.0.5"]`}, nil, base, "to a pod only"},
		{"all that is wrong is told", kv{IPv4PoolsKey: "x"}, kv{IPv6PoolsKey: "y"}, base, "pod annotation ipam.allod.io/ipv6pools"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := annotated(base, tt.namespace, tt.pod)
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("got %v, want an error that says %q", err, tt.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	static := with(func(r *agentapi.AddRequest) { r.Addrs = []netip.Addr{netip.MustParseAddr("10.0.0.9")} })
	if _, err := annotated(static, nil, kv{AddrsKey: `["10.0.0.5"]`}); err == nil {
		t.Error("addresses of the runtime and of an annotation were both accepted")
	}
	if got, err := annotated(static, kv{FamiliesKey: `["IPv6"]`}, nil); err != nil || got.Num6 != 0 {
		t.Errorf("a namespace's families override given addresses: %+v, %v", got, err)
	}
}

func FuzzAnnotated(f *testing.F) {
	f.Add(`["a"]`, `["fd00::1"]`, `["IPv4"]`)
	f.Add(`[]`, `null`, `{}`)
	f.Fuzz(func(t *testing.T, pools, addrs, families string) {
		got, err := annotated(agentapi.AddRequest{Num4: 1}, map[string]string{IPv4PoolsKey: pools},
			map[string]string{AddrsKey: addrs, FamiliesKey: families})
		if err != nil {
			return
		}
		if got.Num4+got.Num6 != len(got.Addrs) || len(got.Pools4) != 0 || len(got.Addrs) > maxItems {
			t.Errorf("accepted %q %q %q as %+v", pools, addrs, families, got)
		}
	})
}
