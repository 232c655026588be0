// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/test/fixture"
)

// slotsOf are a block's lines as they are stored.
func slotsOf(t *testing.T, o *unstructured.Unstructured) []string {
	t.Helper()
	lines, _, err := unstructured.NestedStringSlice(o.Object, "spec", "slots")
	must(t, err)
	return lines
}

func setSpec(t *testing.T, o *unstructured.Unstructured, field string, value any) {
	t.Helper()
	must(t, unstructured.SetNestedField(o.Object, value, "spec", field))
}

// lineOf is the line of a container.
func lineOf(t *testing.T, o *unstructured.Unstructured, s fixture.Sandbox) string {
	t.Helper()
	lines := slotsOf(t, o)
	i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "cid="+s.ContainerID) })
	if i < 0 {
		t.Fatalf("no line of %s in %q", s.Pod, lines)
	}
	return lines[i]
}

// Two versions of the binaries share a block: what the newer one wrote in it survives
// what this one does, down to the letter.
func TestNewerFieldsSurvive(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.0.0.0/29, blockSize: 29"))
	n := c.node("node-a", nil)
	conf, kept, comes := n.conf(nil, nil), c.pod("kept", nil), c.pod("comes", nil)
	n.add(conf, kept)

	name := c.blocks()[0].Key
	o := c.object(v1alpha1.KindBlock, v1alpha1.BlockName(name))
	newer := lineOf(t, o, kept) + " future=1 sticky=until%202027"
	setSpec(t, o, "slots", []any{newer})
	extra := map[string]any{"of": []any{"a", int64(1), map[string]any{"deep": true}}}
	setSpec(t, o, "newField", extra)
	o.SetAnnotations(map[string]string{"example.com/note": "theirs"})
	c.write(v1alpha1.KindBlock, o)

	survives := func(when string) {
		t.Helper()
		o := c.object(v1alpha1.KindBlock, v1alpha1.BlockName(name))
		if got := lineOf(t, o, kept); got != newer {
			t.Errorf("%s: the line is %q, want %q", when, got, newer)
		}
		got, _, err := unstructured.NestedFieldNoCopy(o.Object, "spec", "newField")
		if d := cmp.Diff(any(extra), got); d != "" || err != nil {
			t.Errorf("%s: spec.newField (-want +got), %v:\n%s", when, err, d)
		}
		if o.GetAnnotations()["example.com/note"] != "theirs" {
			t.Errorf("%s: annotations %v", when, o.GetAnnotations())
		}
	}
	n.add(conf, comes)
	survives("after an ADD of another pod")
	n.add(conf, kept)
	survives("after a repeated ADD of its own")
	n.ok("DEL", conf, comes)
	survives("after a DEL of another pod")
	n.ok("DEL", conf, kept)
	c.counts(0)
	if _, there, _ := unstructured.NestedFieldNoCopy(c.object(v1alpha1.KindBlock, v1alpha1.BlockName(name)).Object, "spec", "newField"); !there {
		t.Error("spec.newField is gone after the DEL")
	}
}

// A block of a newer format is read and never written: ADD goes elsewhere or says
// which version it takes, DEL of an address in it is an error, to be tried again.
func TestNewerFormatIsNotWritten(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.0.0.0/29, blockSize: 30"))
	n := c.node("node-a", nil)
	conf, kept := n.conf(nil, nil), c.pod("kept", nil)
	res := n.add(conf, kept)
	name := v1alpha1.BlockName(c.blocks()[0].Key)
	c.patch(v1alpha1.KindBlock, name, `{"spec":{"format":2}}`)
	before := c.object(v1alpha1.KindBlock, name)

	var others []fixture.Sandbox
	for _, pod := range []string{"a", "b", "c", "d"} { // the other block's four
		others = append(others, c.pod(pod, nil))
		n.add(conf, others[len(others)-1])
	}
	n.refused("ADD", conf, c.pod("e", nil), 11, "no address is left", "format 2")
	n.refused("ADD", conf, again(kept), 11, "format 2") // what it had cannot be taken over
	prev := object{"prevResult": object{"cniVersion": "1.1.0", "ips": []object{{"address": res.IPs[0].Address.String()}}}}
	n.ok("CHECK", n.conf(nil, prev), kept)
	sameAddrs(t, "a repeated ADD, which is a read", res.Addrs(), n.add(conf, kept).Addrs())
	n.refused("DEL", conf, kept, 11, "format 2", "10.0.0.")
	n.refused("GC", n.conf(nil, object{"cni.dev/valid-attachments": []object{}}), fixture.Sandbox{}, 11, "format 2")
	c.counts(1) // GC has released the others all the same (case R14)

	if d := cmp.Diff(before.Object, c.object(v1alpha1.KindBlock, name).Object); d != "" {
		t.Errorf("the block was written (-before +after):\n%s", d)
	}
	c.patch(v1alpha1.KindBlock, name, `{"spec":{"format":1}}`)
	n.ok("DEL", conf, kept)
	c.counts(0)
}

// Case R15: objects that an older version wrote lack fields. Each has a default on
// read, and the next write heals it.
func TestOlderObjects(t *testing.T) {
	c := newCluster(t)
	c.apply("apiVersion: ipam.allod.io/v1alpha1\nkind: IPAMConfiguration\nmetadata: {name: default}\nspec: {}\n")
	c.pools(poolManifest("v4", "cidr: 10.0.0.0/24")) // neither size nor uses nor modes
	spec, _, err := unstructured.NestedMap(c.object(v1alpha1.KindPool, "v4").Object, "spec")
	if err != nil || len(spec) != 1 {
		t.Errorf("the pool has %v; want its CIDR alone, or this tests nothing", spec)
	}
	n := c.node("node-a", nil)
	conf, a, b := n.conf(nil, nil), c.pod("a", nil), c.pod("b", nil)
	n.ok("STATUS", conf, fixture.Sandbox{})
	n.add(conf, a)
	cidr := c.blocks()[0].Key
	if cidr.Bits() != 26 {
		t.Errorf("block %s; want the default size", cidr)
	}

	o := c.object(v1alpha1.KindBlock, v1alpha1.BlockName(cidr))
	unstructured.RemoveNestedField(o.Object, "spec", "claimedAt")
	var words []string
	for _, w := range strings.Fields(lineOf(t, o, a)) {
		if !strings.HasPrefix(w, "since=") {
			words = append(words, w)
		}
	}
	setSpec(t, o, "slots", []any{strings.Join(words, " ")})
	c.write(v1alpha1.KindBlock, o)
	n.add(conf, b)
	n.add(conf, a)
	c.counts(2)
	if o := c.object(v1alpha1.KindBlock, v1alpha1.BlockName(cidr)); strings.Contains(lineOf(t, o, a), "since=") || !strings.Contains(lineOf(t, o, b), "since=") {
		t.Errorf("lines %q; want a time in the one that was written now", slotsOf(t, o))
	}
	for _, s := range []fixture.Sandbox{a, b} {
		n.ok("DEL", conf, s)
	}
	c.counts(0)
	c.settled()
}
