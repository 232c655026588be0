// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/allod/allod/ipam/datastore/kubestore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/test/fixture"
	"github.com/allod/allod/test/kube/apiserver"
)

// What TestMain prepares once for all tests.
var (
	server *apiserver.Server
	raw    dynamic.Interface // the administrator, without our types
)

var kinds = []string{
	v1alpha1.KindPool, v1alpha1.KindReservation, v1alpha1.KindConfiguration,
	v1alpha1.KindBlock, v1alpha1.KindAffinity, v1alpha1.KindHandle,
}

func TestMain(m *testing.M) {
	os.Exit(apiserver.Main(m, func(ctx context.Context, s *apiserver.Server) error {
		var err error
		server = s
		if raw, err = dynamic.NewForConfig(s.Config()); err != nil {
			return err
		}
		return applyCRDs(ctx, s)
	}))
}

func applyCRDs(ctx context.Context, s *apiserver.Server) error {
	root, err := fixture.ModuleRoot(ctx)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(root, "manifests", "crds", "*.yaml"))
	if err != nil {
		return err
	}
	return s.ApplyFile(ctx, files...)
}

// calls records the requests of a store and what they were answered.
type calls struct {
	next http.RoundTripper

	mu      sync.Mutex
	made    []string    // method and path with query
	answers map[int]int // how often each status
}

func (c *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, r.Method+" "+strings.TrimPrefix(r.URL.RequestURI(), "/apis/"+v1alpha1.APIVersion+"/"))
	if err == nil {
		c.answers[resp.StatusCode]++
	}
	return resp, err
}

// take returns what was asked since it was called last.
func (c *calls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := c.made
	c.made = nil
	return made
}

// count returns how much of what take returns reads and how much writes.
func (c *calls) count() (reads, writes int) {
	for _, r := range c.take() {
		if strings.HasPrefix(r, http.MethodGet) {
			reads++
		} else {
			writes++
		}
	}
	return reads, writes
}

func (c *calls) answered(status int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers[status]
}

// empty deletes every record.
func empty(t *testing.T) {
	t.Helper()
	for _, kind := range kinds {
		err := raw.Resource(v1alpha1.Resource(kind)).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			t.Fatalf("delete every %s: %v", kind, err)
		}
	}
}

// open returns a store on the emptied API server, and its calls.
func open(t *testing.T) (*kubestore.Store, *calls) {
	t.Helper()
	empty(t)
	return client(t, server.Config(), kubestore.Options{})
}

func client(t *testing.T, cfg *rest.Config, o kubestore.Options) (*kubestore.Store, *calls) {
	t.Helper()
	c := &calls{answers: map[int]int{}}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		c.next = next
		return c
	})
	s, err := kubestore.New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, c
}

// object is a stored object as the API server has it. Clean-up may call it.
func object(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	o, err := raw.Resource(v1alpha1.Resource(kind)).Get(context.WithoutCancel(t.Context()), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("%s %s: %v", kind, name, err)
	}
	return o
}

// write stores an object as somebody else would.
func write(t *testing.T, kind string, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	var err error
	if o.GetResourceVersion() == "" {
		o, err = raw.Resource(v1alpha1.Resource(kind)).Create(t.Context(), o, metav1.CreateOptions{})
	} else {
		o, err = raw.Resource(v1alpha1.Resource(kind)).Update(t.Context(), o, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatalf("write %s: %v", kind, err)
	}
	return o
}
