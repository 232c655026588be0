// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allod/allod/test/fixture"
)

// given is a test's own record of who was told to have what. It is written from the
// answers of processes and never read from Allod.
type given struct {
	mu    sync.Mutex
	who   map[netip.Addr]string // container IDs
	order []line
}

type line struct {
	n *node
	s fixture.Sandbox
}

// add notes what a sandbox was told. An address of two is an error (INV-1).
func (g *given) add(t *testing.T, n *node, s fixture.Sandbox, addrs []netip.Addr) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.who == nil {
		g.who = map[netip.Addr]string{}
	}
	for _, a := range addrs {
		if other, taken := g.who[a]; taken && other != s.ContainerID {
			t.Errorf("%s was given to %s and to %s", a, other, s.ContainerID)
		}
		g.who[a] = s.ContainerID
	}
	g.order = append(g.order, line{n, s})
}

// isStored compares the record with the blocks.
func (g *given) isStored(c *cluster) {
	c.t.Helper()
	held := c.held()
	for a, id := range g.who {
		if held[a] != id {
			c.t.Errorf("%s was given to %s, the API server has %q", a, id, held[a])
		}
	}
	if len(held) != len(g.who) {
		c.t.Errorf("%d addresses were given, the API server has %d", len(g.who), len(held))
	}
}

// INV-1: the processes of twenty nodes fill one small pool at once. Each address is
// used once, then every refusal explains itself; then all give back at once.
func TestTwentyNodesFillOnePool(t *testing.T) {
	const nodes, addresses = 20, 128
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.0.0.0/25, blockSize: 29"))
	all := make([]*node, nodes)
	for i := range all {
		all[i] = c.node(fmt.Sprint("node-", i), nil)
	}
	pods := make(chan fixture.Sandbox, addresses+nodes)
	for i := range cap(pods) { // each address, and each refusal, is a pod's
		pods <- c.pod(fmt.Sprint("web-", i), nil)
	}
	var (
		wg   sync.WaitGroup
		told given
		busy atomic.Int32 // ADDs that were told to try again, and did
	)
	start := time.Now()
	for _, n := range all {
		conf := n.conf(nil, nil)
		wg.Go(func() {
			for n.fillOn(conf, <-pods, &told, &busy) {
			}
		})
	}
	wg.Wait()
	filled := time.Since(start)
	if len(told.who) != addresses {
		t.Errorf("%d addresses were given, want %d", len(told.who), addresses)
	}
	told.isStored(c)
	made, conflicts := 0, 0
	for _, n := range all {
		calls := n.log.take(t)
		made += len(calls)
		conflicts += answered(calls, http.StatusConflict)
	}
	t.Attr("figures", fmt.Sprintf("%d nodes fill %d addresses at once: %d calls, %d conflicts, %d ADDs repeated, %v",
		nodes, len(told.who), made, conflicts, busy.Load(), filled.Round(time.Millisecond)))

	turns := make(chan struct{}, 2*nodes) // processes at a time
	for _, l := range told.order {
		conf := l.n.conf(nil, nil)
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if a, err := l.n.plugin.Run(t.Context(), fixture.Call{Verb: "DEL", Sandbox: l.s, Config: conf}); err != nil || a.Err() != nil {
				t.Errorf("DEL %s: %v, %v", l.s.Pod, err, a.Err())
			}
		})
	}
	wg.Wait()
	c.counts(0)
}

// Processes of one node wait for each other (the host lock): for one attachment all
// get the same address, for different ones each gets its own, without a conflict.
func TestOneNodeAtOnce(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.0.0.0/28, blockSize: 28"))
	n := c.node("node-a", nil)
	var lines []line
	for i := range 4 {
		s := c.pod(fmt.Sprint("web-", i), nil)
		lines = append(lines, line{n, s}, line{n, s}, line{n, s})
	}
	var told given
	if failed := addAll(t, &told, lines, nil); len(failed) != 0 || len(told.who) != 4 {
		t.Errorf("%d ADDs failed, %d addresses were given to 4 pods", len(failed), len(told.who))
	}
	told.isStored(c)
	calls := n.log.take(t)
	if got := answered(calls, http.StatusConflict); got != 0 || writes(calls) != 3+3 {
		t.Errorf("%d conflicts and %d writes; want none, and 3 for the first address and one for each other", got, writes(calls))
	}
	c.settled()
}

// fillOn executes an ADD, again as a runtime does when it is told to, and reports
// whether it got an address. That there is none must explain itself.
func (n *node) fillOn(conf []byte, s fixture.Sandbox, told *given, busy *atomic.Int32) bool {
	for range 20 {
		a, err := n.plugin.Run(n.t.Context(), fixture.Call{Verb: "ADD", Sandbox: s, Config: conf})
		if err != nil {
			n.t.Error(err)
			return false
		}
		res, err := a.Result()
		switch {
		case err == nil:
			told.add(n.t, n, s, res.Addrs())
			return true
		case strings.Contains(err.Error(), "no address is left"):
			wantRefusal(n.t, "ADD "+s.Pod, a, 11, n.name, "v4 (10.0.0.0/25)", "0 free and 0 cooling", "add a pool")
			return false
		}
		wantRefusal(n.t, "ADD "+s.Pod, a, 11) // contention, or an API server that is too slow
		busy.Add(1)
	}
	n.t.Errorf("ADD %s is neither served nor told that the pool is full", s.Pod)
	return false
}
