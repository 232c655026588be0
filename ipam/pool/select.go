// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Node is the node a request is for; empty for a virtual owner. Nil labels are
// unknown ones: no selector but the empty one matches them, "!x" neither.
type Node struct {
	Name   string
	Labels map[string]string
}

// Namespace is the namespace of the owner; empty for owners without one. Nil
// labels are unknown ones, as for Node.
type Namespace struct {
	Name   string
	Labels map[string]string
}

// Request is what a caller wants addresses for.
type Request struct {
	Family      Family
	Requested   []string // names or CIDRs of pools, best first; empty: every Automatic pool
	Use         Use
	Node        Node
	Namespace   Namespace
	NeedGateway bool // the main plugin cannot work without a gateway
	BlockMask   bool // addresses are given with the mask of their block
	// ReservedStart and ReservedEnd are how many ordinals at both ends of each block
	// the node keeps for itself; a block must have room for more.
	ReservedStart, ReservedEnd int
}

// Skipped says why a pool, or a requested name or CIDR, serves nothing.
type Skipped struct{ Pool, Reason string }

// Selection is the answer to a [Request].
type Selection struct {
	Pools   []Pool    // in the order to try them
	Skipped []Skipped // in the same order
	// NeedNode and NeedNamespace: a pool was skipped for nothing but labels of the
	// node or the namespace that are not known. With them it may serve.
	NeedNode, NeedNamespace bool
}

// Select is the one function that decides which pools may serve a request
// (INV-13). The pools come in the requested order, else by name. A request lifts
// only assignmentMode Manual; the selectors always apply. Pools of the other
// family are left out without a word unless they were requested.
//
// The first of these checks that fails is the reason for skipping a pool: family;
// not being deleted; not disabled; admitted for its generation; no overlap with a
// pool that goes first, decided again over the pools given, because a new pool may
// not have been judged yet (case D10); assignmentMode; allowedUses; gateway; room in
// a block beside what the node reserves; nodeSelector; namespaceSelector. What the
// caller may have to look up comes last, see [Selection].
func Select(pools []Pool, r Request) Selection {
	winner := contest(pools)
	byName := make([]int, len(pools))
	for i := range byName {
		byName[i] = i
	}
	slices.SortStableFunc(byName, func(a, b int) int { return cmp.Compare(pools[a].Name, pools[b].Name) })

	var s Selection
	judge := func(i int) {
		reason := ineligible(pools[i], winner[i], r)
		if reason == "" {
			reason = s.unselected(pools[i], r)
		}
		if reason != "" {
			s.Skipped = append(s.Skipped, Skipped{pools[i].Name, reason})
			return
		}
		s.Pools = append(s.Pools, pools[i])
	}
	if len(r.Requested) == 0 {
		for _, i := range byName {
			if pools[i].Family() == r.Family {
				judge(i)
			}
		}
		return s
	}
	seen := make(map[int]bool, len(pools))
	for _, want := range r.Requested {
		match, reason := matcher(want)
		found := false
		for _, i := range byName {
			if reason != "" || !match(pools[i]) {
				continue
			}
			found = true
			if !seen[i] {
				seen[i] = true
				judge(i)
			}
		}
		if !found {
			s.Skipped = append(s.Skipped, Skipped{want, cmp.Or(reason, "there is no such pool")})
		}
	}
	return s
}

// matcher reads a requested name or CIDR. reason is set when it is neither.
func matcher(want string) (match func(Pool) bool, reason string) {
	if !strings.Contains(want, "/") { // which no name contains
		return func(p Pool) bool { return p.Name == want }, ""
	}
	c, err := netip.ParsePrefix(want)
	if err != nil {
		return nil, "neither the name of a pool nor a CIDR"
	}
	return func(p Pool) bool { return p.Spec.CIDR == c.Masked() }, ""
}

// ineligible returns why p cannot serve r, whatever is known of node and namespace,
// or "".
func ineligible(p Pool, winner *Pool, r Request) string {
	switch s := p.Spec; {
	case p.Family() != r.Family:
		return fmt.Sprintf("it is %v and %v is wanted", p.Family(), r.Family)
	case p.Deleting:
		return "it is being deleted"
	case s.Disabled:
		return "it is disabled (spec.disabled)"
	case p.Status.ObservedGeneration != p.Generation:
		return "it has not been admitted yet since it was created or changed"
	case !p.Status.Allocatable:
		return fmt.Sprintf("it is not admitted (%s: %s)", p.Status.Reason, p.Status.Message)
	case !p.Status.Finalizer:
		return "it has not been admitted yet: its finalizer is missing"
	case winner != nil:
		return fmt.Sprintf("it overlaps pool %s (%v), which goes first", winner.Name, winner.Spec.CIDR)
	case len(r.Requested) == 0 && s.AssignmentMode == Manual:
		return "it serves only requests that name it (spec.assignmentMode Manual)"
	case !slices.Contains(s.AllowedUses, r.Use):
		return fmt.Sprintf("it is not for the use %s (spec.allowedUses %v)", r.Use, s.AllowedUses)
	}
	return unroutable(p, r)
}

// unselected returns which selector of p does not hold, or "", and notes in s what
// would have to be known. A pool that does not select the node needs nothing more.
func (s *Selection) unselected(p Pool, r Request) string {
	reason, unknown := unselected("spec.nodeSelector", p.Spec.NodeSelector, "node", r.Node.Name, r.Node.Labels)
	if reason != "" {
		s.NeedNode = s.NeedNode || unknown
		return reason
	}
	reason, unknown = unselected("spec.namespaceSelector", p.Spec.NamespaceSelector, "namespace", r.Namespace.Name, r.Namespace.Labels)
	s.NeedNamespace = s.NeedNamespace || unknown
	return reason
}

// unselected returns why a selector does not hold, or "", and whether that is because
// the labels are unknown. What is not known is not selected: "!key" must not hold for
// a namespace nobody has named.
func unselected(field, selector, kind, name string, have labels.Set) (reason string, unknown bool) {
	sel, err := labels.Parse(selector)
	switch {
	case err != nil:
		return fmt.Sprintf("%s %q cannot be read: %v", field, selector, err), false
	case sel.Empty():
		return "", false
	case name == "":
		return fmt.Sprintf("%s %q needs a %s, and the request has none", field, selector, kind), false
	case have == nil:
		return fmt.Sprintf("%s %q cannot be judged: the labels of %s %s are not known here", field, selector, kind, name), true
	case !sel.Matches(have):
		return fmt.Sprintf("%s %q does not select %s %s", field, selector, kind, name), false
	}
	return "", false
}

// unroutable returns why addresses of p would not work under the main plugin.
func unroutable(p Pool, r Request) string {
	switch {
	case r.NeedGateway && !p.HasGateway():
		return "it has no gateway, and the main plugin needs one; set spec.gateway"
	case r.BlockMask && p.Spec.Gateway.Addr.IsValid():
		return `mask "block" needs spec.gateway "first": a fixed gateway is outside most blocks`
	}
	return tooSmall(p, r)
}

// tooSmall returns why a block of p has nothing left beside what the node reserves
// of each block and the gateway "first".
func tooSmall(p Pool, r Request) string {
	reserved, gateway := r.ReservedStart+r.ReservedEnd, 0
	if reserved == 0 {
		return ""
	}
	if p.Spec.Gateway.First && r.ReservedStart == 0 {
		gateway = 1
	}
	size := 1 << min(p.Spec.CIDR.Addr().BitLen()-p.Spec.BlockSize, 30)
	if size > reserved+gateway {
		return ""
	}
	return fmt.Sprintf("its blocks of %d are too small: node %s reserves %d addresses of each; use a pool with a larger block (a lower spec.blockSize)",
		size, r.Node.Name, reserved)
}

// Named reports whether one of the requested names or CIDRs is p's; an empty list
// names every pool.
func (p Pool) Named(requested []string) bool {
	return len(requested) == 0 || slices.ContainsFunc(requested, func(want string) bool {
		match, reason := matcher(want)
		return reason == "" && match(p)
	})
}
