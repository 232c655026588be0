// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allod/allod/agent/kube"
	"github.com/allod/allod/cni/agentapi"
	"github.com/allod/allod/cni/plugin"
	"github.com/allod/allod/ipam"
)

// known is a cluster with one pod in one namespace.
type known struct {
	pod, namespace, node       kube.Meta
	noPod, noNamespace, noNode error
	asked                      []string
}

func (k *known) Pod(_ context.Context, namespace, name string) (kube.Meta, error) {
	k.asked = append(k.asked, "pod "+namespace+"/"+name)
	return k.pod, k.noPod
}

func (k *known) Namespace(_ context.Context, name string) (kube.Meta, error) {
	k.asked = append(k.asked, "namespace "+name)
	return k.namespace, k.noNamespace
}

func (k *known) Node(_ context.Context, name string) (kube.Meta, error) {
	k.asked = append(k.asked, "node "+name)
	return k.node, k.noNode
}

func podRequest(uid string) agentapi.AddRequest {
	return agentapi.AddRequest{Attachment: attachment("c1"), Num4: 1, Pod: agentapi.Pod{Namespace: "shop", Name: "web", UID: uid}}
}

func TestInformed(t *testing.T) {
	down := errors.New("connection refused")
	tests := []struct {
		name  string
		uid   string
		known known
		code  uint // 0: served
		says  string
	}{
		{"the same pod", "u1", known{pod: kube.Meta{UID: "u1"}}, 0, ""},
		{"a runtime without UIDs", "", known{pod: kube.Meta{UID: "u1"}}, 0, ""},
		{"a static pod (S6)", "hash", known{pod: kube.Meta{UID: "u1", Annotations: map[string]string{configHashKey: "hash"}}}, 0, ""},
		{"a pod of the same name (D2)", "u0", known{pod: kube.Meta{UID: "u1"}}, agentapi.CodeTryAgain, "was replaced"},
		{"a pod of this node", "u1", known{pod: kube.Meta{UID: "u1", Node: "node-a"}}, 0, ""},
		{"a pod of another node (D4)", "u1", known{pod: kube.Meta{UID: "u1", Node: "node-b"}}, agentapi.CodeBadConfig, "is on node node-b, and"},
		{"a pod that was replaced elsewhere", "u0", known{pod: kube.Meta{UID: "u1", Node: "node-b"}}, agentapi.CodeTryAgain, "was replaced"},
		{
			"a pool that is not there", "u1",
			known{pod: kube.Meta{UID: "u1"}, namespace: kube.Meta{Annotations: map[string]string{IPv4PoolsKey: `["bleu"]`}}},
			agentapi.CodeBadConfig, "by namespace annotation " + IPv4PoolsKey,
		},
		{"no pod", "u1", known{noPod: down}, agentapi.CodeTryAgain, "connection refused"},
		{"no namespace", "u1", known{pod: kube.Meta{UID: "u1"}, noNamespace: down}, agentapi.CodeTryAgain, "connection refused"},
		{
			"a wrong annotation", "u1",
			known{pod: kube.Meta{UID: "u1", Annotations: map[string]string{IPv4PoolsKey: "x"}}},
			agentapi.CodeBadConfig, "pod shop/web: pod annotation " + IPv4PoolsKey,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, _, faults := service(t)
			s.Facts = &tt.known
			_, err := s.Add(t.Context(), podRequest(tt.uid))
			if tt.code == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if e := agentapi.AsError(err); e == nil || e.Code != tt.code || !strings.Contains(e.Error(), tt.says) {
				t.Errorf("got %v; want code %d that says %q", err, tt.code, tt.says)
			}
			if faults.Writes() != 0 {
				t.Error("a refused ADD wrote")
			}
		})
	}
	s, _, _ := service(t)
	s.Facts = &known{}
	_, err := s.Add(t.Context(), agentapi.AddRequest{Attachment: attachment("c1"), Num4: 1})
	if e := agentapi.AsError(err); e == nil || e.Code != agentapi.CodeBadEnvironment || !strings.Contains(e.Error(), "K8S_POD_NAME") {
		t.Errorf("no pod at all: %v; want code 4", err)
	}
}

// The plugin is told what the annotations made of its request, and only then.
func TestAsked(t *testing.T) {
	s, _, _ := service(t)
	s.Facts = &known{pod: kube.Meta{UID: "u1", Annotations: map[string]string{AddrsKey: `["10.0.0.5","10.0.0.6"]`}}}
	reply, err := s.Add(t.Context(), podRequest("u1"))
	if err != nil || len(reply.Addresses) != 2 || reply.Asked == nil || reply.Asked.Num4 != 2 || len(reply.Asked.Addrs) != 2 {
		t.Fatalf("got %+v, %v", reply, err)
	}
	s.Facts = &known{pod: kube.Meta{UID: "u1"}}
	other := podRequest("u1")
	other.ContainerID = "c2"
	other.IfName = "net1"
	if reply, err := s.Add(t.Context(), other); err != nil || reply.Asked != nil {
		t.Errorf("without annotations: %+v, %v", reply, err)
	}
}

// The node is read when a pool has a nodeSelector, and its labels decide; otherwise
// it costs nothing.
func TestNodeIsReadForASelector(t *testing.T) {
	s, mem, _ := service(t)
	k := &known{pod: kube.Meta{UID: "u1"}, node: kube.Meta{Labels: map[string]string{"zone": "b"}}}
	s.Facts = k
	if _, err := s.Add(t.Context(), podRequest("u1")); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(k.asked, ", "); got != "pod shop/web, namespace shop" {
		t.Errorf("without a selector it asked %s", got)
	}
	store := mem.Store()
	e, err := store.Pools.Get(t.Context(), "v4")
	if err != nil {
		t.Fatal(err)
	}
	e.Value.Spec.NodeSelector = "zone=a"
	if _, err := store.Pools.Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	k.asked = nil
	r := podRequest("u1")
	r.ContainerID, r.IfName = "c2", "net1"
	_, err = s.Add(t.Context(), r)
	if e := agentapi.AsError(err); e == nil || !strings.Contains(e.Error(), "does not select node node-a") {
		t.Errorf("got %v", err)
	}
	if got := strings.Join(k.asked, ", "); !strings.HasSuffix(got, "node node-a") {
		t.Errorf("with a selector it asked %s", got)
	}
	k.node.Labels["zone"] = "a"
	if _, err := s.Add(t.Context(), r); err != nil {
		t.Error(err)
	}
	k.noNode = errors.New("connection refused")
	if err := s.Status(t.Context(), agentapi.StatusRequest{Num4: 1}); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("STATUS without the node's labels: %v", err)
	}
}

func TestNodeName(t *testing.T) {
	for _, tt := range []struct {
		configured, bound, want string
		wrong                   bool
	}{
		{"", "node-a", "node-a", false},
		{"node-a", "node-a", "node-a", false},
		{"node-a", "", "node-a", false},
		{"node-b", "node-a", "", true}, // case D4
		{"", "", "", true},
	} {
		got, err := nodeName(tt.configured, tt.bound, "/k")
		if got != tt.want || (err != nil) != tt.wrong {
			t.Errorf("configured %q, bound %q: %q, %v", tt.configured, tt.bound, got, err)
		}
		if e := agentapi.AsError(err); err != nil && e.Code != agentapi.CodeBadConfig {
			t.Errorf("code %d", e.Code)
		}
	}
}

// Under another node's name only DEL is served (INV-10, case D4).
func TestRefusing(t *testing.T) {
	s, mem, _ := service(t)
	add(t, s, "c1")
	why := &agentapi.Error{Code: agentapi.CodeBadConfig, Msg: "another node"}
	var b agentapi.Backend = refusing{Backend: s, why: why}
	_, added := b.Add(t.Context(), agentapi.AddRequest{Attachment: attachment("c2"), Num4: 1})
	for verb, err := range map[string]error{
		"ADD":    added,
		"CHECK":  b.Check(t.Context(), agentapi.CheckRequest{Attachment: attachment("c1")}),
		"GC":     b.GC(t.Context(), agentapi.GCRequest{Network: "net", Valid: []agentapi.Attachment{}}),
		"STATUS": b.Status(t.Context(), agentapi.StatusRequest{}),
	} {
		if !errors.Is(err, why) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if err := b.Del(t.Context(), agentapi.DelRequest{Attachment: attachment("c1")}); err != nil {
		t.Error(err)
	}
	left, err := ipam.New(mem.Store(), ipam.Options{}).IPsByHandle(t.Context(), ipam.SandboxHandle("net", "c1"), "")
	if err != nil || len(left) != 0 {
		t.Errorf("DEL left %v, %v", left, err)
	}
}

// A kubeconfig that is not there, or holds no kubeconfig, may be written in a moment.
func TestUnusableKubeconfig(t *testing.T) {
	garbled := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(garbled, []byte("s3cr3t"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{garbled: "no kubeconfig", garbled + ".none": "not found"} {
		c := plugin.Conf{LockFile: garbled + ".lock", Datastore: plugin.Datastore{Type: plugin.StoreKubernetes, Kubeconfig: path}}
		_, err := DirectMode{}.Backend(t.Context(), c)
		e := agentapi.AsError(err)
		if e == nil || e.Code != agentapi.CodeTryAgain || !strings.Contains(e.Error(), says) || strings.Contains(e.Error(), "s3cr3t") {
			t.Errorf("got %v; want code 11 that says %q and quotes nothing", err, says)
		}
	}
}
