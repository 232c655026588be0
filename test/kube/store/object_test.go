// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kubestore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

var (
	epoch = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	cidr  = netip.MustParsePrefix("10.64.0.8/29")
)

func newBlock(t *testing.T, node string) block.Block {
	t.Helper()
	b, err := block.New(cidr, block.Host(node), 7, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return b.Relabel("v4", nil)
}

func create[K comparable, V any](t *testing.T, table datastore.Table[K, V], k K, v V) datastore.Entry[K, V] {
	t.Helper()
	e, err := table.Create(t.Context(), k, v)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// foreign marks o as other writers would.
func foreign(o *unstructured.Unstructured) {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels["example.org/team"] = "blue"
	annotations["example.org/note"] = `<&> "é"`
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	o.SetFinalizers([]string{"example.org/hold"})
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "11111111-1111-4111-8111-111111111111"}})
}

// marks is what foreign wrote, and the status.
func marks(o *unstructured.Unstructured) map[string]any {
	status, _, _ := unstructured.NestedFieldCopy(o.Object, "status")
	return map[string]any{
		"label": o.GetLabels()["example.org/team"], "annotation": o.GetAnnotations()["example.org/note"],
		"finalizers": o.GetFinalizers(), "owners": o.GetOwnerReferences(), "status": status,
	}
}

// survives marks the object, reads it in each way, and writes it with another value.
func survives[K comparable, V any](t *testing.T, table datastore.Table[K, V], kind, name string, k K, v V, other func(V) V) {
	t.Helper()
	create(t, table, k, v)
	o := object(t, kind, name)
	foreign(o)
	if kind == v1alpha1.KindBlock {
		future := map[string]any{"b": int64(1), "a": []any{nil, "x"}}
		if err := unstructured.SetNestedField(o.Object, future, "spec", "future"); err != nil {
			t.Fatal(err)
		}
	}
	want := marks(write(t, kind, o))
	t.Cleanup(func() { // the finalizer holds the object
		o := object(t, kind, name)
		o.SetFinalizers(nil)
		if _, err := raw.Resource(v1alpha1.Resource(kind)).Update(context.Background(), o, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	})
	reads := map[string]func() (datastore.Entry[K, V], error){
		"get": func() (datastore.Entry[K, V], error) { return table.Get(t.Context(), k) },
		"list": func() (datastore.Entry[K, V], error) {
			es, err := table.List(t.Context(), datastore.Query{})
			if err != nil || len(es) != 1 {
				t.Fatalf("%s: list: %d, %v; want 1", kind, len(es), err)
			}
			return es[0], nil
		},
		"watch": func() (datastore.Entry[K, V], error) {
			for c, err := range table.Watch(t.Context()) {
				return c.Entry, err
			}
			return datastore.Entry[K, V]{}, errors.New("nothing seen")
		},
	}
	for how, read := range reads {
		e, err := read()
		if err != nil {
			t.Fatalf("%s: %s: %v", kind, how, err)
		}
		e.Value = other(e.Value)
		if e, err = table.Update(t.Context(), e); err != nil {
			t.Fatalf("%s: update after %s: %v", kind, how, err)
		}
		e.Value = other(e.Value)
		if _, err = table.Update(t.Context(), e); err != nil { // from what an update returned
			t.Fatalf("%s: second update after %s: %v", kind, how, err)
		}
		now := object(t, kind, name)
		if d := cmp.Diff(want, marks(now)); d != "" {
			t.Errorf("%s: update after %s (-want +got):\n%s", kind, how, d)
		}
		if kind == v1alpha1.KindBlock {
			got, _, _ := unstructured.NestedFieldCopy(now.Object, "spec", "future")
			if d := cmp.Diff(map[string]any{"b": int64(1), "a": []any{nil, "x"}}, got); d != "" {
				t.Errorf("unknown field of a block, update after %s (-want +got):\n%s", how, d)
			}
		}
	}
}

// Case R15: what others wrote into our objects survives our writes.
func TestWhatOthersWroteSurvives(t *testing.T) {
	s, _ := open(t)
	st := s.Store()
	seq := uint64(0)
	survives(t, st.Blocks, v1alpha1.KindBlock, v1alpha1.BlockName(cidr), cidr, newBlock(t, "node-a"), func(b block.Block) block.Block {
		return b.Fence(epoch)
	})
	k := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: cidr}
	survives(t, st.Affinities, v1alpha1.KindAffinity, v1alpha1.AffinityName(k), k, datastore.Affinity{State: datastore.Pending, Pool: "v4"},
		func(a datastore.Affinity) datastore.Affinity {
			seq++
			a.BlockSeq = seq
			return a
		})
	survives(t, st.Handles, v1alpha1.KindHandle, "h", "h", datastore.Handle{}, func(h datastore.Handle) datastore.Handle {
		h.Releasing = !h.Releasing
		return h
	})
	p := pool.Pool{Name: "v4", Spec: pool.Spec{CIDR: netip.MustParsePrefix("10.64.0.0/16")}}
	survives(t, st.Pools, v1alpha1.KindPool, "v4", "v4", p, func(p pool.Pool) pool.Pool {
		p.Spec.NATOutgoing = !p.Spec.NATOutgoing
		return p
	})
	r := pool.Reservation{Name: "r", CIDRs: []netip.Prefix{cidr}}
	survives(t, st.Reservations, v1alpha1.KindReservation, "r", "r", r, func(r pool.Reservation) pool.Reservation {
		r.CIDRs = append(r.CIDRs, cidr)
		return r
	})
	survives(t, st.Config, v1alpha1.KindConfiguration, "default", "default", datastore.ConfigDefaults(), func(c datastore.Config) datastore.Config {
		c.MaxBlocksPerHost++
		return c
	})
}

// A write keeps what admission decided, and does not decide itself.
func TestStatusOfAPoolIsNotTheWriters(t *testing.T) {
	s, _ := open(t)
	p := pool.Pool{Name: "v4", Spec: pool.Spec{CIDR: netip.MustParsePrefix("10.64.0.0/16")}}
	p.Status = pool.Status{Finalizer: true, Allocatable: true, Reason: "Mine", ObservedGeneration: 1}
	if e := create(t, s.Store().Pools, "v4", p); e.Value.Status != (pool.Status{}) {
		t.Errorf("created with status %+v; want none", e.Value.Status)
	}
	admitted := admit(t, s, "v4")
	admitted.Value.Spec.Disabled = true
	admitted.Value.Status = pool.Status{Reason: "Mine"}
	e, err := s.Store().Pools.Update(t.Context(), admitted)
	if err != nil {
		t.Fatal(err)
	}
	if st := e.Value.Status; !st.Allocatable || !st.Finalizer || st.Reason != pool.ReasonOK || e.Value.Generation != 2 {
		t.Errorf("after an update: %+v at generation %d; want what admission wrote", st, e.Value.Generation)
	}
}

// Labels that no longer hold go; those of others stay.
func TestLabelsFollowTheBlock(t *testing.T) {
	s, _ := open(t)
	e := create(t, s.Store().Blocks, cidr, newBlock(t, "node-a"))
	for _, node := range []string{"node-b", ""} {
		e.Value = e.Value.WithAffinity(block.Host(node), epoch)
		if node == "" {
			e.Value = e.Value.WithAffinity(block.Affinity{}, epoch)
		}
		var err error
		if e, err = s.Store().Blocks.Update(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		for _, n := range []string{"node-a", "node-b"} {
			if _, has := object(t, v1alpha1.KindBlock, v1alpha1.BlockName(cidr)).GetLabels()[v1alpha1.NodeLabel(n)]; has != (n == node) {
				t.Errorf("block of %q has the label of %s: %v", node, n, has)
			}
		}
	}
}

// Two versions of the binaries: a block of a newer format is read, never written, and
// the refusal names the version.
func TestNewerFormatIsReadOnly(t *testing.T) {
	s, c := open(t)
	create(t, s.Store().Blocks, cidr, newBlock(t, "node-a"))
	o := object(t, v1alpha1.KindBlock, v1alpha1.BlockName(cidr))
	if err := unstructured.SetNestedField(o.Object, int64(block.Format+41), "spec", "format"); err != nil {
		t.Fatal(err)
	}
	write(t, v1alpha1.KindBlock, o)
	e, err := s.Store().Blocks.Get(t.Context(), cidr)
	if err != nil || e.Value.Affinity != block.Host("node-a") {
		t.Fatalf("read: %v, %v", e.Value.Affinity, err)
	}
	older := e
	older.Value = newBlock(t, "node-b") // a value that does not know where it came from
	c.take()
	_, update := s.Store().Blocks.Update(t.Context(), e)
	_, replace := s.Store().Blocks.Update(t.Context(), older)
	for what, err := range map[string]error{"update": update, "replace": replace, "delete": s.Store().Blocks.Delete(t.Context(), e)} {
		if !errors.Is(err, block.ErrFormat) || !errors.Is(err, datastore.ErrRefused) || !strings.Contains(err.Error(), "42") {
			t.Errorf("%s: %v; want %v naming 42", what, err, block.ErrFormat)
		}
	}
	if made := c.take(); len(made) > 0 {
		t.Errorf("calls for what is refused: %q", made)
	}
}

// Case D15: one bad object does not stop the others. The API server refuses an object
// under another name than its content has, but it cannot tell a wrong hash in a name.
func TestMisnamedObjectIsLeftOut(t *testing.T) {
	empty(t)
	var log bytes.Buffer
	s, _ := client(t, server.Config(), kubestore.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	k := datastore.AffinityKey{Owner: block.Affinity{Type: block.VirtualAffinity, Name: "load-balancer"}, CIDR: cidr}
	e := create(t, s.Store().Affinities, k, datastore.Affinity{})
	o := object(t, v1alpha1.KindAffinity, v1alpha1.AffinityName(k))
	o.SetResourceVersion("")
	o.SetUID("")
	o.SetName("by-hand")
	_, err := raw.Resource(v1alpha1.Resource(v1alpha1.KindAffinity)).Create(t.Context(), o, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "an affinity is named after its owner and its CIDR") {
		t.Errorf("an affinity named by hand: %v; want it refused by its rule", err)
	}
	o.SetName("by-hand-" + strings.Repeat("a", 52))
	write(t, v1alpha1.KindAffinity, o)
	es, err := s.Store().Affinities.List(t.Context(), datastore.Query{Owner: k.Owner})
	if err != nil || len(es) != 1 || es[0].UID != e.UID {
		t.Errorf("list: %v, %v; want the one under its own name", es, err)
	}
	if !strings.Contains(log.String(), "by-hand") {
		t.Errorf("log %q does not name the object that is left out", log.String())
	}
	log.Reset()
	if es, err = s.Store().Affinities.List(t.Context(), datastore.Query{Owner: k.Owner, Strict: true}); err == nil || !strings.Contains(err.Error(), "by-hand") {
		t.Errorf("strict list: %v, %v; want an error that names the object", es, err)
	}
	if log.Len() > 0 {
		t.Errorf("log of a strict list: %s", log.String())
	}
	for c, err := range s.Store().Affinities.Watch(t.Context()) {
		if err != nil || c.Kind == datastore.Synced {
			if err != nil || !strings.Contains(log.String(), "by-hand") {
				t.Errorf("watch: %v, log %q", err, log.String())
			}
			break
		}
		if c.Entry.UID != e.UID {
			t.Errorf("watch yields %+v", c)
		}
	}
}
