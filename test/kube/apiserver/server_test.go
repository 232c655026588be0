// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/allod/allod/test/kube/apiserver"
)

// asChild makes this test binary a program that starts a server, prints the IDs
// of its processes and waits to be killed.
const asChild = "ALLOD_TEST_APISERVER_CHILD"

var server *apiserver.Server

func TestMain(m *testing.M) {
	if dir := os.Getenv(asChild); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(apiserver.Main(m, func(_ context.Context, s *apiserver.Server) error {
		server = s
		return nil
	}))
}

func child(dir string) int {
	if _, err := apiserver.Start(context.Background(), dir); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	select {}
}

func client(t *testing.T, token string) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(server.ConfigFor(token))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestVersionIsTheClients(t *testing.T) {
	v, err := client(t, server.AdminToken()).Discovery().ServerVersion()
	if err != nil || !strings.HasPrefix(v.GitVersion, "v1.37.") {
		t.Errorf("version %+v, error %v; want v1.37", v, err)
	}
}

func TestNodeTokenCarriesTheNode(t *testing.T) {
	ctx, admin := t.Context(), client(t, server.AdminToken())
	if _, err := admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := server.Apply(ctx, []byte("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: agent, namespace: kube-system}\n")); err != nil {
		t.Fatal(err)
	}
	token, err := server.NodeToken(ctx, "kube-system", "agent", "node-a")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := server.Kubeconfig(path, token); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u := r.Status.UserInfo
	if u.Username != "system:serviceaccount:kube-system:agent" || !slices.Equal(u.Extra["authentication.kubernetes.io/node-name"], []string{"node-a"}) {
		t.Errorf("the token says %+v", u)
	}
	// RBAC is on: nobody has given the account anything.
	if _, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("LIST of nodes: %v; want forbidden", err)
	}
	if _, err := server.NodeToken(ctx, "kube-system", "agent", "no-such-node"); err == nil {
		t.Error("a token for a node that is not there")
	}
}

func TestUnknownTokenIsRefused(t *testing.T) {
	if _, err := client(t, "wrong").CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("error %v; want unauthorized", err)
	}
}

func TestApply(t *testing.T) {
	ctx := t.Context()
	const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.test.example.org}
spec:
  group: test.example.org
  scope: Cluster
  names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer, maximum: 3}}}}
`
	thing := func(fields string) []byte {
		return []byte("---\n# a comment\n---\napiVersion: test.example.org/v1\nkind: Thing\nmetadata: {name: a}\n" + fields)
	}
	path := filepath.Join(t.TempDir(), "crd.yaml")
	if err := os.WriteFile(path, append([]byte(crd), thing("size: 1\n")...), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second time changes nothing
		if err := server.ApplyFile(ctx, path); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct{ fields, want string }{
		"a bound":          {"size: 4\n", "size"},
		"an unknown field": {"colour: red\n", "colour"},
		"not YAML":         {"size: {\n", "yaml"},
	} {
		if err := server.Apply(ctx, thing(tt.fields)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v; want it to name %q", name, err, tt.want)
		}
	}
}

func TestCPUTimeGrows(t *testing.T) {
	before, err := server.CPUTime()
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if _, err := client(t, server.AdminToken()).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := server.CPUTime(); err != nil || after <= before || before <= 0 {
		t.Errorf("CPU time %v, then %v, error %v", before, after, err)
	}
}

func TestMissingProgramIsNamed(t *testing.T) {
	for _, value := range []string{"", filepath.Join(t.TempDir(), "none")} {
		t.Setenv("KUBE_APISERVER", value)
		if _, err := apiserver.Start(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "make etcd kube-apiserver") {
			t.Errorf("KUBE_APISERVER=%q: error %v; want it to name the make target", value, err)
		}
	}
}

func TestProgramThatEndsIsReported(t *testing.T) {
	t.Setenv("KUBE_APISERVER", "/bin/false")
	if _, err := apiserver.Start(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "false has ended (exit status 1)") {
		t.Errorf("error %v; want the end of the program", err)
	}
}

// Nothing outlives a test that is killed.
func TestProgramsDieWithTheTest(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asChild+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil || string(line[:n]) != "ready\n" {
		t.Fatalf("the child says %q, %v", line[:n], err)
	}
	running := processesWith(t, dir)
	if len(running) != 2 {
		t.Errorf("%d programs run in %s; want etcd and kube-apiserver", len(running), dir)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		return len(processesWith(t, dir)) == 0, nil
	})
	if err != nil {
		t.Errorf("still running: %v", processesWith(t, dir))
	}
}

// processesWith returns the IDs of the processes with text in their command line.
func processesWith(t *testing.T, text string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var ids []int
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && strings.Contains(string(line), text) {
			ids = append(ids, id)
		}
	}
	return ids
}
