// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kubestore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// admit does what the collector does with a pool that may hand out.
func admit(t *testing.T, s *kubestore.Store, name string) datastore.Entry[string, pool.Pool] {
	t.Helper()
	o := object(t, v1alpha1.KindPool, name)
	o.SetFinalizers([]string{v1alpha1.PoolFinalizer})
	o = write(t, v1alpha1.KindPool, o)
	condition := map[string]any{
		"type": v1alpha1.ConditionAllocatable, "status": "True", "reason": pool.ReasonOK, "message": "",
		"observedGeneration": o.GetGeneration(), "lastTransitionTime": epoch.Format(time.RFC3339),
	}
	if err := unstructured.SetNestedSlice(o.Object, []any{condition}, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	pools := raw.Resource(v1alpha1.Resource(v1alpha1.KindPool))
	if _, err := pools.UpdateStatus(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the finalizer holds the pool
		o := object(t, v1alpha1.KindPool, name)
		o.SetFinalizers(nil)
		if _, err := pools.Update(context.Background(), o, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	})
	e, err := s.Store().Pools.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func admittedPool(t *testing.T, s *kubestore.Store, cidr string, size int) {
	t.Helper()
	create(t, s.Store().Pools, "v4", pool.Pool{Name: "v4", Spec: pool.Spec{CIDR: netip.MustParsePrefix(cidr), BlockSize: size}})
	admit(t, s, "v4")
}

func request(node, id string, n int) ipam.AttachRequest {
	return ipam.AttachRequest{AutoAssignRequest: ipam.AutoAssignRequest{
		Num4: n, Host: pool.Node{Name: node}, Use: pool.UseWorkload,
		Owner: block.Owner{Network: "net", Namespace: "shop", Pod: id, PodUID: id, ContainerID: id, IfName: "eth0", Node: node},
	}}
}

// process is a library that was just started, and its calls.
func process(t *testing.T) (*ipam.Client, *calls) {
	t.Helper()
	s, c := client(t, server.Config(), kubestore.Options{})
	return ipam.New(s.Store(), ipam.Options{Clock: s}), c
}

// The budgets of calls hold on the API server: kubestore adds none to those that the
// library makes (TestAssignCalls of ipam).
func TestCallsOfTheLibrary(t *testing.T) {
	s, _ := open(t)
	admittedPool(t, s, "10.0.0.0/24", 31) // 128 blocks of 2
	attach := func(node, id string, n int, want error) (reads, writes int) {
		t.Helper()
		lib, c := process(t)
		if _, err := lib.Attach(t.Context(), request(node, id, n)); !errors.Is(err, want) {
			t.Fatalf("%s: %v; want %v", id, err, want)
		}
		return c.count()
	}
	const warm = 5 // configuration, pools, reservations, the host's blocks and affinities
	budget := func(what string, reads, writes, maxReads, maxWrites int) {
		t.Helper()
		t.Attr("figures", fmt.Sprintf("%s: %d reads, %d writes", what, reads, writes))
		if reads > maxReads || writes > maxWrites {
			t.Errorf("%s: %d reads, %d writes; want at most %d, %d", what, reads, writes, maxReads, maxWrites)
		}
	}
	r, w := attach("node-a", "cold", 1, nil)
	budget("ADD that claims a block", r, w, warm+1, 3)
	r, w = attach("node-a", "warm", 1, nil)
	budget("warm ADD", r, w, warm, 1)

	lib, c := process(t)
	if _, err := lib.Detach(t.Context(), ipam.DetachRequest{
		Attachment: request("node-a", "warm", 1).Owner.Attachment(), Namespace: "shop", Pod: "warm", PodUID: "warm", Node: "node-a",
	}); err != nil {
		t.Fatal(err)
	}
	r, w = c.count()
	budget("DEL", r, w, 1, 1)

	for i := range 127 {
		attach(fmt.Sprint("node-", i), fmt.Sprint("fill-", i), 2, nil)
	}
	r, w = attach("node-x", "last", 1, nil)
	budget("ADD of the last address of 128 blocks", r, w, warm+1, 1)
	r, w = attach("node-x", "full", 1, ipam.ErrExhausted)
	budget("ADD when 128 blocks are full", r, w, warm+3, 0) // it asks for those labelled full as well
}

// INV-1: clients that allocate from one small pool at once, until it is full, use
// every address once; then each refusal explains itself.
func TestManyClientsFillOnePool(t *testing.T) {
	const clients, addresses = 20, 128
	s, _ := open(t)
	admittedPool(t, s, "10.0.0.0/25", 29)
	var (
		wg        sync.WaitGroup
		mu        sync.Mutex
		got       = map[netip.Addr]string{}
		conflicts int
		busy      int
		made      int
	)
	start := time.Now()
	for i := range clients {
		lib, c := process(t)
		node := fmt.Sprint("node-", i)
		wg.Go(func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("%s-%d", node, n)
				a, err := lib.Attach(t.Context(), request(node, id, 1))
				mu.Lock()
				if err == nil {
					if other, twice := got[a.V4[0].Addr]; twice {
						t.Errorf("%v belongs to %s and %s (INV-1)", a.V4[0].Addr, other, id)
					}
					got[a.V4[0].Addr] = id
				}
				if errors.Is(err, ipam.ErrContention) {
					busy++
				}
				mu.Unlock()
				switch {
				case err == nil, errors.Is(err, ipam.ErrContention):
				case errors.Is(err, ipam.ErrExhausted):
					for _, text := range []string{"v4", "full"} {
						if !strings.Contains(err.Error(), text) {
							t.Errorf("%s: %v does not say %q", id, err, text)
						}
					}
					mu.Lock()
					conflicts += c.answered(http.StatusConflict)
					made += len(c.take())
					mu.Unlock()
					return
				default:
					t.Errorf("%s: %v", id, err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Attr("figures", fmt.Sprintf("%d clients, %d addresses: %d calls, %d conflicts, %d requests gave up to contention, %v",
		clients, len(got), made, conflicts, busy, time.Since(start).Round(time.Millisecond)))
	if len(got) != addresses {
		t.Errorf("%d addresses were given; want %d", len(got), addresses)
	}
	ledger(t, s, got)
}

// ledger compares the store with what was given.
func ledger(t *testing.T, s *kubestore.Store, given map[netip.Addr]string) {
	t.Helper()
	es, err := s.Store().Blocks.List(t.Context(), datastore.Query{})
	if err != nil {
		t.Fatal(err)
	}
	held := map[netip.Addr]string{}
	for _, e := range es {
		if err := e.Value.Check(); err != nil {
			t.Error(err)
		}
		for a, slot := range e.Value.All() {
			held[a] = slot.Active.ContainerID
		}
	}
	for a, id := range given {
		if held[a] != id {
			t.Errorf("%v was given to %s; the store has %q", a, id, held[a])
		}
	}
	if len(held) != len(given) {
		t.Errorf("%d addresses were given, the store has %d", len(given), len(held))
	}
}
