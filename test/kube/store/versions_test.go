// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// theBlock is the one block there is, as the API server has it.
func theBlock(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	l, err := raw.Resource(v1alpha1.Resource(v1alpha1.KindBlock)).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(l.Items) != 1 {
		t.Fatalf("%d blocks, %v; want 1", len(l.Items), err)
	}
	return &l.Items[0]
}

// lineOf returns the line of a container in a block, and its place.
func lineOf(t *testing.T, o *unstructured.Unstructured, container string) (lines []string, at int) {
	t.Helper()
	lines, _, err := unstructured.NestedStringSlice(o.Object, "spec", "slots")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range lines {
		if strings.Contains(line+" ", " cid="+container+" ") {
			return lines, i
		}
	}
	t.Fatalf("no line of %s in %q", container, lines)
	return nil, 0
}

func attach(t *testing.T, lib *ipam.Client, id string) error {
	t.Helper()
	_, err := lib.Attach(t.Context(), request("node-a", id, 1))
	return err
}

func detachOf(ctx context.Context, lib *ipam.Client, id string) error {
	_, err := lib.Detach(ctx, ipam.DetachRequest{
		Attachment: request("node-a", id, 1).Owner.Attachment(), Namespace: "shop", Pod: id, PodUID: id, Node: "node-a",
	})
	return err
}

// Case R15: two versions share a block. What the newer one wrote into a line and into
// the spec survives what the older one, this one, does to other lines; once the newer
// one raises the format, this one reads and no longer writes.
func TestTwoVersionsShareABlock(t *testing.T) {
	s, _ := open(t)
	admittedPool(t, s, "10.0.0.0/29", 29)
	lib, _ := process(t)
	for _, id := range []string{"one", "two"} {
		if err := attach(t, lib, id); err != nil {
			t.Fatal(err)
		}
	}
	o := theBlock(t)
	lines, at := lineOf(t, o, "one")
	const added = " colour=green%20 size= priority=7"
	lines[at] += added
	newer := lines[at]
	err := errors.Join(
		unstructured.SetNestedStringSlice(o.Object, lines, "spec", "slots"),
		unstructured.SetNestedField(o.Object, map[string]any{"zone": "b"}, "spec", "placement"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, v1alpha1.KindBlock, o)

	if err := attach(t, lib, "three"); err != nil {
		t.Fatal(err)
	}
	if err := detachOf(t.Context(), lib, "two"); err != nil {
		t.Fatal(err)
	}
	o = theBlock(t)
	lines, at = lineOf(t, o, "one")
	if lines[at] != newer {
		t.Errorf("line of the newer version:\n%s\nwant\n%s", lines[at], newer)
	}
	if zone, _, err := unstructured.NestedString(o.Object, "spec", "placement", "zone"); zone != "b" {
		t.Errorf("field of the newer version: %q, %v; want b", zone, err)
	}

	if err := unstructured.SetNestedField(o.Object, int64(block.Format+1), "spec", "format"); err != nil {
		t.Fatal(err)
	}
	rev := write(t, v1alpha1.KindBlock, o).GetResourceVersion()
	for what, err := range map[string]error{
		"ADD": attach(t, lib, "four"), "DEL": detachOf(t.Context(), lib, "one"),
	} {
		if err == nil || !strings.Contains(err.Error(), "format 2") {
			t.Errorf("%s in a block of a newer format: %v; want an error that names format 2", what, err)
		}
	}
	if now := theBlock(t).GetResourceVersion(); now != rev {
		t.Errorf("a block of a newer format was written: revision %s, then %s", rev, now)
	}
	a, err := lib.Attach(t.Context(), request("node-a", "one", 1)) // an answer from what is there
	if err != nil || len(a.V4) != 1 {
		t.Errorf("ADD of an attachment that has its address: %v, %v; want it read", a.V4, err)
	}
}
