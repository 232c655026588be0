// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/test/fixture"
)

// Pools that a test can fill: four addresses of each family.
const smallPools = `
apiVersion: ipam.allod.io/v1alpha1
kind: IPPool
metadata: {name: small-v4}
spec: {cidr: 10.99.0.0/30, blockSize: 30}
---
apiVersion: ipam.allod.io/v1alpha1
kind: IPPool
metadata: {name: small-v6}
spec: {cidr: "fd00:99::/126", blockSize: 126}
`

func wantSame(t *testing.T, want, got fixture.Result) {
	t.Helper()
	if diff := cmp.Diff(want.Addrs(), got.Addrs(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

// TestRetriedAdd (case R5): an ADD that is repeated gets what it got, in every
// family, and takes nothing more.
func TestRetriedAdd(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallPools)
	conf := r.conf(object{"families": []string{"IPv4", "IPv6"}}, nil)
	first := r.add(conf, pod("web-0"))
	r.add(conf, pod("web-1"))
	for range 3 {
		wantSame(t, first, r.add(conf, pod("web-0")))
	}
	r.counts(4, 0)
	for _, p := range []string{"web-0", "web-1"} {
		r.ok("DEL", conf, pod(p))
	}
	r.counts(0, 0)
	r.clean()
}

// TestTakeOver (case R3): in a pool without a free address a pod's sandbox is made
// again under a new container ID, without DEL. It gets the pod's address; the late
// DEL of the old ID releases nothing.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallPools)
	conf := r.conf(nil, nil)
	old := pod("web-0")
	first := r.add(conf, old)
	for _, p := range []string{"web-1", "web-2", "web-3"} {
		r.add(conf, pod(p))
	}
	r.counts(4, 0)
	again := old
	again.ContainerID = fixture.Digest("web-0 restarted")

	otherIf, noUID, otherPod := again, again, again
	otherIf.IfName, noUID.UID, otherPod.UID = "net1", "", uid("web-0 of yesterday")
	for what, s := range map[string]fixture.Sandbox{"another interface": otherIf, "no UID": noUID, "another UID": otherPod} {
		if e := r.refused("ADD", conf, s, types.ErrTryAgainLater); t.Failed() {
			t.Fatalf("%s: %v", what, e)
		}
		r.counts(4, 0)
	}

	wantSame(t, first, r.add(conf, again))
	prev := func(res fixture.Result) []byte {
		return r.conf(nil, object{"prevResult": object{"cniVersion": "1.1.0", "ips": []object{{"address": res.IPs[0].Address.String()}}}})
	}
	r.ok("CHECK", prev(first), again)
	if a := r.call("CHECK", prev(first), old); a.Err() == nil {
		t.Error("CHECK of the old container still succeeds")
	}
	r.ok("DEL", conf, old) // late
	r.counts(4, 0)
	r.ok("CHECK", prev(first), again)
	r.ok("DEL", conf, again)
	r.counts(3, 0)
	r.clean()
}

// TestStatic: addresses asked for by CNI_ARGS or by the capability "ips".
func TestStatic(t *testing.T) {
	t.Parallel()
	dual := object{"families": []string{"IPv4", "IPv6"}}
	caps := func(ips ...string) object { return object{"runtimeConfig": object{"ips": ips}} }
	for _, tc := range []struct {
		name string
		args string
		top  object
		ipam object
		want []string
	}{
		{name: "CNI_ARGS", args: "10.64.3.7", want: []string{"10.64.3.7"}},
		{name: "CNI_ARGS, both families", args: "10.64.3.7,fd00:64::37", ipam: dual, want: []string{"10.64.3.7", "fd00:64::37"}},
		{name: "ips", top: caps("10.64.3.8"), want: []string{"10.64.3.8"}},
		{name: "ips with masks", top: caps("10.64.3.8/24", "fd00:64::38/64"), ipam: dual, want: []string{"10.64.3.8", "fd00:64::38"}},
		{name: "several of one family", top: caps("10.64.3.8", "10.64.3.9"), want: []string{"10.64.3.8", "10.64.3.9"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, poolMaskManifest)
			s := pod("web-0")
			s.IP = tc.args
			conf := r.conf(tc.ipam, tc.top)
			res := r.add(conf, s)
			var got []string
			for _, ip := range res.IPs {
				got = append(got, ip.Address.Addr().String())
				if bits := map[bool]int{true: 16, false: 112}[ip.Address.Addr().Is4()]; ip.Address.Bits() != bits {
					t.Errorf("%s: want the pool's mask /%d", ip.Address, bits)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			wantSame(t, res, r.add(conf, s))
			r.counts(len(tc.want), 0)

			thief := pod("web-1")
			thief.IP = tc.args
			r.refused("ADD", conf, thief, types.ErrTryAgainLater, tc.want[0])
			r.counts(len(tc.want), 0)
			r.ok("DEL", conf, s)
			r.counts(0, 0)
			r.clean()
		})
	}
}

// TestStaticRefused: an address that cannot be had names itself and its source.
func TestStaticRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayPool)
	for _, tc := range []struct {
		name  string
		args  string
		top   object
		code  uint
		words []string
	}{
		{"no address", "10.64.3", nil, types.ErrInvalidEnvironmentVariables, []string{"IP", "10.64.3"}},
		{"no address in ips", "", object{"runtimeConfig": object{"ips": []string{"web"}}}, types.ErrInvalidNetworkConfig, []string{"runtimeConfig.ips", "web"}},
		{"both sources", "10.64.3.7", object{"runtimeConfig": object{"ips": []string{"10.64.3.8"}}}, types.ErrInvalidEnvironmentVariables, []string{"IP", "runtimeConfig.ips"}},
		{"in no pool", "10.65.0.7", nil, types.ErrInvalidNetworkConfig, []string{"10.65.0.7"}},
		{"the pool's gateway", "10.64.0.1", nil, types.ErrInvalidNetworkConfig, []string{"10.64.0.1", "gateway"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := r.in(t)
			s := pod("web-0")
			s.IP = tc.args
			r.refused("ADD", r.conf(nil, tc.top), s, tc.code, tc.words...)
			r.counts(0, 0)
		})
	}
	r.clean()
}

// TestStaticThroughLibcni: the capability "ips" as a runtime passes it.
func TestStaticThroughLibcni(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayPool)
	n := newNode(t)
	list := r.network("k8s-pod-network", object{"type": "ptp", "capabilities": object{"ips": true}}, nil)
	web := pod("web-0")
	own := newNetns(t, workspace, name(t, "web-0"))
	web.Netns, web.Caps = own.Path, object{"ips": []string{"10.64.9.9/16"}}
	if _, err := n.Add(t.Context(), list, web); err != nil {
		t.Fatal(err)
	}
	got, err := own.Addrs("eth0")
	if err != nil || !slices.Contains(got, netip.MustParsePrefix("10.64.9.9/16")) {
		t.Errorf("eth0 has %v (%v), want 10.64.9.9/16", got, err)
	}
	if err := n.Check(t.Context(), list, web); err != nil {
		t.Error(err)
	}
	if err := n.Del(t.Context(), list, web); err != nil {
		t.Error(err)
	}
	r.counts(0, 0)
	r.clean()
}

// TestBothFamiliesOrNeither (INV-11): when one family is exhausted a dual-stack ADD
// keeps nothing of the other.
func TestBothFamiliesOrNeither(t *testing.T) {
	t.Parallel()
	for _, short := range []string{"IPv4", "IPv6"} {
		t.Run(short+" is exhausted", func(t *testing.T) {
			t.Parallel()
			r := newRig(t, smallPools)
			full := r.conf(object{"families": []string{short}}, nil)
			for _, p := range []string{"a", "b", "c", "d"} {
				r.add(full, pod(p))
			}
			r.counts(4, 0)
			dual := r.conf(object{"families": []string{"IPv4", "IPv6"}}, nil)
			pool := map[string]string{"IPv4": "small-v4", "IPv6": "small-v6"}[short]
			r.refused("ADD", dual, pod("web-0"), types.ErrTryAgainLater, pool)
			r.counts(4, 0)
			r.ok("DEL", full, pod("a"))
			r.add(dual, pod("web-0")) // the retry, once there is room
			r.counts(5, 0)
			r.clean()
		})
	}
}
