// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/allod/allod/ipam/pool"
)

// asked counts how often labels are looked up.
type asked struct {
	labels map[string]string
	err    error
	times  int
}

func (a *asked) get(context.Context) (map[string]string, error) {
	a.times++
	return a.labels, a.err
}

func nodeSelector(s string) func(*pool.Spec) {
	return func(p *pool.Spec) { p.NodeSelector, p.BlockSize = s, 30 }
}

func namespaceSelector(s string) func(*pool.Spec) {
	return func(p *pool.Spec) { p.NamespaceSelector, p.BlockSize = s, 30 }
}

// Labels are looked up once for a request, and only if they decide: a warm ADD in a
// cluster without selectors costs no read more.
func TestLabelsAreLookedUpWhenNeeded(t *testing.T) {
	zone := map[string]string{"zone": "a"}
	team := map[string]string{"team": "x"}
	for name, tt := range map[string]struct {
		pools           map[string]func(*pool.Spec) // by CIDR
		change          func(*AttachRequest)
		node, namespace asked
		want            [2]int // how often: node, namespace
		err             error
	}{
		"no selector": {
			pools: map[string]func(*pool.Spec){"10.0.0.0/29": size(30), "10.1.0.0/29": size(30)},
		},
		"a nodeSelector": {
			pools: map[string]func(*pool.Spec){"10.0.0.0/29": nodeSelector("zone=a"), "fd00::/125": func(s *pool.Spec) { s.NodeSelector, s.BlockSize = "zone", 126 }},
			node:  asked{labels: zone}, want: [2]int{1, 0},
			change: func(r *AttachRequest) { r.Num6 = 1 },
		},
		"a namespaceSelector": {
			pools:     map[string]func(*pool.Spec){"10.0.0.0/29": namespaceSelector("team=x")},
			namespace: asked{labels: team}, want: [2]int{0, 1},
		},
		"both": {
			pools: map[string]func(*pool.Spec){"10.0.0.0/29": nodeSelector("zone=a"), "10.1.0.0/29": namespaceSelector("team=x")},
			node:  asked{labels: zone}, namespace: asked{labels: team}, want: [2]int{1, 1},
		},
		"a pool that was not asked for has it": {
			pools:  map[string]func(*pool.Spec){"10.0.0.0/29": nodeSelector("zone=a"), "10.1.0.0/29": size(30)},
			change: func(r *AttachRequest) { r.Pools4 = []string{"10.1.0.0/29"} },
		},
		"a pool the given address is not in has it": {
			pools:  map[string]func(*pool.Spec){"10.0.0.0/29": nodeSelector("zone=a"), "10.1.0.0/29": size(30)},
			change: func(r *AttachRequest) { r.Addrs = []netip.Addr{netip.MustParseAddr("10.1.0.1")} },
		},
		"the pool of the given address has it": {
			pools: map[string]func(*pool.Spec){"10.0.0.0/29": nodeSelector("zone=a")},
			node:  asked{labels: zone}, want: [2]int{1, 0},
			change: func(r *AttachRequest) { r.Addrs = []netip.Addr{netip.MustParseAddr("10.0.0.1")} },
		},
		"a pool that could not serve has it": {
			pools: map[string]func(*pool.Spec){"10.0.0.0/29": size(30), "10.1.0.0/29": func(s *pool.Spec) { s.NodeSelector, s.Disabled = "zone=a", true }},
		},
		"the labels came with the request": {
			pools:  map[string]func(*pool.Spec){"10.0.0.0/29": nodeSelector("zone=a")},
			change: func(r *AttachRequest) { r.Host.Labels = zone },
		},
		"none: known to be none": {
			pools: map[string]func(*pool.Spec){"10.0.0.0/29": nodeSelector("!zone")}, want: [2]int{1, 0},
		},
		"not selected, asked again with a fresh view": {
			pools: map[string]func(*pool.Spec){"10.0.0.0/29": nodeSelector("zone=b")},
			node:  asked{labels: zone}, want: [2]int{1, 0}, err: ErrNoPool,
		},
		"it fails": {
			pools: map[string]func(*pool.Spec){"10.0.0.0/29": nodeSelector("!zone"), "10.1.0.0/29": size(30)},
			node:  asked{err: errMayNot}, want: [2]int{1, 0}, err: errMayNot,
		},
		"it fails for the namespace": {
			pools:     map[string]func(*pool.Spec){"10.0.0.0/29": namespaceSelector("!team"), "10.1.0.0/29": size(30)},
			namespace: asked{err: errMayNot}, want: [2]int{0, 1}, err: errMayNot,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for cidr, set := range tt.pools {
				w.pool("p"+netip.MustParsePrefix(cidr).Addr().StringExpanded()[:4], cidr, set)
			}
			r := request(pod("node-a", "u1", "c1"), 1, 0)
			r.Namespace.Name = "shop"
			r.HostLabels, r.NamespaceLabels = tt.node.get, tt.namespace.get
			if tt.change != nil {
				tt.change(&r)
			}
			_, err := w.attach(w.c, r)
			if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Errorf("attach: %v; want %v", err, tt.err)
			}
			if got := [2]int{tt.node.times, tt.namespace.times}; got != tt.want {
				t.Errorf("labels were looked up %v times; want %v", got, tt.want)
			}
			w.verify()
		})
	}
}

// What the attachment has already needs no labels, whatever they are by now; what its
// pod had before does.
func TestLabelsOfARepeatedADD(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", nodeSelector("zone=a"))
	r := request(pod("node-a", "u1", "c1"), 1, 0)
	node := asked{labels: map[string]string{"zone": "a"}}
	r.HostLabels = node.get
	first, err := w.attach(w.c, r)
	if err != nil {
		t.Fatal(err)
	}
	node.labels, node.times = nil, 0
	again, err := w.attach(w.c, r)
	if err != nil || again[0] != first[0] || node.times != 0 {
		t.Errorf("got %v, %v, with %d look-ups; want %v with none", again, err, node.times, first)
	}
	delete(w.ledger, r.Owner.Attachment())
	r.Owner.ContainerID = "c2"
	if got, err := w.attach(w.c, r); !errors.Is(err, ErrNoPool) || node.times != 1 {
		t.Errorf("a new sandbox on a node that is not selected any more: %v, %v, %d look-ups", got, err, node.times)
	}
}

// Ready needs the labels of the node, and leaves namespaces out.
func TestReadyLooksUpLabels(t *testing.T) {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/29", func(s *pool.Spec) { s.BlockSize, s.NodeSelector, s.NamespaceSelector = 30, "zone=a", "team=x" })
	for name, tt := range map[string]struct {
		node asked
		err  error
	}{
		"selected":     {asked{labels: map[string]string{"zone": "a"}}, nil},
		"not selected": {asked{}, ErrNoPool},
		"it fails":     {asked{err: errMayNot}, errMayNot},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(pod("node-a", "u1", "c1"), 1, 0).AutoAssignRequest
			var namespace asked
			r.HostLabels, r.NamespaceLabels = tt.node.get, namespace.get
			if err := w.c.Ready(t.Context(), r); !errors.Is(err, tt.err) || tt.node.times != 1 || namespace.times != 0 {
				t.Errorf("ready: %v, with %d and %d look-ups; want %v with 1 and 0", err, tt.node.times, namespace.times, tt.err)
			}
		})
	}
}
