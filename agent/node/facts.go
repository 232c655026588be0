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

// informed returns r as its pod and the pod's namespace ask for it, and the namespace
// with its labels. An ADD does not go on without the pod: what is not known might
// ask for another pool, and an address whose pod was never seen has no known owner.
func informed(ctx context.Context, f facts, r agentapi.AddRequest) (agentapi.AddRequest, pool.Namespace, error) {
	if r.Pod.Namespace == "" || r.Pod.Name == "" {
		return r, pool.Namespace{}, &agentapi.Error{
			Code:    agentapi.CodeBadEnvironment,
			Msg:     "CNI_ARGS: K8S_POD_NAMESPACE or K8S_POD_NAME is missing",
			Details: "with the Kubernetes datastore every address has a pod; use datastore type \"bolt\" for what is no pod",
		}
	}
	pod, err := f.Pod(ctx, r.Pod.Namespace, r.Pod.Name)
	if err != nil {
		return r, pool.Namespace{}, err
	}
	if err := samePod(r.Pod, pod); err != nil {
		return r, pool.Namespace{}, err
	}
	ns, err := f.Namespace(ctx, r.Pod.Namespace)
	if err != nil {
		return r, pool.Namespace{}, err
	}
	out, err := annotated(r, ns.Annotations, pod.Annotations)
	if err != nil {
		return r, pool.Namespace{}, &agentapi.Error{
			Code: agentapi.CodeBadConfig,
			Msg:  fmt.Sprintf("pod %s/%s: %v", r.Pod.Namespace, r.Pod.Name, err),
		}
	}
	return out, pool.Namespace{Name: r.Pod.Namespace, Labels: ns.Labels}, nil
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
