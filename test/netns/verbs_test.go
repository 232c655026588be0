// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/test/fixture"
)

const gatewayPool = `
apiVersion: ipam.allod.io/v1alpha1
kind: IPPool
metadata: {name: default-v4}
spec: {cidr: 10.64.0.0/16, gateway: 10.64.0.1}
`

var supported = []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// TestVersion: VERSION names exactly the supported versions, whatever is on
// stdin, and touches no store.
func TestVersion(t *testing.T) {
	t.Parallel()
	p := fixture.Plugin{Binary: binDir + "/allod"}
	for _, stdin := range []string{`{"cniVersion":"1.1.0"}`, `{"cniVersion":"0.3.1"}`, ``} {
		a, err := p.Run(t.Context(), fixture.Call{Verb: "VERSION", Config: []byte(stdin)})
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ SupportedVersions []string }
		if err := errors.Join(a.Err(), json.Unmarshal(a.Stdout, &got)); err != nil {
			t.Fatalf("VERSION with %q: %v", stdin, err)
		}
		if diff := cmp.Diff(supported, got.SupportedVersions); diff != "" {
			t.Errorf("VERSION with %q (-want +got):\n%s", stdin, diff)
		}
	}
}

// TestVerbs: each verb at each version of the specification that has it, and
// refused (code 1, incompatible version) at each that does not.
func TestVerbs(t *testing.T) {
	checks := map[string]bool{"0.4.0": true, "1.0.0": true, "1.1.0": true}
	for _, v := range supported {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, gatewayPool)
			conf := r.conf(nil, object{"cniVersion": v, "type": "ptp"})
			web := pod("web-0")

			a := r.call("ADD", conf, web)
			res, err := a.Result()
			if err != nil {
				t.Fatalf("ADD: %v\nstderr: %s", err, a.Stderr)
			}
			wantResult(t, v, res, a.Stdout)
			withPrev := r.conf(nil, object{"cniVersion": v, "type": "ptp", "prevResult": json.RawMessage(a.Stdout)})
			if checks[v] {
				r.ok("CHECK", withPrev, web)
			} else {
				r.refused("CHECK", withPrev, web, types.ErrIncompatibleCNIVersion)
			}
			gc := r.conf(nil, object{
				"cniVersion": v, "type": "ptp",
				"cni.dev/valid-attachments": []object{{"containerID": web.ContainerID, "ifname": web.IfName}},
			})
			for verb, conf := range map[string][]byte{"GC": gc, "STATUS": conf} {
				if v == "1.1.0" {
					r.ok(verb, conf, fixture.Sandbox{})
				} else {
					r.refused(verb, conf, fixture.Sandbox{}, types.ErrIncompatibleCNIVersion)
				}
			}
			r.counts(1, 0)
			r.ok("DEL", withPrev, web)
			r.counts(0, 0)
			r.clean()
		})
	}
}

// wantResult: one address of the pool with its mask, the gateway, a default route
// without a gateway of its own, in the shape of the version.
func wantResult(t *testing.T, version string, res fixture.Result, raw []byte) {
	t.Helper()
	if res.CNIVersion != version {
		t.Errorf("the result is in version %q, want %q", res.CNIVersion, version)
	}
	if len(res.IPs) != 1 || len(res.Routes) != 1 {
		t.Fatalf("want one address and one route: %s", raw)
	}
	ip := res.IPs[0]
	if pool := netip.MustParsePrefix("10.64.0.0/16"); ip.Address.Masked() != pool || ip.Address.Bits() != pool.Bits() {
		t.Errorf("address %s, want one in %s with its mask", ip.Address, pool)
	}
	if ip.Gateway != netip.MustParseAddr("10.64.0.1") {
		t.Errorf("gateway %s, want the pool's", ip.Gateway)
	}
	if r := res.Routes[0]; r.Dst != fixture.DefaultRoute(true) || r.GW.IsValid() {
		t.Errorf("route %+v, want a default route without a gateway", r)
	}
	wantVersion := ""
	if strings.HasPrefix(version, "0.") {
		wantVersion = "4"
	}
	if ip.Version != wantVersion {
		t.Errorf("ips[0].version %q, want %q", ip.Version, wantVersion)
	}
}

// TestRefused: what the specification wants refused, with the code it gives.
func TestRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayPool)
	web := pod("web-0")
	noName, noIf := pod("web-0"), pod("web-0")
	noName.ContainerID, noIf.IfName = "not/legal", "too-long-for-an-interface"
	for _, tc := range []struct {
		name string
		verb string
		conf []byte
		s    fixture.Sandbox
		code uint
	}{
		{"ADD below the first version", "ADD", r.conf(nil, object{"cniVersion": "0.2.0"}), web, types.ErrIncompatibleCNIVersion},
		{"ADD above the last version", "ADD", r.conf(nil, object{"cniVersion": "9.0.0"}), web, types.ErrIncompatibleCNIVersion},
		{"DEL without a version", "DEL", r.conf(nil, object{"cniVersion": nil}), web, types.ErrIncompatibleCNIVersion},
		{"ADD without a network name", "ADD", r.conf(nil, object{"name": nil}), web, types.ErrInvalidNetworkConfig},
		{"ADD with stdin that is no JSON", "ADD", []byte(`{"cniVersion": `), web, types.ErrDecodingFailure},
		{"ADD with nothing on stdin", "ADD", nil, web, types.ErrDecodingFailure},
		{"ADD without a container", "ADD", r.conf(nil, nil), fixture.Sandbox{}, types.ErrInvalidEnvironmentVariables},
		{"ADD with an illegal container ID", "ADD", r.conf(nil, nil), noName, types.ErrInvalidEnvironmentVariables},
		{"ADD with an illegal interface name", "ADD", r.conf(nil, nil), noIf, types.ErrInvalidEnvironmentVariables},
		{"no such verb", "FROB", r.conf(nil, nil), web, types.ErrInvalidEnvironmentVariables},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := r.in(t)
			r.refused(tc.verb, tc.conf, tc.s, tc.code)
			r.counts(0, 0)
		})
	}
}

// TestStatus: ready with a store that can serve, else code 50: no ADD would
// succeed.
func TestStatus(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayPool)
	r.ok("STATUS", r.conf(nil, nil), fixture.Sandbox{})
	missing := object{"datastore": object{"type": "bolt", "path": r.dir + "/none.db"}}
	r.refused("STATUS", r.conf(missing, nil), fixture.Sandbox{}, types.ErrPluginNotAvailable, "none.db", "allod-agent apply")
}

// TestCheckFails: CHECK fails for each way in which an attachment is not what
// prevResult says, and never allocates (case R11).
func TestCheckFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayPool)
	web, other := pod("web-0"), pod("web-1")
	mine := r.add(r.conf(nil, nil), web)
	theirs := r.add(r.conf(nil, nil), other)
	gone := pod("gone")
	released := r.add(r.conf(nil, nil), gone)
	r.ok("DEL", r.conf(nil, nil), gone)
	wrongIf := web
	wrongIf.IfName = "net1"
	never := netip.MustParsePrefix("10.64.200.7/16")

	prev := func(ps ...netip.Prefix) []byte {
		ips := []object{}
		for _, p := range ps {
			ips = append(ips, object{"address": p.String(), "gateway": "10.64.0.1"})
		}
		return r.conf(nil, object{"prevResult": object{"cniVersion": "1.1.0", "ips": ips}})
	}
	addr := func(res fixture.Result) netip.Prefix { return res.IPs[0].Address }

	r.ok("CHECK", prev(addr(mine)), web) // the rule the cases below break
	for _, tc := range []struct {
		name string
		conf []byte
		s    fixture.Sandbox
		word string
	}{
		{"foreign owner", prev(addr(theirs)), web, addr(theirs).Addr().String()},
		{"foreign owner beside our own address", prev(addr(mine), addr(theirs)), web, addr(theirs).Addr().String()},
		{"released address", prev(addr(released)), gone, addr(released).Addr().String()},
		{"address never allocated", prev(never), web, never.Addr().String()},
		{"address not in prevResult", prev(), web, ""},
		{"our own address replaced in prevResult", prev(never, addr(theirs)), web, ""},
		{"wrong ifname", prev(addr(mine)), wrongIf, addr(mine).Addr().String()},
		{"no prevResult", r.conf(nil, nil), web, "prevResult"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := r.in(t).call("CHECK", tc.conf, tc.s)
			var e *types.Error
			if !errors.As(a.Err(), &e) {
				t.Fatalf("CHECK: want an error result, got exit %d: %s%s", a.Exit, a.Stdout, a.Stderr)
			}
			if text := e.Msg + e.Details; !strings.Contains(text, tc.word) {
				t.Errorf("the error does not name %q: %s", tc.word, text)
			}
			if e.Code == types.ErrTryAgainLater || e.Code == types.ErrInternal {
				t.Errorf("code %d: nothing will get better by itself, and nothing broke inside: %v", e.Code, e)
			}
		})
	}
	r.counts(2, 0)
	r.clean()
}

// TestCheckDualStack: an address of ours that prevResult leaves out is noticed.
func TestCheckDualStack(t *testing.T) {
	t.Parallel()
	r := newRig(t, poolMaskManifest)
	dual := object{"families": []string{"IPv4", "IPv6"}}
	res := r.add(r.conf(dual, nil), pod("web-0"))
	ips := []object{{"address": res.IPs[0].Address.String()}, {"address": res.IPs[1].Address.String()}}
	prev := func(ips []object) []byte {
		return r.conf(dual, object{"prevResult": object{"cniVersion": "1.1.0", "ips": ips}})
	}
	r.ok("CHECK", prev(ips), pod("web-0"))
	for i, left := range [][]object{ips[:1], ips[1:]} {
		a := r.call("CHECK", prev(left), pod("web-0"))
		var e *types.Error
		if out := res.IPs[1-i].Address.Addr().String(); !errors.As(a.Err(), &e) || !strings.Contains(e.Msg+e.Details, out) {
			t.Errorf("CHECK without %s in prevResult: %v", out, a.Err())
		}
	}
}
