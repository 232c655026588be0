// SPDX-License-Identifier: Apache-2.0

package block

import (
	"fmt"
	"strings"
)

// AffinityType is the kind of owner that holds a block.
type AffinityType string

// Host affinities belong to a node, virtual ones to an owner without a node
// (for example "load-balancer").
const (
	HostAffinity    AffinityType = "host"
	VirtualAffinity AffinityType = "virtual"
)

// Affinity is a claim on a block. The zero value is no affinity. An empty type
// with a name reads as host.
type Affinity struct {
	Type AffinityType
	Name string
}

// Host returns the affinity of a node.
func Host(node string) Affinity { return Affinity{Type: HostAffinity, Name: node} }

// IsZero reports whether nobody has claimed the block.
func (a Affinity) IsZero() bool { return a.Name == "" }

// String returns "host:<node>", "virtual:<name>" or "" for none.
func (a Affinity) String() string {
	if a.IsZero() {
		return ""
	}
	if a.Type == "" {
		return string(HostAffinity) + ":" + a.Name
	}
	return string(a.Type) + ":" + a.Name
}

// ParseAffinity reads what [Affinity.String] writes.
func ParseAffinity(s string) (Affinity, error) {
	if s == "" {
		return Affinity{}, nil
	}
	t, name, ok := strings.Cut(s, ":")
	if !ok || name == "" {
		return Affinity{}, fmt.Errorf("affinity %q: want host:<node> or virtual:<name>", s)
	}
	switch AffinityType(t) {
	case HostAffinity, VirtualAffinity:
		return Affinity{Type: AffinityType(t), Name: name}, nil
	case "":
		return Host(name), nil
	}
	return Affinity{}, fmt.Errorf("affinity %q: type %q is neither host nor virtual", s, t)
}
