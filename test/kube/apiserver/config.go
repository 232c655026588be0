// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Config returns a client configuration of the cluster's administrator, without a
// limit of its own on requests. Every call returns a new value.
func (s *Server) Config() *rest.Config { return s.ConfigFor(s.adminToken) }

// ConfigFor is Config with another bearer token; an empty one is anonymous.
func (s *Server) ConfigFor(token string) *rest.Config {
	return &rest.Config{
		Host: s.url, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: s.ca},
	}
}

// AdminToken is the bearer token of the cluster's administrator.
func (s *Server) AdminToken() string { return s.adminToken }

// Kubeconfig writes a kubeconfig with that token to path, readable by its owner only.
func (s *Server) Kubeconfig(path, token string) error {
	c := api.NewConfig()
	c.Clusters["test"] = &api.Cluster{Server: s.url, CertificateAuthorityData: s.ca}
	c.AuthInfos["test"] = &api.AuthInfo{Token: token}
	c.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "test"}
	c.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// NodeToken returns a token of a service account that is bound to a Node object,
// as the node's agent gets one: it carries the node's name. Service account and
// node must exist.
func (s *Server) NodeToken(ctx context.Context, namespace, name, node string) (string, error) {
	client, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		return "", err
	}
	n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("token of %s/%s for node %s: %w", namespace, name, node, err)
	}
	r, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node, UID: n.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of %s/%s for node %s: %w", namespace, name, node, err)
	}
	return r.Status.Token, nil
}
