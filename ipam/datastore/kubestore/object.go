// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// fields is a JSON object of which only the names are known.
type fields = map[string]json.RawMessage

// origin is what an object has beside the value: what others wrote, and what other
// versions know. An update puts it back. It is never changed.
type origin struct {
	top         fields // beside metadata and spec
	meta        fields // of metadata: finalizers, owner references, …
	labels      map[string]string
	annotations map[string]string
	spec        fields // those this version does not know
	refusal     error  // why the object must not be written
	deleting    bool   // deletion has been asked for
	holders     []string
	grown       uint64 // see codec.Codec.Grows
}

// written are the fields of metadata that an update sets anew or the API server
// keeps by itself.
var written = []string{
	"name", "labels", "annotations", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink",
}

// originOf returns what raw, an object that decodes as o, has beside its value.
// known are the fields of its spec that the value stands for; nil: all.
func originOf(raw []byte, o metav1.Object, known map[string]bool) (*origin, error) {
	var top fields
	if err := json.Unmarshal(raw, &top); err != nil {
		return nil, err
	}
	out := &origin{
		top:         top,
		labels:      v1alpha1.Adopt(nil, o.GetLabels()),
		annotations: v1alpha1.Adopt(nil, o.GetAnnotations()),
		deleting:    o.GetDeletionTimestamp() != nil,
		holders:     o.GetFinalizers(),
	}
	if err := json.Unmarshal(top["metadata"], &out.meta); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	for _, f := range written {
		delete(out.meta, f)
	}
	if known != nil && len(top["spec"]) > 0 {
		if err := json.Unmarshal(top["spec"], &out.spec); err != nil {
			return nil, fmt.Errorf("spec: %w", err)
		}
		maps.DeleteFunc(out.spec, func(f string, _ json.RawMessage) bool { return known[f] })
	}
	for _, f := range []string{"apiVersion", "kind", "metadata", "spec"} {
		delete(top, f)
	}
	return out, nil
}

// knownFields returns the names that the fields of a spec have in JSON, nil for nil.
func knownFields(spec reflect.Type) map[string]bool {
	if spec == nil {
		return nil
	}
	known := map[string]bool{}
	for i := range spec.NumField() {
		name, _, _ := strings.Cut(spec.Field(i).Tag.Get("json"), ",")
		known[name] = true
	}
	return known
}

// render returns the text of o to write: its spec and our labels and annotations,
// over what it came from. A nil origin is that of a new object.
func (was *origin) render(o metav1.Object, uid string, rev datastore.Rev) ([]byte, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var top fields
	if err := json.Unmarshal(text, &top); err != nil {
		return nil, err
	}
	if was == nil {
		was = &origin{}
	}
	out := maps.Clone(was.top)
	if out == nil {
		out = fields{}
	}
	out["apiVersion"], out["kind"] = top["apiVersion"], top["kind"]
	if out["spec"], err = over(was.spec, top["spec"]); err != nil {
		return nil, err
	}
	meta := map[string]any{"name": o.GetName()}
	for f, v := range was.meta {
		meta[f] = v
	}
	for f, v := range map[string]map[string]string{
		"labels":      v1alpha1.Adopt(o.GetLabels(), was.labels),
		"annotations": v1alpha1.Adopt(o.GetAnnotations(), was.annotations),
	} {
		if len(v) > 0 {
			meta[f] = v
		}
	}
	if uid != "" {
		meta["uid"], meta["resourceVersion"] = uid, rev
	}
	if out["metadata"], err = json.Marshal(meta); err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// over returns spec with the fields of others that it does not have.
func over(others fields, spec json.RawMessage) (json.RawMessage, error) {
	if len(others) == 0 {
		return spec, nil
	}
	out := maps.Clone(others)
	if err := json.Unmarshal(spec, &out); err != nil {
		return nil, err
	}
	return json.Marshal(out)
}
