// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/allod/allod/test/fixture"
	"github.com/allod/allod/test/kube/apiserver"
)

// The API server is killed. What is asked of it meanwhile is refused, to be tried
// again (INV-10: until the node agent has its queue, DEL as well); ADDs that it was
// killed amidst and that are repeated get one address each, and nothing leaks.
func TestAPIServerGone(t *testing.T) {
	s := apiserver.New(t)
	must(t, install(t.Context(), s))
	c := clusterOn(t, s)
	c.pools(poolManifest("v4", "cidr: 10.0.0.0/26, blockSize: 29"))
	const each = 6
	var burst []line
	for i := range 4 {
		n := c.node(fmt.Sprint("node-", i), nil)
		for j := range each {
			burst = append(burst, line{n, c.pod(fmt.Sprintf("web-%d-%d", i, j), nil)})
		}
	}
	first := burst[0]
	first.n.add(first.n.conf(nil, nil), first.s)

	s.Kill()
	for _, l := range []line{first, burst[1]} {
		l.n.eachVerb(l.s, nil, s.Config().Host, "connection refused")
	}
	must(t, s.Restart(t.Context()))
	c.counts(1)

	var told given
	failed := addAll(t, &told, burst, s.Kill)
	t.Attr("figures", fmt.Sprintf("API server killed amid %d ADDs: %d were answered, %d repeated", len(burst), len(burst)-len(failed), len(failed)))
	if len(failed) == 0 {
		t.Error("no ADD was cut short: nothing was tested")
	}
	must(t, s.Restart(t.Context()))
	for range 3 { // some kinds are served a moment after /readyz says so
		failed = addAll(t, &told, failed, nil)
	}
	for _, l := range failed {
		t.Errorf("ADD %s fails when the API server is there again: %v", l.s.Pod, l.n.call("ADD", l.n.conf(nil, nil), l.s).Err())
	}
	if len(told.who) != len(burst) {
		t.Errorf("%d addresses were given to %d pods", len(told.who), len(burst))
	}
	told.isStored(c)
	for _, l := range burst {
		l.n.ok("DEL", l.n.conf(nil, nil), l.s)
	}
	c.counts(0)
	for i := range 4 { // one ADD of each node puts right what was cut short
		burst[i*each].n.add(burst[i*each].n.conf(nil, nil), burst[i*each].s)
	}
	c.counts(4)
	c.settled()
}

// addAll executes ADDs at once and returns those that failed. When a third have been
// answered, cut is called, unless it is nil.
func addAll(t *testing.T, told *given, lines []line, cut func()) (failed []line) {
	t.Helper()
	var wg sync.WaitGroup
	answers := make(chan int, len(lines))
	bad := make([]bool, len(lines))
	for i, l := range lines {
		conf := l.n.conf(nil, nil)
		wg.Go(func() {
			defer func() { answers <- i }()
			a, err := l.n.plugin.Run(t.Context(), fixture.Call{Verb: "ADD", Sandbox: l.s, Config: conf})
			if err != nil {
				t.Error(err)
				return
			}
			res, err := a.Result()
			if bad[i] = err != nil; !bad[i] {
				told.add(t, l.n, l.s, res.Addrs())
			} else if cut != nil {
				wantRefusal(t, "ADD "+l.s.Pod, a, 11)
			}
		})
	}
	if cut != nil {
		for range len(lines) / 3 {
			<-answers
		}
		cut()
	}
	wg.Wait()
	for i, l := range lines {
		if bad[i] {
			failed = append(failed, l)
		}
	}
	return failed
}

// An API server that takes connections and says nothing: no verb hangs with it, and
// each says which server did not answer.
func TestAPIServerSilent(t *testing.T) {
	c := newCluster(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts what the kernel takes
	must(t, err)
	defer l.Close()
	s := c.pod("web-0", nil)
	top := object{
		"prevResult":                object{"cniVersion": "1.1.0", "ips": []object{{"address": "10.1.0.1/24"}}},
		"cni.dev/valid-attachments": []object{},
	}
	var wg sync.WaitGroup
	for verb, code := range map[string]uint{"ADD": 11, "CHECK": 11, "DEL": 11, "GC": 11, "STATUS": 50} {
		n := c.node("node-"+strings.ToLower(verb), nil) // a host lock of its own: all wait at once
		n.editKubeconfig(func(c *api.Config, _ *api.AuthInfo) {
			for _, cluster := range c.Clusters {
				cluster.Server = "https://" + l.Addr().String()
			}
		})
		conf := n.conf(nil, top)
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			a, err := n.plugin.Run(ctx, fixture.Call{Verb: verb, Sandbox: s, Config: conf})
			if err != nil {
				t.Error(err)
				return
			}
			wantRefusal(t, verb, a, code, l.Addr().String())
		})
	}
	wg.Wait()
}
