// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/allod/allod/test/fixture"
)

// TestConfigRefused: ADD refuses a configuration that cannot work, with code 7,
// and names the field. Nothing is allocated.
func TestConfigRefused(t *testing.T) {
	t.Parallel()
	plain := newRig(t, smallPools)  // pools without a gateway
	fixed := newRig(t, gatewayPool) // a fixed gateway
	ptp, bridge := object{"type": "ptp"}, object{"type": "bridge", "isGateway": true}
	for _, tc := range []struct {
		name  string
		rig   *rig
		ipam  object
		top   object
		words []string
	}{
		{"ptp with a pool without gateway", plain, nil, ptp, []string{"gateway", "small-v4", "main plugin"}},
		{"bridge isGateway with a pool without gateway", plain, nil, bridge, []string{"gateway", "small-v4"}},
		{"bridge isDefaultGateway with a pool without gateway", plain, nil, object{"type": "bridge", "isDefaultGateway": true}, []string{"gateway", "small-v4"}},
		{"mask block with a fixed gateway", fixed, object{"mask": "block"}, ptp, []string{"mask", "block", "gateway", "default-v4"}},
		{"unknown field", fixed, object{"maks": "pool"}, nil, []string{"ipam.", "maks"}},
		{"unknown field of datastore", fixed, object{"datastore": object{"type": "bolt", "file": "x"}}, nil, []string{"ipam.datastore", "file"}},
		{"datastore of no kind", fixed, object{"datastore": object{"type": "etcd"}}, nil, []string{"ipam.datastore.type", "etcd"}},
		{"no such mask", fixed, object{"mask": "net"}, nil, []string{"ipam.mask", "net"}},
		{"no such family", fixed, object{"families": []string{"IPv5"}}, nil, []string{"ipam.families", "IPv5"}},
		{"a family twice", fixed, object{"families": []string{"IPv4", "IPv4"}}, nil, []string{"ipam.families", "IPv4"}},
		{"families of the wrong shape", fixed, object{"families": "IPv4"}, nil, []string{"ipam.families"}},
		{"a route that is none", fixed, object{"routes": []object{{"dst": "10.0.0.1/8"}}}, nil, []string{"ipam.routes[0].dst", "10.0.0.1/8"}},
		{"a pool of the other family", fixed, object{"ipv4Pools": []string{"fd00::/64"}}, nil, []string{"ipam.ipv4Pools[0]", "fd00::/64"}},
		{"a nameserver that is no address", fixed, object{"dns": object{"nameservers": []string{"dns"}}}, nil, []string{"ipam.dns.nameservers[0]", "dns"}},
		{"a relative path", fixed, object{"lockFile": "host.lock"}, nil, []string{"ipam.lockFile", "host.lock"}},
		{"everything at once", fixed, object{"mask": "net", "families": []string{}}, nil, []string{"ipam.mask", "ipam.families"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := tc.rig.in(t)
			r.refused("ADD", r.conf(tc.ipam, tc.top), pod("web-0"), types.ErrInvalidNetworkConfig, tc.words...)
			r.counts(0, 0)
		})
	}
	plain.clean()
	fixed.clean()
}

// TestSecretsStayOut: what is on stdin is never repeated as a whole, neither in
// an error nor on stderr.
func TestSecretsStayOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayPool)
	const secret = "hunter2-hunter2"
	for name, conf := range map[string][]byte{
		"refused":  r.conf(object{"maks": 1}, object{"token": secret}),
		"accepted": r.conf(nil, object{"token": secret}),
		"no JSON":  []byte(`{"cniVersion": "1.1.0", "name": "n", "token": "` + secret + `", `),
	} {
		a := r.call("ADD", conf, pod(strings.ReplaceAll(name, " ", "-")))
		if strings.Contains(string(a.Stdout)+string(a.Stderr), secret) {
			t.Errorf("%s: the secret is in the output:\n%s%s", name, a.Stdout, a.Stderr)
		}
	}
}

// TestResultFields: routes and DNS of the configuration, and mask host, in the
// result.
func TestResultFields(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		ipam object
		want string
	}{
		{"defaults", nil, "ip /16 gw 10.64.0.1; routes 0.0.0.0/0"},
		{"dual", object{"families": []string{"IPv4", "IPv6"}}, "ip /16 gw 10.64.0.1; ip /112 gw fd00:64::1; routes 0.0.0.0/0 ::/0"},
		// A host prefix has no room for a gateway.
		{"mask host", object{"mask": "host"}, "ip /32; routes 0.0.0.0/0"},
		{"no routes", object{"routes": []object{}}, "ip /16 gw 10.64.0.1; routes"},
		{
			"routes, one of a family not assigned",
			object{"routes": []object{{"dst": "10.0.0.0/8", "gw": "10.64.0.9"}, {"dst": "fd00::/8"}, {"dst": "192.0.2.0/24"}}},
			"ip /16 gw 10.64.0.1; routes 10.0.0.0/8 via 10.64.0.9 192.0.2.0/24",
		},
		{
			"dns",
			object{"dns": object{"nameservers": []string{"10.96.0.10"}, "search": []string{"cluster.local"}, "options": []string{"ndots:5"}, "domain": "local"}},
			"ip /16 gw 10.64.0.1; routes 0.0.0.0/0; dns 10.96.0.10 cluster.local ndots:5 local",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, poolMaskManifest)
			if got := render(r.add(r.conf(tc.ipam, nil), pod("web-0"))); got != tc.want {
				t.Errorf("result:\n%s\nwant:\n%s", got, tc.want)
			}
		})
	}
}

func render(r fixture.Result) string {
	var b strings.Builder
	for _, ip := range r.IPs {
		fmt.Fprintf(&b, "ip /%d", ip.Address.Bits())
		if ip.Gateway.IsValid() {
			fmt.Fprintf(&b, " gw %s", ip.Gateway)
		}
		b.WriteString("; ")
	}
	b.WriteString("routes")
	for _, route := range r.Routes {
		fmt.Fprintf(&b, " %s", route.Dst)
		if route.GW.IsValid() {
			fmt.Fprintf(&b, " via %s", route.GW)
		}
	}
	if d := r.DNS; len(d.Nameservers) > 0 {
		fmt.Fprintf(&b, "; dns %s %s %s %s", strings.Join(d.Nameservers, " "), strings.Join(d.Search, " "), strings.Join(d.Options, " "), d.Domain)
	}
	return b.String()
}
