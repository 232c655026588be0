// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os/exec"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/allod/allod/test/fixture"
)

// proxy stands between the plugin and the API server. It hands every call on,
// unless on says to drop it.
type proxy struct {
	*httptest.Server

	mu   sync.Mutex
	idle *sync.Cond                               // busy is 0
	busy int                                      // calls in progress
	seen int                                      // calls since arm
	on   func(n int, r *http.Request) (drop bool) // asked before the n-th call, from 1; nil: never drops
}

// proxied makes the node's kubeconfig lead through a proxy.
func (n *node) proxied() *proxy {
	n.t.Helper()
	cfg := n.c.server.ConfigFor("")
	transport, err := rest.TransportFor(cfg)
	must(n.t, err)
	target, err := url.Parse(cfg.Host)
	must(n.t, err)
	p := &proxy{}
	p.idle = sync.NewCond(&p.mu)
	on := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:    transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		drop := p.begin(r)
		defer p.end()
		if drop {
			panic(http.ErrAbortHandler) // the connection ends
		}
		// A call that its sender does not wait for is carried out all the same.
		on.ServeHTTP(w, r.WithContext(n.t.Context()))
	}))
	n.t.Cleanup(p.Close)
	n.editKubeconfig(func(c *api.Config, _ *api.AuthInfo) {
		for _, cluster := range c.Clusters {
			cluster.Server = p.URL
			cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
		}
	})
	return p
}

func (p *proxy) begin(r *http.Request) (drop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy++
	p.seen++
	return p.on != nil && p.on(p.seen, r)
}

func (p *proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy--; p.busy == 0 {
		p.idle.Broadcast()
	}
}

// wait returns when no call is in progress.
func (p *proxy) wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.busy > 0 {
		p.idle.Wait()
	}
}

// arm has on asked from the next call on.
func (p *proxy) arm(on func(n int, r *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.on = 0, on
}

// killedAt executes a verb whose process is killed at its k-th call, which is then
// dropped or still carried out. It reports whether it got that far, and whether the
// call is a write.
func (n *node) killedAt(p *proxy, verb string, s fixture.Sandbox, k int, drop bool) (went, write bool) {
	n.t.Helper()
	cmd := n.plugin.Command(n.t.Context(), fixture.Call{Verb: verb, Sandbox: s, Config: n.conf(nil, nil)})
	started := make(chan struct{})
	p.arm(func(i int, r *http.Request) bool {
		if i != k {
			return false
		}
		write = r.Method != http.MethodGet
		<-started
		_ = cmd.Process.Kill() // allod has become allod-agent, under the same ID
		return drop
	})
	must(n.t, cmd.Start())
	close(started)
	_ = cmd.Wait() // ProcessState says how it ended
	p.arm(nil)
	return cmd.ProcessState.ExitCode() == -1, write
}

// Process death at every call of an ADD that claims a block, of one that does not, and
// of a DEL; a write is then carried out all the same, or is not. The ADD of the same
// key gets one address and leaves the node's claims in order, DEL gives all back.
func TestKilledAtEachCall(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.0.0.0/29, blockSize: 30"))
	n := c.node("node-a", nil)
	p := n.proxied()
	other := c.pod("other", nil)
	for _, step := range []killStep{
		{name: "a cold ADD", verb: "ADD", calls: 11, writes: 3},
		{name: "a warm ADD", verb: "ADD", calls: 8, writes: 1, others: []fixture.Sandbox{other}},
		{name: "a DEL", verb: "DEL", calls: 2, writes: 1, held: true},
	} {
		t.Run(step.name, func(t *testing.T) {
			times := 0
			for k, more := 1, true; more; k++ {
				went, write := n.in(t).killOnce(p, step, k, true)
				if more = went; went {
					times++
				}
				if went && write {
					n.in(t).killOnce(p, step, k, false)
					times++
				}
			}
			t.Attr("figures", fmt.Sprintf("kill -9 at each API call of %s: %d times", step.name, times))
			if times != step.calls+step.writes {
				t.Errorf("killed %d times, want at each of %d calls, and again at the %d writes", times, step.calls, step.writes)
			}
		})
	}
}

// killStep is a verb to be cut short, and what it calls when it is not.
type killStep struct {
	name, verb    string
	calls, writes int
	others        []fixture.Sandbox // that have an address before
	held          bool              // by the pod itself
}

func (n *node) killOnce(p *proxy, step killStep, k int, drop bool) (went, write bool) {
	n.t.Helper()
	c, conf := n.c, n.conf(nil, nil)
	s := c.pod(fmt.Sprintf("web-%s-%d-%v", fixture.Digest(step.name)[:6], k, drop), nil)
	c.releaseAll(n)
	before := step.others
	if step.held {
		before = []fixture.Sandbox{s}
	}
	for _, b := range before {
		n.add(conf, b)
	}
	went, write = n.killedAt(p, step.verb, s, k, drop)
	if step.verb == "ADD" {
		n.add(conf, s)
		p.wait()
		c.counts(len(step.others) + 1)
	}
	n.ok("DEL", conf, s)
	c.counts(len(step.others))
	c.settled()
	for _, o := range step.others {
		n.ok("DEL", conf, o)
	}
	if n.t.Failed() {
		n.t.Fatalf("%s, killed at call %d, dropped: %v", step.name, k, drop)
	}
	return went, write
}

// releaseAll makes a node forget its blocks.
func (c *cluster) releaseAll(n *node) {
	c.t.Helper()
	lib := c.library()
	must(c.t, lib.ReleaseHostAffinities(c.t.Context(), n.name, true))
	if _, err := lib.CollectBlocks(c.t.Context(), nil, 0); err != nil {
		c.t.Fatal(err)
	}
	if blocks, claims := c.blocks(), c.affinities(); len(blocks)+len(claims) != 0 {
		c.t.Fatalf("left: %d blocks, affinities %v", len(blocks), claims)
	}
}

// kill -9 at random moments of ADDs that run at once on two nodes, some before the
// first call. Each is then repeated, or not, and given back.
func TestKilledAtRandom(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.0.0.0/28, blockSize: 30"))
	nodes := []*node{c.node("node-a", nil), c.node("node-b", nil)}
	whole := duration(func() { nodes[0].add(nodes[0].conf(nil, nil), c.pod("first", nil)) })
	var told given
	var lines []line
	cut := 0
	for i := range 10 {
		var started []*exec.Cmd
		var round []line
		for _, n := range nodes {
			s := c.pod(fmt.Sprintf("web-%s-%d", n.name, i), nil)
			cmd := n.plugin.Command(t.Context(), fixture.Call{Verb: "ADD", Sandbox: s, Config: n.conf(nil, nil)})
			must(t, cmd.Start())
			timer := time.AfterFunc(rand.N(2*whole), func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
			started, round = append(started, cmd), append(round, line{n, s})
		}
		for j, cmd := range started {
			if cmd.Wait() != nil {
				cut++
			}
			l := round[j]
			var has []netip.Addr
			if i%2 == 0 {
				has = l.n.add(l.n.conf(nil, nil), l.s).Addrs()
			}
			if i >= 5 { // the first half stay
				l.n.ok("DEL", l.n.conf(nil, nil), l.s)
				continue
			}
			told.add(t, l.n, l.s, has)
			lines = append(lines, l)
		}
	}
	t.Attr("figures", fmt.Sprintf("kill -9 at random moments: %d of 20 ADDs were cut short", cut))
	if cut == 0 {
		t.Error("no ADD was cut short: nothing was tested")
	}
	for _, l := range lines {
		l.n.ok("DEL", l.n.conf(nil, nil), l.s)
	}
	c.counts(1)
	for i, n := range nodes {
		n.add(n.conf(nil, nil), c.pod(fmt.Sprint("last-", i), nil))
	}
	c.counts(3)
	c.settled()
}

func duration(fn func()) time.Duration {
	start := time.Now()
	fn()
	return time.Since(start)
}
