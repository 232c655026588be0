// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// Raw has every object, also those that cannot be read, page by page.
func TestRaw(t *testing.T) {
	s, f := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 0 {
			fmt.Fprint(w, list("7", "more", handle("a", "1"), `{"metadata":{"name":"b"},"spec":{}}`))
			return
		}
		fmt.Fprint(w, list("7", "", handle("c", "1")))
	})
	var seen []int
	got, err := s.Raw(t.Context(), v1alpha1.KindHandle, func(n int) { seen = append(seen, n) })
	if err != nil || len(got) != 3 || !strings.Contains(string(got[1]), `"spec":{}`) {
		t.Errorf("raw: %s, %v", got, err)
	}
	if !slices.Equal(seen, []int{2, 3}) {
		t.Errorf("progress %v", seen)
	}
	if want := []string{"GET ipamhandles?limit=2", "GET ipamhandles?continue=more&limit=2"}; !slices.Equal(f.made(), want) {
		t.Errorf("calls %q", f.made())
	}
	if _, err := s.Raw(t.Context(), "Pod", nil); err == nil {
		t.Error("a kind that is not ours is listed")
	}
}

// A dry run marks every write, and nothing else.
func TestDryRun(t *testing.T) {
	_, f := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, handle("a", fmt.Sprint(n)))
	})
	s, err := New(DryRun(&rest.Config{Host: f.url}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	table := s.Store().Handles
	e, err := table.Get(t.Context(), "a")
	for _, call := range []func() error{
		func() error { _, err := table.Create(t.Context(), block.HandleID("a"), datastore.Handle{}); return err },
		func() error { _, err := table.Update(t.Context(), e); return err },
		func() error { return table.Delete(t.Context(), e) },
	} {
		if err == nil {
			err = call()
		}
	}
	want := []string{"GET ipamhandles/a", "POST ipamhandles?dryRun=All", "PUT ipamhandles/a?dryRun=All", "DELETE ipamhandles/a?dryRun=All"}
	if err != nil || !slices.Equal(f.made(), want) {
		t.Errorf("calls %q, %v; want %q", f.made(), err, want)
	}
	if !strings.Contains(f.bodies[3], `"dryRun":["All"]`) || !strings.Contains(f.bodies[3], `"preconditions"`) {
		t.Errorf("DELETE's options are in its body, and those of the URL then do not count: %s", f.bodies[3])
	}
}

// INV-10: only a list of ours says what is not there. Anything else that came with
// status 200 is no empty list.
func TestAnswersThatAreNoList(t *testing.T) {
	const head = `{"apiVersion":"ipam.allod.io/v1alpha1","kind":"IPAMHandleList","metadata":{"resourceVersion":"7"}`
	for _, body := range []string{
		`{}`, `null`, `{"status":"ok"}`, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`,
		`{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}`,
		`{"apiVersion":"ipam.allod.io/v1alpha1","kind":"IPAMHandle","metadata":{"resourceVersion":"7"},"items":[]}`,
		head + `}`, head + `,"items":null}`, head + `,"items":[null]}`, head + `,"items":[{},5]}`,
		`{"apiVersion":"ipam.allod.io/v1alpha1","kind":"IPAMHandleList","metadata":{},"items":[]}`,
	} {
		s, _ := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
		if es, err := s.Store().Handles.List(t.Context(), datastore.Query{}); err == nil || errors.Is(err, datastore.ErrNotFound) {
			t.Errorf("%s: %v, %v; want an error", body, es, err)
		}
		if items, err := s.Raw(t.Context(), v1alpha1.KindHandle, nil); err == nil {
			t.Errorf("%s: raw list of %d; want an error", body, len(items))
		}
	}
	s, _ := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, head+`,"items":[]}`) })
	if es, err := s.Store().Handles.List(t.Context(), datastore.Query{}); err != nil || len(es) != 0 {
		t.Errorf("an empty list: %v, %v", es, err)
	}
}
