// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// FieldManager is the name under which Apply owns the fields it sets.
const FieldManager = "allod-test"

// ApplyFile applies every object of the files in order, as `kubectl apply
// --server-side` would: unknown fields are refused, what exists is brought to the
// manifest. It returns after a CustomResourceDefinition only when its kind is served.
func (s *Server) ApplyFile(ctx context.Context, paths ...string) error {
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := s.Apply(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// Apply is ApplyFile for the text of a manifest.
func (s *Server) Apply(ctx context.Context, manifest []byte) error {
	objects, err := Decode(manifest)
	if err != nil {
		return err
	}
	a, err := s.applier()
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := a.apply(ctx, o); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// Decode reads the YAML documents of a manifest; empty ones are passed over.
func Decode(manifest []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		text, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			return nil, err
		}
		if string(text) == "null" {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(text); err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}

type applier struct {
	discovery *discovery.DiscoveryClient
	dynamic   dynamic.Interface
	mapper    meta.RESTMapper // of the kinds that were served when it was made
}

func (s *Server) applier() (*applier, error) {
	d, err := discovery.NewDiscoveryClientForConfig(s.Config())
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		return nil, err
	}
	a := &applier{discovery: d, dynamic: dyn}
	return a, a.discover()
}

func (a *applier) discover() error {
	groups, err := restmapper.GetAPIGroupResources(a.discovery)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	a.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	return nil
}

func (a *applier) apply(ctx context.Context, o *unstructured.Unstructured) error {
	gvk := o.GroupVersionKind()
	m, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	var r dynamic.ResourceInterface = a.dynamic.Resource(m.Resource)
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := o.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		r = a.dynamic.Resource(m.Resource).Namespace(namespace)
	}
	text, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	force := true
	got, err := r.Patch(ctx, o.GetName(), "application/apply-patch+yaml", text, metav1.PatchOptions{
		FieldManager: FieldManager, Force: &force, FieldValidation: metav1.FieldValidationStrict,
	})
	if err != nil {
		return err
	}
	if gvk.Kind == "CustomResourceDefinition" {
		return a.awaitServed(ctx, got)
	}
	return nil
}

// awaitServed waits until every served version of crd answers a LIST. Established
// alone comes a moment before.
func (a *applier) awaitServed(ctx context.Context, crd *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	resources, err := servedResources(crd)
	if err != nil {
		return err
	}
	for _, r := range resources {
		var last error
		err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			_, last = a.dynamic.Resource(r).List(ctx, metav1.ListOptions{Limit: 1})
			if last != nil && !apierrors.IsNotFound(last) && !apierrors.IsTooManyRequests(last) && ctx.Err() == nil {
				return false, last
			}
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("%s is not served: %w (%w)", r, err, last)
		}
	}
	return a.discover()
}

func servedResources(crd *unstructured.Unstructured) ([]schema.GroupVersionResource, error) {
	group, _, errG := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, errP := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, errV := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err := errors.Join(errG, errP, errV); err != nil {
		return nil, err
	}
	var resources []schema.GroupVersionResource
	for _, v := range versions {
		v, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("spec.versions: %v is no object", v)
		}
		if served, _, _ := unstructured.NestedBool(v, "served"); served {
			name, _, _ := unstructured.NestedString(v, "name")
			resources = append(resources, schema.GroupVersionResource{Group: group, Version: name, Resource: plural})
		}
	}
	return resources, nil
}
