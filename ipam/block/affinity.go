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

// unreadableAffinity stands for stored text that names nobody ("host:"). It is
// somebody's all the same (INV-2): it is not zero, equals no owner's affinity, and
// is written back as it was. The text ends in a colon, which no type does.
func unreadableAffinity(text string) Affinity { return Affinity{Type: AffinityType(text)} }

func (a Affinity) unreadable() bool {
	return a.Name == "" && strings.HasSuffix(string(a.Type), ":")
}

// IsZero reports whether nobody has claimed the block.
func (a Affinity) IsZero() bool { return a.Name == "" && !a.unreadable() }

// String returns "host:<node>", "virtual:<name>" or "" for none.
func (a Affinity) String() string {
	switch a = a.normal(); {
	case a.IsZero():
		return ""
	case a.unreadable():
		return string(a.Type)
	}
	return string(a.Type) + ":" + a.Name
}

// normal gives an empty type its meaning.
func (a Affinity) normal() Affinity {
	switch {
	case a.IsZero():
		return Affinity{}
	case a.Type == "":
		return Host(a.Name)
	}
	return a
}

// ParseAffinity reads what [Affinity.String] writes. A bare name, or one with an
// empty type, reads as host; a type this version does not know is kept.
func ParseAffinity(s string) (Affinity, error) {
	if s == "" {
		return Affinity{}, nil
	}
	t, name, ok := strings.Cut(s, ":")
	if !ok {
		return Host(s), nil
	}
	if name == "" {
		return Affinity{}, fmt.Errorf("affinity %q names nobody; want host:<node> or virtual:<name>", s)
	}
	if t == "" {
		return Host(name), nil
	}
	return Affinity{Type: AffinityType(t), Name: name}, nil
}
