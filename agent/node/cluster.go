// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/allod/allod/agent/kube"
	"github.com/allod/allod/cni/agentapi"
	"github.com/allod/allod/cni/plugin"
	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/datastore/kubestore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// access is what direct mode calls on an API server: manifests/rbac/node.yaml grants
// this and nothing else. A test holds list, manifest and calls against each other.
var access = []kube.Access{
	{Group: v1alpha1.Group, Resource: v1alpha1.Resource(v1alpha1.KindPool).Resource, Verbs: []string{"get", "list"}},
	{Group: v1alpha1.Group, Resource: v1alpha1.Resource(v1alpha1.KindReservation).Resource, Verbs: []string{"list"}},
	{Group: v1alpha1.Group, Resource: v1alpha1.Resource(v1alpha1.KindConfiguration).Resource, Verbs: []string{"get"}},
	{Group: v1alpha1.Group, Resource: v1alpha1.Resource(v1alpha1.KindBlock).Resource, Verbs: []string{"get", "list", "create", "update"}},
	{Group: v1alpha1.Group, Resource: v1alpha1.Resource(v1alpha1.KindAffinity).Resource, Verbs: []string{"get", "list", "create", "update", "delete"}},
	{Resource: "pods", Verbs: []string{"get"}},
	{Resource: "namespaces", Verbs: []string{"get"}},
	{Resource: "nodes", Verbs: []string{"get"}},
}

// cluster serves from the API server of the configured kubeconfig.
func (m DirectMode) cluster(c plugin.Conf) (agentapi.Backend, error) {
	cfg, err := kube.Config(c.Datastore.Kubeconfig, "allod-agent/"+m.Version+" (direct)")
	if err != nil {
		return nil, unusable(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if m.CallLog != "" {
		if err := kube.LogCalls(cfg, m.CallLog); err != nil {
			log.Warn("calls are not logged", "err", err) // it must not end a request
		}
	}
	bound, err := kube.BoundNode(cfg)
	if err != nil {
		return nil, unusable(err)
	}
	name, wrong := nodeName(c.NodeName, bound, c.Datastore.Kubeconfig)
	store, err := kubestore.New(cfg, kubestore.Options{Log: log})
	if err != nil {
		return nil, unusable(err)
	}
	reader, err := kube.NewReader(cfg)
	if err != nil {
		return nil, unusable(err)
	}
	b := &clustered{
		direct: direct{
			lock: hostLock{path: c.LockFile},
			Service: Service{
				IPAM: ipam.New(store.Store(), ipam.Options{Clock: store}), Node: pool.Node{Name: name}, Facts: reader,
			},
		},
		cfg: cfg,
	}
	if wrong != nil {
		return refusing{Backend: b, why: wrong}, nil
	}
	return b, nil
}

// unusable is the error of a kubeconfig: it may be written anew in a moment.
func unusable(err error) error {
	details := ""
	if errors.Is(err, kube.ErrNoKubeconfig) {
		details = "the installation writes it; or set ipam.datastore.kubeconfig, or datastore type \"bolt\""
	}
	return &agentapi.Error{Code: agentapi.CodeTryAgain, Msg: err.Error(), Details: details}
}

// nodeName returns the node's name: the one its token is bound to, which the API
// server vouches for. A configured name that differs is another node's, left by an
// image or a rename, or the kubeconfig is: addresses booked on it would be freed while
// they are in use (case D4). wrong says so, or that there is no name at all; then name
// is "", because which of two is the wrong one is not known.
func nodeName(configured, bound, kubeconfig string) (name string, wrong error) {
	switch {
	case bound == "" && configured == "":
		return "", &agentapi.Error{
			Code:    agentapi.CodeBadConfig,
			Msg:     fmt.Sprintf("no node name: the credential in %s is not bound to a node", kubeconfig),
			Details: "use a token that is (TokenRequest with boundObjectRef of kind Node), or set ipam.nodeName to the name of the Node object",
		}
	case bound != "" && configured != "" && bound != configured:
		return "", &agentapi.Error{
			Code:    agentapi.CodeBadConfig,
			Msg:     fmt.Sprintf("ipam.nodeName is %q, and the token in %s is of node %q", configured, kubeconfig, bound),
			Details: "leave ipam.nodeName out, or correct it, or give this node a kubeconfig of its own",
		}
	case bound != "":
		return bound, nil
	}
	return configured, nil
}

// clustered is direct mode on a cluster.
type clustered struct {
	direct
	cfg *rest.Config
}

// Status implements agentapi.Backend. It also asks whether the account may do all
// that an ADD or DEL does, of which a reader of the store notices only half (case C6).
func (s *clustered) Status(ctx context.Context, r agentapi.StatusRequest) error {
	if err := s.direct.Status(ctx, r); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lacks, err := kube.Missing(ctx, s.cfg, access)
	if err != nil {
		return &agentapi.Error{Code: agentapi.CodeNotAvailable, Msg: "STATUS: " + err.Error()}
	}
	if len(lacks) == 0 {
		return nil
	}
	var what []string
	for _, a := range lacks {
		what = append(what, a.String())
	}
	return &agentapi.Error{
		Code:    agentapi.CodeNotAvailable,
		Msg:     "STATUS: the account of the kubeconfig lacks " + strings.Join(what, "; "),
		Details: "apply manifests/rbac/node.yaml, and bind its ClusterRole to the account",
	}
}

// refusing serves DEL alone, which always completes (INV-10): it goes by the
// attachment, and looks in the blocks of every node, because what this one's name is
// or was is not known.
type refusing struct {
	agentapi.Backend
	why error
}

// Add implements agentapi.Backend.
func (r refusing) Add(context.Context, agentapi.AddRequest) (agentapi.AddReply, error) {
	return agentapi.AddReply{}, r.why
}

// Check implements agentapi.Backend.
func (r refusing) Check(context.Context, agentapi.CheckRequest) error { return r.why }

// GC implements agentapi.Backend.
func (r refusing) GC(context.Context, agentapi.GCRequest) error { return r.why }

// Status implements agentapi.Backend.
func (r refusing) Status(context.Context, agentapi.StatusRequest) error { return r.why }
