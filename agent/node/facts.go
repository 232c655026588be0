// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"github.com/allod/allod/agent/kube"
	"github.com/allod/allod/cni/agentapi"
	"github.com/allod/allod/ipam/pool"
)

// facts is what the API server knows of pods and their surroundings.
type facts interface {
	Pod(ctx context.Context, namespace, name string) (kube.Meta, error)
	Namespace(ctx context.Context, name string) (kube.Meta, error)
	Node(ctx context.Context, name string) (kube.Meta, error)
}

// configHashKey is where the mirror pod of a static pod has the UID that the kubelet
// passes for it (case S6).
const configHashKey = "kubernetes.io/config.hash"

// informed is a request as its pod and the pod's namespace ask for it.
type informed struct {
	agentapi.AddRequest
	namespace pool.Namespace // with its labels, where they are known
	by        string         // the annotations that say which pools; "" if none does
}

// explained adds to err which request and which annotations it is about.
func (r informed) explained(err error) error {
	if r.by == "" {
		return fmt.Errorf("ADD %s: %w", r.Attachment, err)
	}
	return fmt.Errorf("ADD %s, by %s: %w", r.Attachment, r.by, err)
}

// inform reads the pod of r, which is of a sandbox on node, and its namespace. An ADD
// does not go on without the pod: what is not known might ask for another pool, and an
// address whose pod was never seen has no known owner.
func inform(ctx context.Context, f facts, node string, r agentapi.AddRequest) (informed, error) {
	none := informed{AddRequest: r}
	if r.Pod.Namespace == "" || r.Pod.Name == "" {
		return none, &agentapi.Error{
			Code:    agentapi.CodeBadEnvironment,
			Msg:     "CNI_ARGS: K8S_POD_NAMESPACE or K8S_POD_NAME is missing",
			Details: "with the Kubernetes datastore every address belongs to a pod of the cluster, which the runtime names",
		}
	}
	pod, err := f.Pod(ctx, r.Pod.Namespace, r.Pod.Name)
	if err != nil {
		return none, err
	}
	if err := samePod(r.Pod, pod); err != nil {
		return none, err
	}
	if err := sameNode(r.Pod, pod, node); err != nil {
		return none, err
	}
	ns, err := f.Namespace(ctx, r.Pod.Namespace)
	if err != nil {
		return none, err
	}
	out, err := annotated(r, ns.Annotations, pod.Annotations)
	if err != nil {
		return none, &agentapi.Error{
			Code: agentapi.CodeBadConfig,
			Msg:  fmt.Sprintf("pod %s/%s: %v", r.Pod.Namespace, r.Pod.Name, err),
		}
	}
	return informed{
		AddRequest: out, by: asked(ns.Annotations, pod.Annotations),
		namespace: pool.Namespace{Name: r.Pod.Namespace, Labels: ns.Labels},
	}, nil
}

// sameNode refuses a pod of another node. It is not the pod that is wrong then: the
// name or the credential of this node is another's (case D4), and what is booked under
// it would be taken for leaked when that node goes.
func sameNode(p agentapi.Pod, m kube.Meta, node string) error {
	if m.Node == "" || m.Node == node {
		return nil
	}
	return &agentapi.Error{
		Code:    agentapi.CodeBadConfig,
		Msg:     fmt.Sprintf("pod %s/%s is on node %s, and the kubeconfig or ipam.nodeName says that this is node %s", p.Namespace, p.Name, m.Node, node),
		Details: "give this node its own: a token that is bound to its Node object, and no ipam.nodeName",
	}
}

// samePod refuses a sandbox of a pod that is gone: one of the same name has taken its
// place, and what that one asks for is not this one's (case D2). A runtime that
// passes no UID is believed.
func samePod(p agentapi.Pod, m kube.Meta) error {
	if p.UID == "" || p.UID == m.UID || p.UID == m.Annotations[configHashKey] {
		return nil
	}
	return fmt.Errorf("pod %s/%s has UID %s by now, and the sandbox is for UID %s: the pod was replaced; the runtime tries again if it still wants one",
		p.Namespace, p.Name, m.UID, p.UID)
}
