// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// stored is a form's block on the API server.
type stored struct {
	form
	object *unstructured.Unstructured
	made   int             // writes so far
	cpu    []time.Duration // of the API server for one write, by round
	bytes  int
}

func store(t *testing.T, f form) *stored {
	t.Helper()
	o, err := api.Resource(f.resource).Create(t.Context(), f.version(t, 0), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatalf("%s: %v", f.name, err)
	}
	t.Cleanup(func() {
		err := api.Resource(f.resource).Delete(context.WithoutCancel(t.Context()), o.GetName(), metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	return &stored{form: f, object: o}
}

// round writes the block n times and returns the API server's CPU for one write.
func (s *stored) round(t *testing.T, n int) time.Duration {
	t.Helper()
	next := make([]*unstructured.Unstructured, n)
	for i := range next {
		s.made++
		next[i] = s.version(t, s.made)
	}
	text, err := next[0].MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	s.bytes = len(text)
	before := cpuTime(t)
	for _, o := range next {
		o.SetUID(s.object.GetUID())
		o.SetResourceVersion(s.object.GetResourceVersion())
		got, err := api.Resource(s.resource).Update(t.Context(), o, metav1.UpdateOptions{})
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if got.GetResourceVersion() == s.object.GetResourceVersion() {
			t.Fatalf("%s: a write changed nothing", s.name)
		}
		s.object = got
	}
	return (cpuTime(t) - before) / time.Duration(n)
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	used, err := server.CPUTime()
	if err != nil {
		t.Fatal(err)
	}
	return used
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// Decision 0: a block has a line of text for each slot, because an API server pays for
// JSON nodes. The CPU of its process for one write of a /26, in turn for an empty block,
// a full one as it is stored, and a full one whose slots are objects with a schema.
func TestBlockWriteCPU(t *testing.T) {
	var all []*stored
	for _, f := range forms() {
		all = append(all, store(t, f))
	}
	for _, s := range all { // the first writes of a kind cost more: schemas are compiled
		s.round(t, 10)
	}
	for range *rounds {
		for _, s := range all {
			s.cpu = append(s.cpu, s.round(t, *writes))
		}
	}
	for _, s := range all {
		t.Attr("figures", fmt.Sprintf("API server CPU for one write of a /26, %s: median %s (%s to %s) over %d rounds of %d, %d bytes",
			s.name, milliseconds(median(s.cpu)), milliseconds(slices.Min(s.cpu)), milliseconds(slices.Max(s.cpu)), *rounds, *writes, s.bytes))
		if median(s.cpu) <= 0 {
			t.Errorf("%s: the API server used no CPU for %d writes", s.name, s.made)
		}
	}
	empty, lines, objects := median(all[0].cpu), median(all[1].cpu), median(all[2].cpu)
	t.Attr("figures", fmt.Sprintf("API server CPU for one write of a full /26: objects against lines %.1f times, lines against an empty block %.1f times",
		float64(objects)/float64(lines), float64(lines)/float64(empty)))
	if objects <= lines {
		t.Errorf("a write costs %v as lines and %v as objects: decision 0 does not hold", lines, objects)
	}
}
