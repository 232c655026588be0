// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"

	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// served is what `kubectl get` and `kubectl api-resources` show of a kind.
var served = map[string]struct {
	short   string
	columns []string // those shown without -o wide
	status  bool     // has a status subresource
}{
	v1alpha1.KindPool:           {"ipp", []string{"Name", "CIDR", "Capacity", "Allocated", "Cooling", "Reserved", "Available", "Allocatable", "Reason", "Age"}, true},
	v1alpha1.KindReservation:    {"ipr", []string{"Name", "CIDRs", "Age"}, false},
	v1alpha1.KindConfiguration:  {"ipamconfig", []string{"Name", "Strict", "Blocks/Host", "Cooldown", "Grace", "Age"}, false},
	v1alpha1.KindBlock:          {"ipb", []string{"Name", "CIDR", "Affinity", "Pool", "Space", "Empty", "Age"}, false},
	v1alpha1.KindAffinity:       {"ba", []string{"Name", "State", "Type", "Owner", "CIDR", "Pool", "Age"}, false},
	v1alpha1.KindHandle:         {"iph", []string{"Name", "Handle", "Addresses", "Releasing", "Age"}, false},
	v1alpha1.KindTunnelEndpoint: {"te", []string{"Name", "Underlay", "VXLAN", "IPIP", "WireGuard", "Age"}, false},
}

func TestServedKinds(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.ServerResourcesForGroupVersion(v1alpha1.APIVersion)
	if err != nil {
		t.Fatal(err)
	}
	found, status := map[string]metav1.APIResource{}, map[string]bool{}
	for _, r := range list.APIResources {
		if strings.HasSuffix(r.Name, "/status") {
			status[r.Kind] = true
			continue
		}
		found[r.Kind] = r
	}
	if len(found) != len(served) {
		t.Errorf("%d kinds are served; want %d", len(found), len(served))
	}
	for kind, want := range served {
		r := found[kind]
		if r.Namespaced || r.Name != v1alpha1.Resource(kind).Resource || !slices.Equal(r.ShortNames, []string{want.short}) ||
			!slices.Equal(r.Categories, []string{"allod"}) || status[kind] != want.status {
			t.Errorf("%s: %+v, status %v; want %+v", kind, r, status[kind], want)
		}
	}
}

// table asks for o as `kubectl get` does: columns by name, those for -o wide left out.
func table(t *testing.T, o *unstructured.Unstructured) (names, cells []string) {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	text, err := client.RESTClient().Get().
		AbsPath("/apis", v1alpha1.APIVersion, v1alpha1.Resource(o.GetKind()).Resource, o.GetName()).
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got metav1.Table
	if err := json.Unmarshal(text, &got); err != nil || got.Kind != "Table" || len(got.Rows) != 1 {
		t.Fatalf("no table of one row, error %v: %s", err, text)
	}
	for i, c := range got.ColumnDefinitions {
		if c.Priority == 0 {
			cell, _ := json.Marshal(got.Rows[0].Cells[i])
			names, cells = append(names, c.Name), append(cells, strings.Trim(string(cell), `"`))
		}
	}
	return names, cells
}

func TestPrinterColumns(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range samples(t, "valid") {
		o := s.docs[0]
		if seen[o.GetKind()] {
			continue
		}
		seen[o.GetKind()] = true
		t.Run(o.GetKind(), func(t *testing.T) {
			store(t, o)
			if names, _ := table(t, o); !slices.Equal(names, served[o.GetKind()].columns) {
				t.Errorf("columns %q; want %q", names, served[o.GetKind()].columns)
			}
		})
	}
	if len(seen) != len(served) {
		t.Errorf("columns of %d kinds seen; want %d", len(seen), len(served))
	}
}

func one(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	all := samples(t, "valid")
	i := slices.IndexFunc(all, func(s sample) bool { return s.name == name })
	if i < 0 {
		t.Fatalf("there is no sample %s", name)
	}
	return all[i].docs[0]
}

// The numbers of a pool come from its status, which a writer of the spec cannot set.
func TestPoolStatus(t *testing.T) {
	o := one(t, "pool-default")
	status := map[string]any{
		"capacity": "65536", "allocated": "3", "cooling": "2", "reserved": "1", "available": "65530",
		"conditions": []any{map[string]any{
			"type": v1alpha1.ConditionAllocatable, "status": "True", "reason": "OK", "message": "",
			"lastTransitionTime": "2026-12-01T10:00:00Z", "observedGeneration": int64(1),
		}},
	}
	o.Object["status"] = status
	got := store(t, o)
	if _, found, _ := unstructured.NestedMap(got.Object, "status"); found {
		t.Error("a create has set the status")
	}
	got.Object["status"] = status
	got.Object["spec"] = map[string]any{"cidr": "10.0.0.0/8"}
	got, err := resource(t, o).UpdateStatus(t.Context(), got, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cidr, _, _ := unstructured.NestedString(got.Object, "spec", "cidr"); cidr != "10.64.0.0/16" || got.GetGeneration() != 1 {
		t.Errorf("a write of the status has changed the spec: CIDR %s, generation %d", cidr, got.GetGeneration())
	}
	_, cells := table(t, o)
	if want := []string{"default-v4", "10.64.0.0/16", "65536", "3", "2", "1", "65530", "True", "OK"}; !slices.Equal(cells[:len(want)], want) {
		t.Errorf("row %q; want %q", cells, want)
	}
}

// Section 3 of the design: lookups go by label or field, never by parsing a name.
func TestSelectableFields(t *testing.T) {
	for _, tt := range []struct{ sample, field, value string }{
		{"pool-default", "spec.cidr", "10.64.0.0/16"},
		{"block", "spec.cidr", "10.80.3.16/28"},
		{"block", "spec.affinity", "host:worker-7"},
		{"affinity", "spec.cidr", "10.80.3.16/28"},
		{"affinity", "spec.name", "worker-7"},
		{"affinity", "spec.type", "host"},
		{"affinity", "spec.state", "confirmed"},
		{"handle", "spec.handle", "k8s-pod-network.shop-vm1-0a1b2c3d"},
		{"tunnel-endpoint", "spec.nodeUID", "6a0b6c1e-0d5f-4b4c-9a63-1f2e3d4c5b6a"},
	} {
		t.Run(tt.sample+" "+tt.field, func(t *testing.T) {
			o := one(t, tt.sample)
			store(t, o)
			for value, want := range map[string]int{tt.value: 1, "other": 0} {
				list, err := resource(t, o).List(t.Context(), metav1.ListOptions{FieldSelector: tt.field + "=" + value})
				if err != nil || len(list.Items) != want {
					t.Errorf("%s=%s: %d objects, error %v; want %d", tt.field, value, len(list.Items), err, want)
				}
			}
		})
	}
}

// Unknown fields of a block survive an update by this version of the types, and
// foreign labels stay.
func TestUnknownFieldsSurvive(t *testing.T) {
	stored := store(t, one(t, "block-newer"))
	obj, err := typed(stored)
	if err != nil {
		t.Fatal(err)
	}
	b := obj.(*v1alpha1.IPAMBlock)
	b.Spec.Queue = "9-15,0-3,5,6,7"
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	got, err := resource(t, o).Update(t.Context(), o, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatal(err)
	}
	want, is := stored.Object["spec"].(map[string]any), got.Object["spec"].(map[string]any)
	want["queue"] = "9-15,0-3,5,6,7"
	wantText, _ := json.Marshal(want)
	isText, _ := json.Marshal(is)
	if string(wantText) != string(isText) || got.GetLabels()["example.org/team"] != "green" || got.GetAnnotations()["example.org/note"] != "kept" {
		t.Errorf("after an update:\n%s\nwant\n%s", isText, wantText)
	}
}
