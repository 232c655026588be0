// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

// The labels that queries select by. They are written together with the object
// and derived from it.
const (
	LabelPool  = Group + "/pool"
	LabelSpace = Group + "/space"
	LabelEmpty = Group + "/empty"
	LabelOwner = Group + "/owner"

	nodePrefix = "node." + Group + "/"

	// annotationPool holds the name of a pool that is no legal label.
	annotationPool = Group + "/pool"

	// AnnotationFence makes an object differ from itself, so that an API server writes
	// it. The next update drops it.
	AnnotationFence = Group + "/fence"
)

// own are the labels and annotations that this version writes, but for those of nodes.
var own = []string{LabelPool, LabelSpace, LabelEmpty, LabelOwner, annotationPool, AnnotationFence}

// NodeLabel returns the label key that a block carries for a node with its
// affinity or an allocation in it. It is hashed because node names may be longer
// than a label key.
func NodeLabel(node string) string { return nodePrefix + digest(node) }

// PoolLabel returns the value of LabelPool for a pool: its name, or a hash of a
// name that is no legal label, because it is too long for one.
func PoolLabel(pool string) string {
	if legalLabel(pool) {
		return pool
	}
	return digest(pool)
}

// OwnerLabel returns the value of LabelOwner for the owner of an affinity.
func OwnerLabel(o block.Affinity) string { return digest(o.String()) }

// Own reports whether key, of a label or annotation, is one that this version writes.
// All others belong to somebody else and are kept, also those of our domain: a newer
// version may select by them.
func Own(key string) bool {
	return slices.Contains(own, key) || strings.HasPrefix(key, nodePrefix)
}

func blockLabels(l block.Labels) map[string]string {
	m := map[string]string{
		LabelSpace: string(l.Space),
		LabelEmpty: strconv.FormatBool(l.Empty),
	}
	if l.Pool != "" {
		m[LabelPool] = PoolLabel(l.Pool)
	}
	for _, n := range l.Nodes {
		m[NodeLabel(n)] = ""
	}
	return m
}

func poolAnnotations(pool string) map[string]string {
	if PoolLabel(pool) == pool {
		return nil
	}
	return map[string]string{annotationPool: pool}
}

// poolName undoes PoolLabel.
func poolName(labels, annotations map[string]string) string {
	if full := annotations[annotationPool]; full != "" && PoolLabel(full) == labels[LabelPool] {
		return full
	}
	return labels[LabelPool]
}

// required returns the labels that q asks of an object, without its space. The
// table decides which fields of q count; see [datastore.Query].
func required(kind string, q datastore.Query) map[string]string {
	want := map[string]string{}
	if q.Pool != "" && (kind == KindBlock || kind == KindAffinity) {
		want[LabelPool] = PoolLabel(q.Pool)
	}
	if q.Node != "" && kind == KindBlock {
		want[NodeLabel(q.Node)] = ""
	}
	if q.Empty && kind == KindBlock {
		want[LabelEmpty] = "true"
	}
	if !q.Owner.IsZero() && kind == KindAffinity {
		want[LabelOwner] = OwnerLabel(q.Owner)
	}
	return want
}

// Match reports whether an object with these labels is selected by q.
func Match(kind string, labels map[string]string, q datastore.Query) bool {
	if kind == KindBlock && len(q.Space) > 0 && !slices.Contains(q.Space, block.Space(labels[LabelSpace])) {
		return false
	}
	for k, v := range required(kind, q) {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// LabelSelector returns q in the syntax of an API server's label selectors: it
// selects what Match does. Empty if q selects everything.
func LabelSelector(kind string, q datastore.Query) string {
	want := required(kind, q)
	var terms []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		terms = append(terms, k+"="+want[k])
	}
	if kind == KindBlock && len(q.Space) > 0 {
		var spaces []string
		for _, s := range q.Space {
			spaces = append(spaces, string(s))
		}
		terms = append(terms, LabelSpace+" in ("+strings.Join(spaces, ",")+")")
	}
	return strings.Join(terms, ",")
}

// Selects reports whether q selects at all among objects of this kind.
func Selects(kind string, q datastore.Query) bool {
	switch kind {
	case KindBlock:
		return q.Pool != "" || q.Node != "" || q.Empty || len(q.Space) > 0
	case KindAffinity:
		return q.Pool != "" || !q.Owner.IsZero()
	}
	return false
}

// Adopt puts the labels and annotations of o that are not ours into n: another
// writer's marks survive an update.
func Adopt(n, o map[string]string) map[string]string {
	out := maps.Clone(n)
	for k, v := range o {
		if !Own(k) {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}
