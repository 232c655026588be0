// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
)

// TestFaultRandomHistories drives three nodes through random ADDs, DELs, restarts of
// sandboxes, GCs, configuration changes and faults. After every step the store must
// agree with the ledger (INV-1 to INV-4, INV-7, INV-8, INV-10, INV-11).
func TestFaultRandomHistories(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := &history{world: newWorld(t), r: r, pods: make(map[string]block.Owner)}
		h.pool("v4", "10.0.0.0/28", size(30))
		h.pool("v6", "fd00::/124", size(126))
		r.Repeat(map[string]func(*rapid.T){
			"":         func(*rapid.T) { h.check() },
			"add":      func(r *rapid.T) { h.add(r, "") },
			"restart":  func(r *rapid.T) { h.add(r, h.draw(r)) },
			"repeat":   func(r *rapid.T) { h.repeat(r) },
			"del":      func(r *rapid.T) { h.del(r) },
			"gc":       func(r *rapid.T) { h.gc(r) },
			"wait":     func(r *rapid.T) { h.pass(time.Duration(rapid.IntRange(1, 90).Draw(r, "seconds")) * time.Second) },
			"settings": func(r *rapid.T) { h.settings(r) },
			"give up":  func(r *rapid.T) { h.giveUpAffinity(r) },
			"ensure":   func(r *rapid.T) { h.ensure(r) },
			"claim":    func(r *rapid.T) { h.claim(r) },
			"clear":    func(r *rapid.T) { h.clear(r) },
			"collect":  func(r *rapid.T) { h.collect(r) },
			"migrate":  func(r *rapid.T) { h.migrate(r) },
			"count":    func(r *rapid.T) { h.count(r) },
		})
	})
}

type history struct {
	*world
	r    *rapid.T
	pods map[string]block.Owner // by pod UID: the attachment that is alive
	n    int
}

func (h *history) check() {
	for _, p := range h.wrong() {
		h.r.Fatal(p)
	}
}

func (h *history) draw(r *rapid.T) string {
	if len(h.pods) == 0 {
		r.Skip("no pod")
	}
	uids := make([]string, 0, len(h.pods))
	for uid := range h.pods {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return rapid.SampledFrom(uids).Draw(r, "pod")
}

// client is a new process, most often with one fault ahead of it.
func (h *history) client(r *rapid.T) (*Client, *memstore.Faults) {
	c, f := h.process("p")
	f.StaleBy(rapid.IntRange(0, 5).Draw(r, "stale"))
	if k := rapid.IntRange(0, 8).Draw(r, "write"); k > 0 {
		f.Plan(k, rapid.SampledFrom(memstore.WriteFaults()).Draw(r, "fault"))
	}
	return c, f
}

// add attaches a new pod, or an existing one under a new container. What fails is
// followed by the runtime's DEL, from another process.
func (h *history) add(r *rapid.T, uid string) {
	h.n++
	o := pod(rapid.SampledFrom([]string{"node-a", "node-b", "node-c"}).Draw(r, "node"), fmt.Sprint("u", h.n), fmt.Sprint("c", h.n))
	old := h.pods[uid]
	if uid != "" {
		o = pod(old.Node, uid, fmt.Sprint("c", h.n))
		delete(h.ledger, old.Attachment()) // its sandbox is dead; its address may be taken over
	}
	c, f := h.client(r)
	n6 := rapid.IntRange(0, 1).Draw(r, "v6")
	req := request(o, 1, n6)
	if o.Node == windowsNode {
		req.Reserved4, req.Reserved6 = windowsEnds, windowsEnds
	}
	_, err := h.attach(c, req)
	f.Deliver()
	if err == nil {
		h.pods[o.PodUID] = o
	} else if err := h.detach(h.c, o); err != nil {
		r.Fatalf("DEL after a failed ADD: %v", err)
	}
	if uid == "" {
		return
	}
	if err != nil {
		delete(h.pods, uid)
	}
	if err := h.detach(h.c, old); err != nil { // the late DEL of the old container
		r.Fatalf("late DEL: %v", err)
	}
}

func (h *history) repeat(r *rapid.T) {
	o := h.pods[h.draw(r)]
	held := h.ledger[o.Attachment()]
	v6 := 0
	if len(held) > 1 {
		v6 = 1
	}
	req := request(o, 1, v6)
	if o.Node == windowsNode {
		req.Reserved4, req.Reserved6 = windowsEnds, windowsEnds
	}
	got, err := h.attach(h.c, req)
	if err != nil || !slices.Equal(got, held) {
		r.Fatalf("a repeated ADD got %v, %v; it holds %v", got, err, held)
	}
}

func (h *history) del(r *rapid.T) {
	uid := h.draw(r)
	o := h.pods[uid]
	c, f := h.client(r)
	if err := h.detach(c, o); err != nil {
		if err := h.detach(h.c, o); err != nil {
			r.Fatalf("retried DEL: %v", err)
		}
	}
	f.Deliver()
	delete(h.pods, uid)
}

func (h *history) gc(r *rapid.T) {
	var valid []block.Attachment
	for uid, o := range h.pods {
		if o.Node == "node-a" && rapid.Bool().Draw(r, "keep "+uid) {
			valid = append(valid, o.Attachment())
		}
	}
	if _, err := h.c.DetachOthers(h.t.Context(), "net", "node-a", valid); err != nil {
		r.Fatal(err)
	}
	for uid, o := range h.pods {
		if o.Node == "node-a" && !slices.Contains(valid, o.Attachment()) {
			delete(h.pods, uid)
			delete(h.ledger, o.Attachment())
		}
	}
}

func (h *history) settings(r *rapid.T) {
	h.config(func(c *datastore.Config) {
		c.StrictAffinity = rapid.Bool().Draw(r, "strict")
		c.MaxBlocksPerHost = rapid.IntRange(0, 2).Draw(r, "cap")
		c.IPCooldown = time.Duration(rapid.IntRange(0, 60).Draw(r, "cooldown")) * time.Second
	})
}

func (h *history) giveUpAffinity(r *rapid.T) {
	es, err := h.mem.Store().Affinities.List(h.t.Context(), datastore.Query{})
	if err != nil || len(es) == 0 {
		r.Skip("no affinity")
	}
	e := rapid.SampledFrom(es).Draw(r, "affinity")
	c, f := h.client(r)
	_ = c.ReleaseAffinity(h.t.Context(), e.Key, rapid.Bool().Draw(r, "empty"))
	f.Deliver()
}

// TestConcurrentHosts lets many goroutines of several nodes fight for one small
// pool on one store (INV-1, INV-7; cases D9, D12, R8). The ledger is kept by the
// goroutines: between an ADD's success and its DEL nobody else may hold the address.
func TestConcurrentHosts(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/27", size(29))
	var mu sync.Mutex
	holder := make(map[netip.Addr]string)
	claim := func(id string, as []netip.Addr) {
		mu.Lock()
		defer mu.Unlock()
		for _, a := range as {
			if other, taken := holder[a]; taken {
				t.Errorf("%s was given to %s while %s holds it", a, id, other)
			}
			holder[a] = id
		}
	}
	var wg sync.WaitGroup
	var served, refused [8]int
	for worker := range 8 {
		wg.Go(func() {
			c, _ := w.process(fmt.Sprint("w", worker))
			rnd := rand.New(rand.NewPCG(uint64(worker), 1))
			for i := range 20 {
				id := fmt.Sprintf("%d-%d", worker, i)
				o := pod(fmt.Sprint("node-", worker%4), id, id)
				got, err := c.Attach(t.Context(), request(o, 1+rnd.IntN(12), 0))
				switch {
				case errors.Is(err, ErrExhausted), errors.Is(err, ErrContention):
					refused[worker]++
					continue
				case err != nil:
					t.Errorf("%s: %v", id, err)
					continue
				}
				served[worker]++
				claim(id, addrs(got.All()))
				mu.Lock()
				for _, a := range got.All() {
					delete(holder, a.Addr)
				}
				mu.Unlock()
				if _, err := c.Detach(t.Context(), DetachRequest{Attachment: o.Attachment(), Node: o.Node}); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	wg.Wait()
	w.verify() // an empty ledger: nothing leaked
	n, no := 0, 0
	for i := range served {
		n, no = n+served[i], no+refused[i]
	}
	if n == 0 {
		t.Error("nobody was served")
	}
	t.Attr("figures", fmt.Sprintf("%d served, %d refused with a reason", n, no))
}
