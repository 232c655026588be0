// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"maps"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// fields are values to draw from for each field of a kind's spec; most are legal
// alone, few in every combination.
var fields = map[string]map[string][]any{
	v1alpha1.KindPool: {
		"cidr": {
			"10.64.0.0/16", "10.64.0.0/26", "10.64.0.9/32", "fd00:64::/48", "fd00:64::/121", "fd00:64::9/128", "FD00:64:0::/48",
			"10.64.0.1/16", "10.64.0.0", "127.0.0.0/8", "126.0.0.0/7", "::/0", "64:ff9b::/96", "::ffff:10.0.0.0/112", "", "10.064.0.0/16",
		},
		"blockSize":         {int64(0), int64(23), int64(24), int64(25), int64(26), int64(31), int64(32), int64(33), int64(119), int64(120), int64(122), int64(127), int64(128), int64(129), int64(-1)},
		"gateway":           {"", "first", "First", "10.64.0.1", "10.65.0.1", "fd00:64::1", "fd00::1", "fd00:64::1%eth0", "::ffff:10.64.0.1", "10.64.0.0/16"},
		"nodeSelector":      {"", " ", "rack=a", "rack in (a", "all()"},
		"namespaceSelector": {"", "team", "team=='x'"},
		"allowedUses":       {[]any{}, []any{"Workload"}, []any{"Tunnel"}, []any{"Workload", "Tunnel"}, []any{"LoadBalancer"}, []any{"LoadBalancer", "Tunnel"}, []any{"Tunnel", "Tunnel"}, []any{"tunnel"}, []any{""}},
		"assignmentMode":    {"", "Automatic", "Manual", "manual"},
		"ipipMode":          {"", "Never", "Always", "CrossSubnet", "always"},
		"vxlanMode":         {"", "Never", "Always", "CrossSubnet", "On"},
		"disabled":          {true, false},
	},
	v1alpha1.KindReservation: {
		"reservedCIDRs": {[]any{}, []any{"10.0.0.0/8", "10.0.0.0/24"}, []any{"0.0.0.0/0", "ff00::/8"}, []any{"10.0.0.1/8"}, []any{"10.0.0.0/8", "x"}, []any{"::ffff:0:0/96"}, []any{""}},
	},
	v1alpha1.KindConfiguration: {
		"strictAffinity":               {true, false},
		"autoAllocateBlocks":           {true, false},
		"maxBlocksPerHost":             {int64(0), int64(1), int64(-1)},
		"kubeVirtVMAddressPersistence": {"", "Enabled", "Disabled", "enabled"},
		"ipCooldownSeconds":            {int64(0), int64(1200), int64(1201), int64(-1), int64(1) << 40},
		"leakGracePeriod":              {"", "0", "0s", "-0s", "+5m", "15m", "1h30m", "1.5h", ".5h", "5.m", "1m-5s", "-1ns", "15", "m", "1d", "5µs", "1h 5m", "-1m", "-0.5s"},
	},
	v1alpha1.KindTunnelEndpoint: {
		"nodeUID":              {"a", ""},
		"underlayAddress":      {"", "192.0.2.7", "fd00::1", "::ffff:192.0.2.7", "192.0.2.7/24"},
		"vxlanV6TunnelAddress": {"", "192.0.2.7", "fd00::1", "fe80::1%eth0", "FD00::1"},
		"vtepMAC":              {"", "66:3e:0a:50:03:13", "66:3E:0A:50:03:13", "66:3e:0a:50:03"},
		"wireguardPublicKey":   {"", "mK2e0bq1bV0m6R2yV4G1C8k3r8aQZsT9wJxH5uYdL0Q=", "mK2e0bq1bV0m6R2yV4G1C8k3r8aQZsT9wJxH5uYdL0R=", "mK2e"},
		"hostRoutes": {
			[]any{},
			[]any{map[string]any{"addr": "10.0.0.1", "sequence": "18446744073709551615"}},
			[]any{map[string]any{"addr": "10.0.0.1", "sequence": "18446744073709551616"}},
			[]any{map[string]any{"addr": "10.0.0.1", "sequence": ""}},
			[]any{map[string]any{"addr": "", "sequence": "1"}},
			[]any{map[string]any{"addr": "10.0.0.1", "sequence": "1"}, map[string]any{"addr": "fd00::1", "sequence": "1"}},
		},
	},
}

// What the API server takes, the library takes, and the other way round: nobody
// finds out at the first pod that a stored pool means nothing.
func TestServerAndLibraryAgree(t *testing.T) {
	for kind, spec := range fields {
		t.Run(kind, func(t *testing.T) {
			name := "drawn"
			if kind == v1alpha1.KindConfiguration {
				name = "default"
			}
			taken, refused := 0, 0
			rapid.Check(t, func(rt *rapid.T) {
				drawn := map[string]any{}
				for _, field := range slices.Sorted(maps.Keys(spec)) {
					required := field == "cidr" || field == "nodeUID"
					if required || rapid.IntRange(0, 3).Draw(rt, "has "+field) == 0 {
						drawn[field] = rapid.SampledFrom(spec[field]).Draw(rt, field)
					}
				}
				o := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": v1alpha1.APIVersion, "kind": kind,
					"metadata": map[string]any{"name": name}, "spec": drawn,
				}}
				_, server := resource(t, o).Create(t.Context(), o, metav1.CreateOptions{
					FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll},
				})
				if server != nil && !apierrors.IsInvalid(server) {
					rt.Fatalf("%v: %v", drawn, server)
				}
				library := libraryRefuses(o)
				if (server == nil) != (library == nil) {
					rt.Fatalf("%v\nthe API server says: %v\nthe library says: %v", drawn, server, library)
				}
				if server == nil {
					taken++
				} else {
					refused++
				}
			})
			if taken == 0 || refused == 0 {
				t.Errorf("%d drawn specs were taken, %d refused; want some of each", taken, refused)
			}
		})
	}
}
