// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kubestore"
)

// stopping calls stop before each write of a process, with how many went before.
type stopping struct {
	next http.RoundTripper
	stop func(writes int)

	mu     sync.Mutex
	writes int
}

func (s *stopping) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		s.mu.Lock()
		n := s.writes
		s.writes++
		s.mu.Unlock()
		s.stop(n)
	}
	return s.next.RoundTrip(r)
}

// stoppable is a library that was just started and calls stop before each write.
func stoppable(t *testing.T, stop func(writes int)) *ipam.Client {
	t.Helper()
	cfg := server.Config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &stopping{next: next, stop: stop} })
	s, err := kubestore.New(cfg, kubestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return ipam.New(s.Store(), ipam.Options{Clock: s})
}

// release is something that takes a block from its owner.
type release struct {
	name string
	do   func(ctx context.Context, c *ipam.Client) error
}

var (
	contested = datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: netip.MustParsePrefix("10.0.0.0/30")}
	releases  = []release{
		{"block", func(ctx context.Context, c *ipam.Client) error { return c.ReleaseAffinity(ctx, contested, false) }},
		{"host", func(ctx context.Context, c *ipam.Client) error { return c.ReleaseHostAffinities(ctx, "node-a", false) }},
		{"pool", func(ctx context.Context, c *ipam.Client) error { return c.ReleasePoolAffinities(ctx, "v4") }},
	}
)

// owned prepares a pool of two blocks, the first of which is node-a's, with one
// address in use or with none.
func owned(t *testing.T, inUse bool) *kubestore.Store {
	t.Helper()
	s, _ := open(t)
	admittedPool(t, s, "10.0.0.0/29", 30)
	c := ipam.New(s.Store(), ipam.Options{Clock: s})
	r := request("node-a", "first", 1)
	r.Addrs = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	if _, err := c.Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if !inUse {
		detach(t, c, "first")
	}
	return s
}

func detach(t *testing.T, c *ipam.Client, id string) {
	t.Helper()
	o := request("node-a", id, 1).Owner
	if _, err := c.Detach(t.Context(), ipam.DetachRequest{
		Attachment: o.Attachment(), Namespace: o.Namespace, Pod: o.Pod, PodUID: o.PodUID, Node: o.Node,
	}); err != nil {
		t.Fatal(err)
	}
}

// settled checks what must be true when nobody writes: what was given is in the
// store, and no claim contradicts its block (INV-1, INV-6).
func settled(t *testing.T, s *kubestore.Store, given ipam.Assigned) {
	t.Helper()
	blocks, err := s.Store().Blocks.List(t.Context(), datastore.Query{})
	if err != nil {
		t.Fatal(err)
	}
	claims, err := s.Store().Affinities.List(t.Context(), datastore.Query{})
	if err != nil {
		t.Fatal(err)
	}
	held, owner := map[netip.Addr]string{}, map[netip.Prefix]block.Affinity{}
	for _, e := range blocks {
		if err := e.Value.Check(); err != nil {
			t.Error(err)
		}
		owner[e.Key] = e.Value.Affinity
		for a, slot := range e.Value.All() {
			if slot.State == block.Allocated {
				held[a] = slot.Active.ContainerID
			}
		}
	}
	for _, a := range given.All() {
		if held[a.Addr] != "second" {
			t.Errorf("%v was given out; the store says %q has it", a.Addr, held[a.Addr])
		}
	}
	confirmed := map[netip.Prefix]block.Affinity{}
	for _, e := range claims {
		switch e.Value.State {
		case datastore.Confirmed:
			confirmed[e.Key.CIDR] = e.Key.Owner
			if owner[e.Key.CIDR] != e.Key.Owner {
				t.Errorf("%v has the confirmed claim on %v, and the block names %q", e.Key.Owner, e.Key.CIDR, owner[e.Key.CIDR])
			}
		case datastore.PendingDeletion:
			if owner[e.Key.CIDR] == e.Key.Owner {
				t.Errorf("the claim of %v on %v is going, and the block names it", e.Key.Owner, e.Key.CIDR)
			}
		}
	}
	for cidr, o := range owner {
		if !o.IsZero() && confirmed[cidr] != o {
			t.Errorf("block %v names %v, which has no confirmed claim", cidr, o)
		}
	}
}

// The pausing test of the design's section 5 on the real API server: whoever releases
// a block is stopped before each of its writes while the owner commits what it had
// decided from its cache, and the reverse (INV-1, INV-6, INV-7).
func TestReleaseAgainstCachedOwner(t *testing.T) {
	points := 0
	for _, rel := range releases {
		for _, inUse := range []bool{true, false} {
			for _, ownerFirst := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, in use %v, owner stopped %v", rel.name, inUse, ownerFirst), func(t *testing.T) {
					for k, reached := 0, true; reached && !t.Failed(); k++ {
						t.Run(fmt.Sprint("write ", k), func(t *testing.T) { reached = meet(t, rel, inUse, ownerFirst, k) })
						points++
					}
				})
			}
		}
	}
	t.Attr("figures", fmt.Sprintf("%d points of meeting", points))
}

// meet stops one side before its write k and lets the other run to its end there; the
// other has read what it decides on before the first began. It returns false when the
// stopped side has fewer writes.
func meet(t *testing.T, rel release, inUse, stopOwner bool, k int) (reached bool) {
	s := owned(t, inUse)
	ctx := t.Context()
	var given ipam.Assigned
	attach := func(c *ipam.Client) error {
		var err error
		given, err = c.Attach(ctx, request("node-a", "second", 1))
		return err
	}
	give := func(c *ipam.Client) error { return rel.do(ctx, c) }
	stopped, runs := give, attach
	if stopOwner {
		stopped, runs = attach, give
	}
	// The other stands before its first write, with what it has read.
	ready, proceed, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var once sync.Once
	other := stoppable(t, func(int) {
		once.Do(func() {
			close(ready)
			<-proceed
		})
	})
	go func() {
		done <- runs(other)
		once.Do(func() { close(ready) })
	}()
	<-ready
	run := func() {
		close(proceed)
		if err := <-done; err != nil {
			t.Errorf("the other, before write %d: %v", k, err)
		}
	}
	err := stopped(stoppable(t, func(writes int) {
		if writes == k && !reached {
			reached = true
			run()
		}
	}))
	if err != nil {
		t.Errorf("stopped before write %d: %v", k, err)
	}
	if !reached {
		run()
	}
	settled(t, s, given)
	c := ipam.New(s.Store(), ipam.Options{Clock: s})
	detach(t, c, "second")
	if inUse {
		detach(t, c, "first")
	}
	return reached
}
