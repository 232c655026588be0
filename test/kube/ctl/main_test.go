// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore/kubestore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
	"github.com/allod/allod/test/fixture"
	"github.com/allod/allod/test/kube/apiserver"
)

// What TestMain prepares once for all tests.
var (
	moduleRoot string
	agentPath  string // the built allod-agent
	server     *apiserver.Server
	raw        dynamic.Interface // the administrator, without our types
)

// TestMain takes the binaries from ALLOD_BIN, which the Makefile may set to what it
// built, or else builds them.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "allod-ctl-")
	if err != nil {
		panic(err)
	}
	code := apiserver.Main(m, func(ctx context.Context, s *apiserver.Server) error { return prepare(ctx, s, dir) })
	_ = os.RemoveAll(dir) // in the folder for temporary files
	os.Exit(code)
}

func prepare(ctx context.Context, s *apiserver.Server, dir string) error {
	var err error
	if moduleRoot, err = fixture.ModuleRoot(ctx); err != nil {
		return err
	}
	if bin := os.Getenv("ALLOD_BIN"); bin != "" {
		dir = bin
	} else if err := fixture.Build(ctx, moduleRoot, dir); err != nil {
		return err
	}
	agentPath = filepath.Join(dir, "allod-agent")
	files, err := filepath.Glob(filepath.Join(moduleRoot, "manifests", "crds", "*.yaml"))
	if err != nil {
		return err
	}
	server = s
	if raw, err = dynamic.NewForConfig(s.Config()); err != nil {
		return err
	}
	return s.ApplyFile(ctx, append(files, filepath.Join(moduleRoot, "manifests", "rbac", "operator.yaml"))...)
}

// operator is somebody who runs verbs on the emptied API server.
type operator struct {
	t          *testing.T
	kubeconfig string
}

// administrator is an operator with every right.
func administrator(t *testing.T) *operator {
	t.Helper()
	empty(t)
	return with(t, server.AdminToken())
}

func with(t *testing.T, token string) *operator {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, server.Kubeconfig(path, token))
	return &operator{t, path}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// result is how a verb ended.
type result struct {
	t        *testing.T
	code     int
	out, err string
}

// run runs a verb; stdin is what - reads.
func (o *operator) run(stdin string, args ...string) result {
	o.t.Helper()
	cmd := exec.CommandContext(o.t.Context(), agentPath, append(args, "--kubeconfig", o.kubeconfig)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		o.t.Fatal(err)
	}
	return result{o.t, cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

func (o *operator) apply(manifest string) result {
	o.t.Helper()
	return o.run(manifest, "apply", "-f", "-")
}

// ends fails the test unless the verb exited so, and each text is in its output or, as
// ever in the error, on its standard error.
func (r result) ends(code int, texts ...string) result {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			r.t.Errorf("%q is not in\nstdout: %s\nstderr: %s", text, r.out, r.err)
		}
	}
	return r
}

// lacks fails the test if any text was printed.
func (r result) lacks(texts ...string) result {
	r.t.Helper()
	for _, text := range texts {
		if strings.Contains(r.out+r.err, text) {
			r.t.Errorf("%q is in\nstdout: %s\nstderr: %s", text, r.out, r.err)
		}
	}
	return r
}

// empty deletes every record, whatever holds it.
func empty(t *testing.T) {
	t.Helper()
	for _, kind := range []string{
		v1alpha1.KindPool, v1alpha1.KindReservation, v1alpha1.KindConfiguration,
		v1alpha1.KindBlock, v1alpha1.KindAffinity, v1alpha1.KindHandle,
	} {
		all := raw.Resource(v1alpha1.Resource(kind))
		must(t, all.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		left, err := all.List(t.Context(), metav1.ListOptions{})
		must(t, err)
		for _, o := range left.Items {
			patch(t, kind, o.GetName(), `{"metadata":{"finalizers":null}}`)
		}
	}
}

// object is a stored object as the API server has it.
func object(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	o, err := raw.Resource(v1alpha1.Resource(kind)).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return o
}

// patch changes an object as `kubectl patch --type merge` does.
func patch(t *testing.T, kind, name, merge string) {
	t.Helper()
	_, err := raw.Resource(v1alpha1.Resource(kind)).Patch(t.Context(), name, types.MergePatchType, []byte(merge), metav1.PatchOptions{})
	must(t, err)
}

// library is the administrator's client.
func library(t *testing.T) (*ipam.Client, *kubestore.Store) {
	t.Helper()
	s, err := kubestore.New(server.Config(), kubestore.Options{})
	must(t, err)
	t.Cleanup(s.Close)
	return ipam.New(s.Store(), ipam.Options{Clock: s}), s
}

// attach gives a pod n addresses.
func attach(t *testing.T, node, pod string, n int) ipam.Assigned {
	t.Helper()
	c, _ := library(t)
	got, err := c.Attach(t.Context(), ipam.AttachRequest{AutoAssignRequest: ipam.AutoAssignRequest{
		Num4: n, Host: pool.Node{Name: node}, Use: pool.UseWorkload, Owner: owner(node, pod),
	}})
	must(t, err)
	return got
}

func owner(node, pod string) block.Owner {
	return block.Owner{Network: "net", Namespace: "shop", Pod: pod, PodUID: pod, ContainerID: pod, IfName: "eth0", Node: node}
}

func detach(t *testing.T, node, pod string) {
	t.Helper()
	c, _ := library(t)
	o := owner(node, pod)
	_, err := c.Detach(t.Context(), ipam.DetachRequest{Attachment: o.Attachment(), Namespace: o.Namespace, Pod: o.Pod, PodUID: o.PodUID, Node: node})
	must(t, err)
}

// manifest is a document.
func manifest(kind, name, spec string) string {
	return "---\napiVersion: " + v1alpha1.APIVersion + "\nkind: " + kind + "\nmetadata: {name: " + name + "}\nspec: {" + spec + "}\n"
}

func poolManifest(name, spec string) string { return manifest(v1alpha1.KindPool, name, spec) }

// condition is what admission stored of a pool: status and reason, finalizer with it.
func condition(t *testing.T, name string) string {
	t.Helper()
	o := object(t, v1alpha1.KindPool, name)
	all, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	must(t, err)
	text := "undecided"
	for _, c := range all {
		if c := c.(map[string]any); c["type"] == v1alpha1.ConditionAllocatable {
			text = c["status"].(string) + " " + c["reason"].(string)
			if c["observedGeneration"] != o.GetGeneration() {
				text += ", of another generation"
			}
		}
	}
	if len(o.GetFinalizers()) > 0 {
		text += " " + strings.Join(o.GetFinalizers(), ",")
	}
	return text
}

const (
	admitted = "True OK " + v1alpha1.PoolFinalizer
	overlaps = "False CIDROverlap"
)

func wantCondition(t *testing.T, name, want string) {
	t.Helper()
	if got := condition(t, name); got != want {
		t.Errorf("pool %s: %s, want %s", name, got, want)
	}
}
