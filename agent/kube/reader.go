// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Meta is what is read of an object: enough to know who it is and what it asks for.
type Meta struct {
	UID         string
	Labels      map[string]string // never nil
	Annotations map[string]string
	Node        string // of a pod: where it runs; "" before it is scheduled
}

// Reader reads single objects. Its methods are one GET each and safe for concurrent
// use.
type Reader struct {
	client metadata.Interface
	pods   rest.Interface
	server string
}

// NewReader returns a Reader on the API server of cfg. It makes no call.
func NewReader(cfg *rest.Config) (*Reader, error) {
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of the API server %s: %w", Redact(cfg.Host), err)
	}
	c := rest.CopyConfig(cfg)
	c.APIPath, c.GroupVersion = "/api", &corev1.SchemeGroupVersion
	c.AcceptContentTypes, c.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	pods, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client of the API server %s: %w", Redact(cfg.Host), err)
	}
	return &Reader{client: client, pods: pods, server: Redact(cfg.Host)}, nil
}

// Pod reads one pod. Its node is no metadata, so it is read whole; the rest is not
// decoded.
func (r *Reader) Pod(ctx context.Context, namespace, name string) (Meta, error) {
	var pod struct {
		metav1.PartialObjectMetadata
		Spec struct {
			NodeName string `json:"nodeName"`
		} `json:"spec"`
	}
	res := r.pods.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx)
	raw, _ := res.Raw()
	err := res.Error() // which reads the Status of a failed call
	if err == nil {
		err = json.Unmarshal(raw, &pod)
	}
	m, err := r.meta(&pod.PartialObjectMetadata, "pods", "pod "+namespace+"/"+name, err)
	m.Node = pod.Spec.NodeName
	return m, err
}

// Namespace reads one namespace.
func (r *Reader) Namespace(ctx context.Context, name string) (Meta, error) {
	m, err := r.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, name, metav1.GetOptions{})
	return r.meta(m, "namespaces", "namespace "+name, err)
}

// Node reads one node.
func (r *Reader) Node(ctx context.Context, name string) (Meta, error) {
	m, err := r.client.Resource(corev1.SchemeGroupVersion.WithResource("nodes")).Get(ctx, name, metav1.GetOptions{})
	return r.meta(m, "nodes", "node "+name, err)
}

func (r *Reader) meta(m *metav1.PartialObjectMetadata, resource, what string, err error) (Meta, error) {
	switch {
	case apierrors.IsUnexpectedServerError(err): // no answer of an API server: client-go made it up from the number
		return Meta{}, fmt.Errorf("read %s: %w; check the server's address in the kubeconfig", what, err)
	case apierrors.IsNotFound(err):
		return Meta{}, fmt.Errorf("the API server %s has no %s", r.server, what)
	case apierrors.IsForbidden(err):
		return Meta{}, fmt.Errorf("read %s: %w; the ClusterRole of this account needs the verb get on %s", what, err, resource)
	case apierrors.IsUnauthorized(err):
		return Meta{}, fmt.Errorf("read %s: %w; the token in the kubeconfig is unknown or has expired: renew it", what, err)
	case err != nil:
		return Meta{}, fmt.Errorf("read %s: %w", what, err)
	}
	out := Meta{UID: string(m.UID), Labels: m.Labels, Annotations: m.Annotations}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	return out, nil
}
