// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// admitted returns the pools as admission leaves them.
func admitted(pools ...Pool) []Pool {
	for i := range pools {
		pools[i].Generation = 1
	}
	return Admit(pools, nil)
}

func names(pools []Pool) []string {
	var out []string
	for _, p := range pools {
		out = append(out, p.Name)
	}
	return out
}

func manual(p *Pool) { p.Spec.AssignmentMode = Manual }

func uses(us ...Use) func(*Pool) { return spec(func(s *Spec) { s.AllowedUses = us }) }

func selectors(node, namespace string) func(*Pool) {
	return spec(func(s *Spec) { s.NodeSelector, s.NamespaceSelector = node, namespace })
}

func gatewayFirst(p *Pool) { p.Spec.Gateway.First = true }

func gatewayFixed(p *Pool) { p.Spec.Gateway.Addr = p.Spec.CIDR.Addr().Next() }

// request returns a workload's request for IPv4 on node-a of zone a in namespace
// shop of team x, changed by the edits.
func request(edits ...func(*Request)) Request {
	r := Request{
		Family: V4, Use: UseWorkload,
		Node:      Node{"node-a", map[string]string{"zone": "a"}},
		Namespace: Namespace{"shop", map[string]string{"team": "x"}},
	}
	for _, e := range edits {
		e(&r)
	}
	return r
}

func requested(ss ...string) func(*Request) { return func(r *Request) { r.Requested = ss } }

func use(u Use) func(*Request) { return func(r *Request) { r.Use = u } }

func TestSelect(t *testing.T) {
	onePool := func(edits ...func(*Pool)) []Pool { return admitted(valid("a", "10.0.0.0/16", edits...)) }
	two := admitted(valid("b", "10.1.0.0/16"), valid("a", "10.0.0.0/16"), valid("six", "fd00::/64"))
	for _, c := range []struct {
		name    string
		pools   []Pool
		r       Request
		want    []string
		skipped []string // "pool: part of the reason"
	}{
		{"no pools", nil, request(), nil, nil},
		{"by name, of the family", two, request(), []string{"a", "b"}, nil},
		{"IPv6", two, request(func(r *Request) { r.Family = V6 }), []string{"six"}, nil},
		{"as requested", two, request(requested("b", "a")), []string{"b", "a"}, nil},
		{"by CIDR", two, request(requested("10.1.0.0/16")), []string{"b"}, nil},
		{"by a CIDR with host bits", two, request(requested("10.1.2.3/16")), []string{"b"}, nil},
		{"by name and CIDR: once", two, request(requested("b", "10.1.0.0/16", "b")), []string{"b"}, nil},
		{"requested of the other family", two, request(requested("six", "a")), []string{"a"}, []string{"six: it is IPv6 and IPv4 is wanted"}},
		{"requested and not there", two, request(requested("x", "10.1.0.0/17", "10.0.0.0/99", "a")), []string{"a"}, []string{
			"x: there is no such pool", "10.1.0.0/17: there is no such pool", "10.0.0.0/99: neither the name of a pool nor a CIDR",
		}},
		{"an empty name", two, request(requested("")), nil, []string{": there is no such pool"}},

		{"being deleted", onePool(deleting), request(), nil, []string{"a: it is being deleted"}},
		{"disabled", onePool(disabled), request(requested("a")), nil, []string{"a: it is disabled (spec.disabled)"}},
		{"not admitted yet", []Pool{valid("a", "10.0.0.0/16", func(p *Pool) { p.Generation = 1 })}, request(), nil, []string{"a: it has not been admitted yet since it was created"}},
		{"admitted for an earlier generation", []Pool{valid("a", "10.0.0.0/16", was(ReasonOK), func(p *Pool) { p.Generation = 2 })}, request(), nil, []string{"a: it has not been admitted yet since"}},
		{"no finalizer", []Pool{valid("a", "10.0.0.0/16", was(ReasonOK), func(p *Pool) { p.Status.Finalizer = false })}, request(), nil, []string{"a: it has not been admitted yet: its finalizer"}},
		{
			"refused by admission", admitted(valid("a", "10.0.0.0/16"), valid("b", "10.0.0.0/24")), request(),
			[]string{"a"},
			[]string{"b: it is not admitted (CIDROverlap: 10.0.0.0/24 overlaps pool a (10.0.0.0/16)"},
		},
		{
			"case D10: overlap not yet seen by admission",
			[]Pool{valid("new", "10.0.0.0/24", born(2), was(ReasonOK)), valid("old", "10.0.0.0/16", born(1), was(ReasonOK))},
			request(),
			[]string{"old"},
			[]string{"new: it overlaps pool old (10.0.0.0/16)"},
		},
		{
			"case D10: a request does not lift the overlap",
			[]Pool{valid("new", "10.0.0.0/24", born(2), was(ReasonOK)), valid("old", "10.0.0.0/16", born(1), was(ReasonOK))},
			request(requested("new")),
			nil,
			[]string{"new: it overlaps pool old"},
		},

		{"Manual and not requested", onePool(manual), request(), nil, []string{"a: it serves only requests that name it (spec.assignmentMode Manual)"}},
		{"Manual and requested", onePool(manual), request(requested("a")), []string{"a"}, nil},
		{"Manual and requested by CIDR", onePool(manual), request(requested("10.0.0.0/16")), []string{"a"}, nil},

		{"default uses: Tunnel", onePool(), request(use(UseTunnel)), []string{"a"}, nil},
		{"default uses: not LoadBalancer", onePool(), request(use(UseLoadBalancer)), nil, []string{"a: it is not for the use LoadBalancer (spec.allowedUses [Workload Tunnel])"}},
		{"another use, requested", onePool(uses(UseTunnel)), request(requested("a")), nil, []string{"a: it is not for the use Workload"}},

		{"node selected", onePool(selectors("zone=a", "")), request(), []string{"a"}, nil},
		{"node not selected", onePool(selectors("zone=b", "")), request(), nil, []string{`a: spec.nodeSelector "zone=b" does not select node node-a`}},
		{"node not selected, requested", onePool(selectors("zone=b", "")), request(requested("a")), nil, []string{"a: spec.nodeSelector"}},
		{"node without labels", onePool(selectors("!gpu", "")), request(func(r *Request) { r.Node.Labels = map[string]string{} }), []string{"a"}, nil},
		{"node with unknown labels", onePool(selectors("!gpu", "")), request(func(r *Request) { r.Node.Labels = nil }), nil, []string{`a: spec.nodeSelector "!gpu" cannot be judged: the labels of node node-a are not known`}},
		{"namespace with unknown labels", onePool(selectors("", "!a")), request(func(r *Request) { r.Namespace.Labels = nil }), nil, []string{`a: spec.namespaceSelector "!a" cannot be judged`}},
		{"no node at all", onePool(selectors("!gpu", "")), request(func(r *Request) { r.Node = Node{} }), nil, []string{`a: spec.nodeSelector "!gpu" needs a node`}},
		{"namespace selected", onePool(selectors("", "team in (x, y)")), request(), []string{"a"}, nil},
		{"namespace not selected, requested", onePool(selectors("", "team=y")), request(requested("a")), nil, []string{`a: spec.namespaceSelector "team=y" does not select namespace shop`}},
		{"no namespace", onePool(selectors("", "!a")), request(func(r *Request) { r.Namespace = Namespace{} }), nil, []string{`a: spec.namespaceSelector "!a" needs a namespace`}},
		{
			"a selector nobody can read",
			[]Pool{valid("a", "10.0.0.0/16", was(ReasonOK), selectors("all()", ""))},
			request(),
			nil,
			[]string{`a: spec.nodeSelector "all()" cannot be read`},
		},

		{"gateway not needed", onePool(), request(), []string{"a"}, nil},
		{"gateway needed", onePool(), request(func(r *Request) { r.NeedGateway = true }), nil, []string{"a: it has no gateway, and the main plugin needs one; set spec.gateway"}},
		{"gateway needed and fixed", onePool(gatewayFixed), request(func(r *Request) { r.NeedGateway = true }), []string{"a"}, nil},
		{"gateway needed and first", onePool(gatewayFirst), request(func(r *Request) { r.NeedGateway = true }), []string{"a"}, nil},
		{"block mask, gateway first", onePool(gatewayFirst), request(func(r *Request) { r.NeedGateway, r.BlockMask = true, true }), []string{"a"}, nil},
		{"block mask, no gateway", onePool(), request(func(r *Request) { r.BlockMask = true }), []string{"a"}, nil},
		{"block mask, gateway fixed", onePool(gatewayFixed), request(func(r *Request) { r.BlockMask = true }), nil, []string{`a: mask "block" needs spec.gateway "first"`}},

		{
			"case E2: every pool with its reason",
			admitted(valid("a", "10.0.0.0/16", manual), valid("b", "10.1.0.0/16", disabled), valid("c", "10.2.0.0/16", selectors("zone=b", ""))), request(),
			nil,
			[]string{"a: it serves only", "b: it is disabled", "c: spec.nodeSelector"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Select(c.pools, c.r)
			if d := cmp.Diff(c.want, names(s.Pools)); d != "" {
				t.Errorf("pools (-want +got):\n%s", d)
			}
			var got []string
			for _, x := range s.Skipped {
				got = append(got, x.Pool+": "+x.Reason)
			}
			if !slices.EqualFunc(got, c.skipped, strings.HasPrefix) {
				t.Errorf("skipped\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.skipped, "\n  "))
			}
		})
	}
}

// TestSelectOrderOfChecks breaks everything at once and mends it step by step:
// the reason is always the first in the documented order.
func TestSelectOrderOfChecks(t *testing.T) {
	old := valid("old", "10.0.0.0/8", born(1), was(ReasonOK))
	p := valid("p", "10.0.0.0/16", born(2), was(ReasonInvalid), deleting, disabled, manual, gatewayFixed, uses(UseTunnel))
	p.Generation, p.Status.Finalizer = 2, false
	p.Spec.NodeSelector, p.Spec.NamespaceSelector = "zone=b", "team=y"
	pools := []Pool{old, p}
	r := request(func(r *Request) { r.Family, r.BlockMask, r.Requested = V6, true, []string{"p"} })
	q := &pools[1]
	for _, step := range []struct {
		reason string
		mend   func()
	}{
		{"it is IPv4", func() { r.Family = V4 }},
		{"it is being deleted", func() { q.Deleting = false }},
		{"it is disabled", func() { q.Spec.Disabled = false }},
		{"it has not been admitted yet since", func() { q.Status.ObservedGeneration = 2 }},
		{"it is not admitted (Invalid", func() { q.Status.Allocatable, q.Status.Reason = true, ReasonOK }},
		{"it has not been admitted yet: its finalizer", func() { q.Status.Finalizer = true }},
		{"it overlaps pool old", func() { pools = pools[1:]; q = &pools[0]; r.Requested = nil }},
		{"it serves only requests that name it", func() { r.Requested = []string{"p"} }},
		{"it is not for the use Workload", func() { q.Spec.AllowedUses = []Use{UseWorkload} }},
		{`mask "block"`, func() { r.BlockMask = false }},
		{"spec.nodeSelector", func() { q.Spec.NodeSelector = "zone=a" }},
		{"spec.namespaceSelector", func() { q.Spec.NamespaceSelector = "team=x" }},
	} {
		s := Select(pools, r)
		i := slices.IndexFunc(s.Skipped, func(x Skipped) bool { return x.Pool == "p" })
		if i < 0 || !strings.HasPrefix(s.Skipped[i].Reason, step.reason) {
			t.Fatalf("skipped %+v; want p for %q", s.Skipped, step.reason)
		}
		step.mend()
	}
	if s := Select(pools, r); len(s.Pools) != 1 || len(s.Skipped) != 0 {
		t.Errorf("with all mended: %+v", s)
	}
}

// TestSelectSaysWhatItNeeds: labels are asked for only where they decide.
func TestSelectSaysWhatItNeeds(t *testing.T) {
	unknown := func(r *Request) { r.Node.Labels, r.Namespace.Labels = nil, nil }
	for name, c := range map[string]struct {
		pool            Pool
		r               Request
		node, namespace bool
	}{
		"no selector":                    {valid("a", "10.0.0.0/16"), request(unknown), false, false},
		"nodeSelector":                   {valid("a", "10.0.0.0/16", selectors("zone=a", "")), request(unknown), true, false},
		"namespaceSelector":              {valid("a", "10.0.0.0/16", selectors("", "team=x")), request(unknown), false, true},
		"both: the node first":           {valid("a", "10.0.0.0/16", selectors("zone=a", "team=x")), request(unknown), true, false},
		"both, the node is known":        {valid("a", "10.0.0.0/16", selectors("zone=a", "team=x")), request(func(r *Request) { r.Namespace.Labels = nil }), false, true},
		"both, the node is not selected": {valid("a", "10.0.0.0/16", selectors("zone=b", "team=x")), request(func(r *Request) { r.Namespace.Labels = nil }), false, false},
		"known":                          {valid("a", "10.0.0.0/16", selectors("zone=b", "")), request(), false, false},
		"disabled":                       {valid("a", "10.0.0.0/16", selectors("zone=a", "team=x"), disabled), request(unknown), false, false},
		"Manual":                         {valid("a", "10.0.0.0/16", selectors("zone=a", ""), manual), request(unknown), false, false},
		"Manual, requested":              {valid("a", "10.0.0.0/16", selectors("zone=a", ""), manual), request(unknown, requested("a")), true, false},
		"no gateway and one is needed":   {valid("a", "10.0.0.0/16", selectors("zone=a", "")), request(unknown, func(r *Request) { r.NeedGateway = true }), false, false},
		"another family":                 {valid("a", "fd00::/64", selectors("zone=a", "")), request(unknown), false, false},
		"no namespace":                   {valid("a", "10.0.0.0/16", selectors("", "team=x")), request(func(r *Request) { r.Namespace = Namespace{} }), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := Select(admitted(c.pool), c.r)
			if s.NeedNode != c.node || s.NeedNamespace != c.namespace {
				t.Errorf("node %v, namespace %v; want %v, %v (%+v)", s.NeedNode, s.NeedNamespace, c.node, c.namespace, s.Skipped)
			}
		})
	}
}

// TestSelectAgreesWithAdmit (INV-13, case D10): right after admission the pools
// selected are exactly those admitted; whatever the statuses say, no two pools
// selected overlap, and every pool of the family is selected or skipped once.
func TestSelectAgreesWithAdmit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pools := drawPools(t)
		r := request(func(r *Request) { r.Family = rapid.SampledFrom([]Family{V4, V6}).Draw(t, "wanted") })

		before := slices.Clone(pools)
		s := Select(pools, r)
		if d := cmp.Diff(before, pools, comparers); d != "" {
			t.Fatalf("the argument changed (-before +after):\n%s", d)
		}
		told := names(s.Pools)
		for _, x := range s.Skipped {
			told = append(told, x.Pool)
		}
		slices.Sort(told)
		var all []string
		for _, p := range pools {
			if p.Family() == r.Family {
				all = append(all, p.Name)
			}
		}
		if !slices.Equal(told, all) {
			t.Fatalf("told about %v; want %v", told, all)
		}
		for i, p := range s.Pools {
			for _, q := range s.Pools[:i] {
				if p.Spec.CIDR.Overlaps(q.Spec.CIDR) {
					t.Fatalf("%s and %s overlap and both serve", p.Name, q.Name)
				}
			}
		}

		var want []string
		decided := Admit(pools, nil)
		for _, p := range decided {
			if p.Status.Allocatable && p.Family() == r.Family {
				want = append(want, p.Name)
			}
		}
		if got := names(Select(decided, r).Pools); !slices.Equal(got, want) {
			t.Fatalf("selected %v; admitted %v", got, want)
		}
	})
}

// FuzzRequested: whatever a network configuration names, each entry is answered
// by a pool or by a reason.
func FuzzRequested(f *testing.F) {
	for _, s := range []string{"a", "10.0.0.0/16", "10.0.0.1/16", "", "/", "::/0", "fe80::%eth0/64", "10.0.0.0/-1", "a/b"} {
		f.Add(s)
	}
	pools := admitted(valid("a", "10.0.0.0/16"), valid("b", "fd00::/64"))
	f.Fuzz(func(t *testing.T, want string) {
		s := Select(pools, request(requested(want)))
		if len(s.Pools)+len(s.Skipped) != 1 {
			t.Fatalf("%q: %+v", want, s)
		}
		if len(s.Pools) == 1 && want != "a" && !strings.HasSuffix(want, "/16") {
			t.Fatalf("%q selects %s", want, s.Pools[0].Name)
		}
	})
}

// A pool whose blocks have no room beside what the node reserves is skipped with a
// reason; the gateway "first" counts unless it is among the reserved.
func TestSelectRoomBesideReserved(t *testing.T) {
	tests := []struct {
		name       string
		size       int
		start, end int
		edit       func(*Pool)
		says       string
	}{
		{"nothing reserved, one address", 32, 0, 0, nil, ""},
		{"room for one", 30, 2, 1, nil, ""},
		{"none left", 30, 3, 1, nil, "its blocks of 4 are too small: node node-a reserves 4 addresses of each"},
		{"the gateway is the last one", 31, 0, 1, gatewayFirst, "too small"},
		{"the gateway is among the reserved", 31, 1, 0, gatewayFirst, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := Pool{Name: "p", Spec: Spec{CIDR: netip.MustParsePrefix("10.0.0.0/24"), BlockSize: tt.size}.WithDefaults()}
			if tt.edit != nil {
				tt.edit(&p)
			}
			r := request(func(r *Request) { r.ReservedStart, r.ReservedEnd = tt.start, tt.end })
			s := Select(admitted(p), r)
			switch {
			case tt.says == "" && len(s.Pools) != 1:
				t.Errorf("skipped: %v", s.Skipped)
			case tt.says != "" && (len(s.Pools) != 0 || !strings.Contains(s.Skipped[0].Reason, tt.says)):
				t.Errorf("selected %v, skipped %v; want a reason with %q", names(s.Pools), s.Skipped, tt.says)
			}
		})
	}
}
