// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/test/kube/apiserver"
)

// nestedBlocks are blocks whose slots are objects. Nobody but this package has them.
var nestedBlocks = schema.GroupVersionResource{Group: "bench.allod.io", Version: v1alpha1.GroupVersion.Version, Resource: "nestedblocks"}

// nestedCRD returns the CRD of blocks, the kind's name and the schema of slots
// replaced: what is measured differs in nothing else.
func nestedCRD(manifest []byte) ([]byte, error) {
	objects, err := apiserver.Decode(manifest)
	if err != nil {
		return nil, err
	}
	if len(objects) != 1 {
		return nil, fmt.Errorf("%d objects; want the CRD of blocks", len(objects))
	}
	o := objects[0]
	o.SetName(nestedBlocks.GroupResource().String())
	names := map[string]any{"kind": "NestedBlock", "listKind": "NestedBlockList", "plural": nestedBlocks.Resource, "singular": "nestedblock"}
	versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
	if err != nil || len(versions) != 1 {
		return nil, fmt.Errorf("spec.versions: %d of them, %w", len(versions), err)
	}
	version, ok := versions[0].(map[string]any)
	if !ok {
		return nil, errors.New("spec.versions[0] is no object")
	}
	err = errors.Join(
		unstructured.SetNestedField(o.Object, nestedBlocks.Group, "spec", "group"),
		unstructured.SetNestedMap(o.Object, names, "spec", "names"),
		unstructured.SetNestedMap(version, slotsSchema(), "schema", "openAPIV3Schema", "properties", "spec", "properties", "slots"),
		unstructured.SetNestedSlice(o.Object, versions, "spec", "versions"))
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(o.Object)
}

// slotsSchema is that of a list of objects with the fields of a line. The list is
// atomic, which costs the API server least.
func slotsSchema() map[string]any {
	text := func() map[string]any { return map[string]any{"type": "string"} }
	owner := map[string]any{}
	for _, f := range []string{"network", "namespace", "pod", "podUID", "containerID", "ifName", "node"} {
		owner[f] = text()
	}
	return map[string]any{
		"type": "array", "x-kubernetes-list-type": "atomic",
		"items": map[string]any{
			"type": "object", "required": []any{"ordinal", "state"},
			"properties": map[string]any{
				"ordinal": map[string]any{"type": "integer"}, "state": text(), "type": text(), "handle": text(),
				"sequence": map[string]any{"type": "integer", "format": "int64"}, "since": text(),
				"active": map[string]any{"type": "object", "properties": owner},
			},
		},
	}
}

// form is one way to store a block.
type form struct {
	name     string
	resource schema.GroupVersionResource
	cidr     string
	filled   bool // every address is a pod's
	object   func(block.Block) (*unstructured.Unstructured, error)
}

func forms() []form {
	wire := v1alpha1.Resource(v1alpha1.KindBlock)
	return []form{
		{"empty", wire, "10.64.0.64/26", false, wireForm},
		{"full, a line per slot", wire, "10.64.0.128/26", true, wireForm},
		{"full, an object per slot", nestedBlocks, "10.64.0.128/26", true, nestedForm},
	}
}

func wireForm(b block.Block) (*unstructured.Unstructured, error) {
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v1alpha1.FromBlock(b))
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: o}, nil
}

func nestedForm(b block.Block) (*unstructured.Unstructured, error) {
	o, err := wireForm(b)
	if err != nil {
		return nil, err
	}
	var slots []any
	for a, s := range b.All() {
		ordinal, _ := b.Ordinal(a)
		slots = append(slots, map[string]any{
			"ordinal": int64(ordinal), "state": s.State.String(), "type": string(s.Type), "handle": string(s.Handle),
			"sequence": int64(s.Seq), "since": s.Since.Format(time.RFC3339),
			"active": map[string]any{
				"network": s.Active.Network, "namespace": s.Active.Namespace, "pod": s.Active.Pod, "podUID": s.Active.PodUID,
				"containerID": s.Active.ContainerID, "ifName": s.Active.IfName, "node": s.Active.Node,
			},
		})
	}
	o.SetAPIVersion(nestedBlocks.GroupVersion().String())
	o.SetKind("NestedBlock")
	return o, unstructured.SetNestedSlice(o.Object, slots, "spec", "slots")
}

var epoch = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// pod returns the request of a pod with names of ordinary length.
func pod(n int) block.Request {
	cid := fmt.Sprintf("%064x", n)
	return block.Request{
		N: 1, Handle: block.HandleID("k8s-pod-network." + cid), Type: block.Workload, Now: epoch.Add(time.Duration(n) * time.Second),
		Owner: block.Owner{
			Network: "k8s-pod-network", Namespace: "shop", Pod: "web-7d4b9c6f5d-" + strconv.Itoa(10000+n),
			PodUID: fmt.Sprintf("95f1c7a2-0d0b-4c1e-9b55-%012d", n), ContainerID: cid, IfName: "eth0", Node: "node-a.example.internal",
		},
	}
}

// version returns the block as the n-th write has it: each has another last pod, or,
// when it is not filled, another sequence.
func (f form) version(t *testing.T, n int) *unstructured.Unstructured {
	t.Helper()
	b, err := block.New(netip.MustParsePrefix(f.cidr), block.Host("node-a.example.internal"), 1, epoch)
	if err != nil {
		t.Fatal(err)
	}
	if f.filled {
		for i := range b.Size() - 1 {
			b, _ = b.Allocate(pod(i))
		}
		b, _ = b.Allocate(pod(b.Size() + n))
	} else {
		b = b.Fence(epoch.Add(time.Duration(n) * time.Second))
	}
	o, err := f.object(b.Relabel("default-v4", nil))
	if err != nil {
		t.Fatal(err)
	}
	return o
}
