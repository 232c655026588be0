// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"

	"github.com/allod/allod/ipam/datastore/codec"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// long is more than any text may be.
var long = strings.Repeat("x", 1<<16)

func nines(n int) string { return strings.Repeat("9", n) }

// prefix is a legal prefix of a key of n characters, but for its length.
func prefix(n int) string { return strings.Repeat("a.", n/2-1) + strings.Repeat("a", n-2*(n/2-1)) }

func list(v string, n int) string { return strings.TrimSuffix(strings.Repeat(v+",", n), ",") }

func many(n int, v any) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// fields are values to draw from for each field of a kind's spec; most are legal
// alone, few in every combination.
var fields = map[string]map[string][]any{
	v1alpha1.KindPool: {
		"cidr": {
			"10.64.0.0/16", "10.64.0.0/26", "10.64.0.9/32", "fd00:64::/48", "fd00:64::/121", "fd00:64::9/128", "FD00:64:0::/48",
			"10.64.0.1/16", "10.64.0.0", "127.0.0.0/8", "126.0.0.0/7", "::/0", "64:ff9b::/96", "::ffff:10.0.0.0/112", "", "10.064.0.0/16",
		},
		"blockSize": {int64(math.MinInt64), int64(math.MaxInt64), int64(1) << 32, int64(0), int64(23), int64(24), int64(25), int64(26), int64(31), int64(32), int64(33), int64(119), int64(120), int64(122), int64(127), int64(128), int64(129), int64(-1)},
		"gateway":   {"", "first", "First", "10.64.0.1", "10.65.0.1", "fd00:64::1", "fd00::1", "fd00:64::1%eth0", "::ffff:10.64.0.1", "10.64.0.0/16"},
		"nodeSelector": {
			"", " ", "rack=a", "rack in (a", "all()", "a<1", "a>" + nines(18), "a<" + nines(19), "a > " + nines(63), "a<" + nines(64), "a<" + strings.Repeat("0", 20) + "1",
			"a<9223372036854775807", prefix(253) + "/a", prefix(254) + "/a=b", "b in (c),!" + prefix(300) + "/a", "a=" + prefix(253), "a in (" + list("b", 2000) + ")", "a in (" + list("b", 3000) + ")",
			strings.Repeat(" ", 5000), nines(5000),
		},
		"namespaceSelector": {"", "team", "team=='x'", "a<" + nines(23), prefix(254) + "/a", prefix(253) + "/a > 1"},
		"allowedUses":       {[]any{}, []any{"Workload"}, []any{"Tunnel"}, []any{"Workload", "Tunnel"}, []any{"LoadBalancer"}, []any{"LoadBalancer", "Tunnel"}, []any{"Tunnel", "Tunnel"}, []any{"tunnel"}, []any{""}},
		"assignmentMode":    {"", "Automatic", "Manual", "manual"},
		"ipipMode":          {"", "Never", "Always", "CrossSubnet", "always"},
		"vxlanMode":         {"", "Never", "Always", "CrossSubnet", "On"},
		"disabled":          {true, false},
	},
	v1alpha1.KindReservation: {
		"reservedCIDRs": {[]any{}, []any{"10.0.0.0/8", "10.0.0.0/24"}, []any{"0.0.0.0/0", "ff00::/8"}, []any{"10.0.0.1/8"}, []any{"10.0.0.0/8", "x"}, []any{"::ffff:0:0/96"}, []any{""}, many(4096, "10.0.0.0/8"), many(4097, "10.0.0.0/8"), []any{long}},
	},
	v1alpha1.KindConfiguration: {
		"strictAffinity":               {true, false},
		"autoAllocateBlocks":           {true, false},
		"maxBlocksPerHost":             {int64(0), int64(1), int64(-1), int64(math.MaxInt64), int64(math.MinInt64)},
		"kubeVirtVMAddressPersistence": {"", "Enabled", "Disabled", "enabled", long},
		"ipCooldownSeconds":            {int64(math.MinInt64), int64(math.MaxInt64), int64(0), int64(1200), int64(1201), int64(-1), int64(1) << 40},
		"leakGracePeriod": {
			"", "0", "0s", "-0s", "+5m", "15m", "1h30m", "1.5h", ".5h", "5.m", "1m-5s", "-1ns", "15", "m", "1d", "5µs", "1h 5m", "-1m", "-0.5s",
			"9999999h", "2562047h47m16.854775807s", "2562047h47m16.854775808s", "2562048h", "-9999999h", "-2562047h47m16.854775808s", nines(19) + "ns", nines(63) + "h", nines(64) + "h",
			"0." + nines(40) + "h", strings.Repeat("1h", 32), strings.Repeat("1h", 33), "2000000h2000000h", "0.0000000000001ns", "-0.0000000000001ns", strings.Repeat("0", 60) + "1h", strings.Repeat("0", 70) + "h", long,
		},
	},
	v1alpha1.KindTunnelEndpoint: {
		"nodeUID":              {"a", "", strings.Repeat("é", 128), strings.Repeat("é", 129)},
		"underlayAddress":      {"", "192.0.2.7", "fd00::1", "::ffff:192.0.2.7", "192.0.2.7/24"},
		"vxlanV6TunnelAddress": {"", "192.0.2.7", "fd00::1", "fe80::1%eth0", "FD00::1"},
		"vtepMAC":              {"", "66:3e:0a:50:03:13", "66:3E:0A:50:03:13", "66:3e:0a:50:03"},
		"wireguardPublicKey":   {"", "mK2e0bq1bV0m6R2yV4G1C8k3r8aQZsT9wJxH5uYdL0Q=", "mK2e0bq1bV0m6R2yV4G1C8k3r8aQZsT9wJxH5uYdL0R=", "mK2e"},
		"hostRoutes": {
			[]any{},
			[]any{map[string]any{"addr": "10.0.0.1", "sequence": "18446744073709551615"}},
			[]any{map[string]any{"addr": "10.0.0.1", "sequence": "18446744073709551616"}},
			[]any{map[string]any{"addr": "10.0.0.1", "sequence": ""}},
			[]any{map[string]any{"addr": "10.0.0.1", "sequence": "00000000000000000001"}},
			[]any{map[string]any{"addr": "10.0.0.1", "sequence": "000000000000000000001"}},
			[]any{map[string]any{"addr": "10.0.0.1", "sequence": nines(20)}},
			[]any{map[string]any{"addr": "", "sequence": "1"}},
			[]any{map[string]any{"addr": "10.0.0.1", "sequence": "1"}, map[string]any{"addr": "fd00::1", "sequence": "1"}},
		},
	},
}

// Case C7: the API server itself, with no webhook, refuses what the library refuses.
// What it takes, the library takes, and the other way round: nobody finds out at the
// first pod that a stored pool means nothing.
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

// Each value alone, in a spec that is good without it, as drawing might not come to it.
func TestServerAndLibraryAgreeOnEachValue(t *testing.T) {
	good := map[string]map[string]any{
		v1alpha1.KindPool: {"cidr": "10.64.0.0/16"}, v1alpha1.KindReservation: {"reservedCIDRs": []any{"10.0.0.0/8"}},
		v1alpha1.KindConfiguration: {}, v1alpha1.KindTunnelEndpoint: {"nodeUID": "a"},
	}
	for kind, spec := range fields {
		for field, values := range spec {
			for _, value := range values {
				with := maps.Clone(good[kind])
				with[field] = value
				o := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": v1alpha1.APIVersion, "kind": kind, "metadata": map[string]any{"name": "default"}, "spec": with,
				}}
				server, library := dry(t, o, "default"), libraryRefuses(o)
				if (server == nil) != (library == nil) {
					t.Errorf("%s %s %.80v\nthe API server says: %.500v\nthe library says: %.500v", kind, field, value, server, library)
				}
			}
		}
	}
}

// numbers are texts of JSON numbers, for the fields that have one.
var numbers = []string{
	"0", "-0", "1", "26", "26.0", "2.6e1", "2.65e1", "26e-1", "1e3", "1e19", "1e300", "1e400", "-1e19", "9223372036854775807", "9223372036854775808",
	"18446744073709551615", "18446744073709551616", "99999999999999999999999", "-9223372036854775808", "-9223372036854775809", "0.1", "1.0000000000000001",
}

// What the API server stores of any number, every store can read.
func TestStoredNumbersAreRead(t *testing.T) {
	c, err := rest.HTTPClientFor(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	const block = `"cidr":"10.64.0.0/26","queue":""`
	for _, tt := range []struct{ kind, name, spec string }{
		{v1alpha1.KindPool, "p", `"cidr":"10.64.0.0/16","blockSize":%s`},
		{v1alpha1.KindConfiguration, "default", `"maxBlocksPerHost":%s`},
		{v1alpha1.KindConfiguration, "default", `"ipCooldownSeconds":%s`},
		{v1alpha1.KindBlock, "10-64-0-0-26", block + `,"format":%s`},
		{v1alpha1.KindBlock, "10-64-0-0-26", block + `,"format":1,"sequence":%s`},
		{v1alpha1.KindBlock, "10-64-0-0-26", block + `,"format":1,"later":%s`},
	} {
		taken := 0
		for _, n := range numbers {
			spec := fmt.Sprintf(tt.spec, n)
			body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":{%s}}`, v1alpha1.APIVersion, tt.kind, tt.name, spec)
			url := server.Config().Host + "/apis/" + v1alpha1.APIVersion + "/" + v1alpha1.Resource(tt.kind).Resource + "?dryRun=All"
			answer, err := c.Post(url, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode != http.StatusCreated {
				continue
			}
			taken++
			switch tt.kind {
			case v1alpha1.KindPool:
				_, _, _, err = codec.Pools().Decode(text)
			case v1alpha1.KindConfiguration:
				_, _, _, err = codec.Config().Decode(text)
			default:
				_, _, _, err = codec.Blocks().Decode(text)
			}
			if err != nil {
				t.Errorf("%s {%s} is stored, and then: %v", tt.kind, spec, err)
			}
		}
		if taken == 0 || taken == len(numbers) && !strings.Contains(tt.spec, "later") {
			t.Errorf("%s {%s}: %d of %d numbers are taken", tt.kind, tt.spec, taken, len(numbers))
		}
	}
}

// A condition that somebody else sets, on a pool or beside ours, does not make the pool
// one that cannot be read.
func TestStoredConditionsAreRead(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.APIVersion, "kind": v1alpha1.KindPool, "metadata": map[string]any{"name": "conditions"}, "spec": map[string]any{"cidr": "10.64.0.0/16"},
	}}
	o = store(t, o)
	taken := 0
	for field, values := range map[string][]any{
		"lastTransitionTime": {
			"2026-12-01T10:00:00Z", "2026-12-01t10:00:00z", "2026-12-01T10:00:00", "2026-12-01 10:00:00Z", "2026-12-01T10:00:00.123456789123Z", "2026-12-01T10:00:00+0100",
			"2026-12-01T10:00:00+01:00", "0000-01-01T00:00:00Z", "9999-12-31T23:59:60Z", "12026-12-01T10:00:00Z", "2026-12-01", "2026-12-01T10:00Z", "2026-12-01T24:00:00Z", "", "x",
		},
		"observedGeneration": {int64(0), int64(-1), int64(math.MaxInt64), 1e19, 2.5},
		"message":            {"", strings.Repeat("é", 32768), strings.Repeat("é", 32769)},
		"reason":             {"", "a", "a b", strings.Repeat("a", 1024), strings.Repeat("a", 1025)},
	} {
		for _, value := range values {
			condition := map[string]any{"type": "Allocatable", "status": "True", "reason": "OK", "message": "", "lastTransitionTime": "2026-12-01T10:00:00Z"}
			condition[field] = value
			with := o.DeepCopy()
			with.Object["status"] = map[string]any{"conditions": []any{condition}}
			got, err := resource(t, o).UpdateStatus(t.Context(), with, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				continue
			}
			taken++
			text, err := got.MarshalJSON()
			if err == nil {
				_, _, _, err = codec.Pools().Decode(text)
			}
			if err != nil {
				t.Errorf("a condition with %s %.80v is stored, and then: %v", field, value, err)
			}
		}
	}
	if taken < 10 {
		t.Errorf("%d conditions were taken", taken)
	}
}
