// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is larger than the CRDs allow is refused by its field; the largest that they
// allow is not.
func TestValidateKnowsTheLimits(t *testing.T) {
	pool := func(s string) Object {
		o := &IPPool{Spec: IPPoolSpec{CIDR: "10.0.0.0/16", NodeSelector: Selector(s)}}
		o.Name = "p"
		return o
	}
	reservation := func(n int) Object {
		o := &IPReservation{}
		o.Name = "r"
		for range n {
			o.Spec.ReservedCIDRs = append(o.Spec.ReservedCIDRs, "10.0.0.0/8")
		}
		return o
	}
	configuration := func(d string) Object {
		o := &IPAMConfiguration{Spec: IPAMConfigurationSpec{LeakGracePeriod: d}}
		o.Name = "default"
		return o
	}
	for _, tt := range []struct {
		o    Object
		want string // in the error; "": none
	}{
		{pool("a in (" + strings.Repeat("b,", (maxSelector-8)/2) + "b)"), ""},
		{pool("a in (" + strings.Repeat("b,", maxSelector/2) + "b)"), "spec.nodeSelector: has 4104 characters; at most 4096 are read"},
		{pool("a<" + strings.Repeat("9", 18) + ",b=" + strings.Repeat("9", 63)), ""},
		{pool("b,a > 9223372036854775807"), "spec.nodeSelector: not a label selector; 9223372036854775807 has more than 18 digits"},
		{reservation(maxReserved), ""},
		{reservation(maxReserved + 1), "spec.reservedCIDRs: has 4097 entries; at most 4096 are read"},
		{configuration(strings.Repeat("1h", 32)), ""},
		{configuration(strings.Repeat("1h", 33)), "spec.leakGracePeriod: has 66 characters; at most 64 are read"},
		{configuration("9999999h"), `spec.leakGracePeriod: "9999999h" is no duration`},
	} {
		err := tt.o.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v; want %q", tt.o.Ref(), err, tt.want)
		}
	}
}

// The time of a condition is for people: none makes a pool unreadable.
func TestConditionTimes(t *testing.T) {
	at := metav1.Date(2026, 12, 1, 10, 0, 0, 0, metav1.Now().UTC().Location())
	for text, want := range map[string]metav1.Time{
		`"2026-12-01T10:00:00Z"`: at, `"2026-12-01t10:00:00z"`: at, `"2026-12-01T11:00:00+01:00"`: at, `"soon"`: {}, `7`: {}, `null`: {},
	} {
		var o IPPool
		stored := `{"spec":{"cidr":"10.0.0.0/16"},"status":{"capacity":"1","conditions":[{"type":"Other","status":"True"},` +
			`{"type":"Allocatable","status":"True","reason":"OK","lastTransitionTime":` + text + `}]}}`
		if err := json.Unmarshal([]byte(stored), &o); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		p, err := o.Pool()
		got := o.Status.Conditions[1].LastTransitionTime
		if err != nil || !p.Status.Allocatable || !got.Equal(&want) || o.Status.Capacity != "1" || len(o.Status.Conditions) != 2 {
			t.Errorf("%s: %+v, %v; want %v", text, o.Status, err, want)
		}
	}
}
