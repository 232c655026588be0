// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

// Case R15: fields that this version does not know, which the API server keeps where a
// newer CRD has them, go back as they came; known ones are written anew, and go when
// they are not set.
func TestUnknownFieldsGoBack(t *testing.T) {
	const stored = `{"apiVersion":"ipam.allod.io/v1alpha1","kind":"IPPool","top":{"n":[1.50,12345678901234567890]},
		"metadata":{"name":"v4","uid":"u","resourceVersion":"5","generation":3,"creationTimestamp":"2026-12-01T10:00:00Z",
			"managedFields":[{"manager":"x"}],"later":{"a":1},"finalizers":["f"],
			"labels":{"ipam.allod.io/later":"a newer version's","ipam.allod.io/space":"ours","theirs":"1"},"annotations":{"ipam.allod.io/fence":"4","theirs":"2"}},
		"spec":{"cidr":"10.0.0.0/16","disabled":true,"later":"<&>","zeta":null},"status":{"capacity":"65536"}}`
	s, f := serve(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, stored)
	})
	e, err := s.Store().Pools.Get(t.Context(), "v4")
	if err != nil {
		t.Fatal(err)
	}
	e.Value.Spec.Disabled, e.Value.Spec.NATOutgoing = false, true
	e.Rev = "6" // what the entry says counts, not where it came from
	if _, err := s.Store().Pools.Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	const want = `{"apiVersion":"ipam.allod.io/v1alpha1","kind":"IPPool","top":{"n":[1.50,12345678901234567890]},
		"metadata":{"name":"v4","uid":"u","resourceVersion":"6","later":{"a":1},"finalizers":["f"],
			"labels":{"ipam.allod.io/later":"a newer version's","theirs":"1"},"annotations":{"theirs":"2"}},
		"spec":{"cidr":"10.0.0.0/16","blockSize":26,"allowedUses":["Workload","Tunnel"],"assignmentMode":"Automatic","ipipMode":"Never",
			"vxlanMode":"Never","natOutgoing":true,"later":"<&>","zeta":null},"status":{"capacity":"65536"}}`
	if d := cmp.Diff(parsed(t, want), parsed(t, f.bodies[1])); d != "" {
		t.Errorf("PUT (-want +got):\n%s", d)
	}
}

func parsed(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return v
}

// INV-7: a write is never repeated behind the caller's back, and only an answer that
// says so means it was not applied.
func TestOutcomesOfWrites(t *testing.T) {
	for name, tt := range map[string]struct {
		answer  func(http.ResponseWriter)
		refused bool
	}{
		"overload, asking to come again": {func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "0")
			failure(w, http.StatusTooManyRequests, "TooManyRequests")
		}, false},
		"unavailable, asking to come again": {func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "0")
			failure(w, http.StatusServiceUnavailable, "ServiceUnavailable")
		}, false},
		"timeout":             {func(w http.ResponseWriter) { failure(w, http.StatusGatewayTimeout, "Timeout") }, false},
		"internal":            {func(w http.ResponseWriter) { failure(w, http.StatusInternalServerError, "InternalError") }, false},
		"connection cut":      {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, false},
		"answer garbled":      {func(w http.ResponseWriter) { fmt.Fprint(w, `{"metadata"`) }, false},
		"conflict by a proxy": {func(w http.ResponseWriter) { http.Error(w, "conflict", http.StatusConflict) }, false},
		"bad request":         {func(w http.ResponseWriter) { failure(w, http.StatusBadRequest, "BadRequest") }, true},
		"invalid":             {func(w http.ResponseWriter) { failure(w, http.StatusUnprocessableEntity, "Invalid") }, true},
		"too large":           {func(w http.ResponseWriter) { failure(w, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge") }, true},
		"not served":          {func(w http.ResponseWriter) { http.Error(w, "404 page not found", http.StatusNotFound) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { tt.answer(w) })
			e := datastore.Entry[block.HandleID, datastore.Handle]{Key: "h", Rev: "1", UID: "u", Origin: &origin{}}
			_, create := s.Store().Handles.Create(t.Context(), "h", datastore.Handle{})
			_, update := s.Store().Handles.Update(t.Context(), e)
			for verb, err := range map[string]error{"create": create, "update": update} {
				if err == nil || errors.Is(err, datastore.ErrRefused) != tt.refused {
					t.Errorf("%s: %v; want an error, marked as refused: %v", verb, err, tt.refused)
				}
				for _, sentinel := range []error{datastore.ErrNotFound, datastore.ErrExists, datastore.ErrConflict} {
					if errors.Is(err, sentinel) {
						t.Errorf("%s: %v is %v", verb, err, sentinel)
					}
				}
			}
			if len(f.made()) != 2 {
				t.Errorf("calls %q; want one for each write", f.made())
			}
		})
	}
}

// An operator's object that cannot be read can be written and deleted at the revision
// that was seen, and keeps what others wrote beside its spec; one of the library's own
// is nobody's to overwrite.
func TestObjectThatCannotBeRead(t *testing.T) {
	for name, stored := range map[string]string{
		"a text":              `{"leakGracePeriod":"9999999h","later":1}`,
		"a type":              `{"maxBlocksPerHost":"many","later":1}`,
		"a spec of no object": `7`,
	} {
		t.Run(name, func(t *testing.T) {
			s, f := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
				switch {
				case n == 0:
					fmt.Fprintf(w, `{"apiVersion":"ipam.allod.io/v1alpha1","kind":"IPAMConfiguration","metadata":{"name":"default","uid":"u","resourceVersion":"5",`+
						`"labels":{"theirs":"1"},"finalizers":["f"]},"spec":%s}`, stored)
				case r.Method == http.MethodPut:
					fmt.Fprint(w, `{"metadata":{"name":"default","uid":"u","resourceVersion":"6"},"spec":{}}`)
				default:
					fmt.Fprint(w, `{"kind":"Status","status":"Success"}`)
				}
			})
			e, err := s.Store().Config.Get(t.Context(), datastore.DefaultConfig)
			if _, ok := errors.AsType[*datastore.UnreadableError](err); !ok || e.Key != "default" || e.Rev != "5" || e.UID != "u" {
				t.Fatalf("get: %+v, %v; want an unreadable object with its revision", e, err)
			}
			e.Value = datastore.ConfigDefaults()
			if _, err := s.Store().Config.Update(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			if err := s.Store().Config.Delete(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{`"uid":"u"`, `"resourceVersion":"5"`} {
				if !strings.Contains(f.bodies[1], want) || !strings.Contains(f.bodies[2], want) {
					t.Errorf("%s is not in %q", want, f.bodies[1:])
				}
			}
			if !strings.Contains(f.bodies[1], `"theirs":"1"`) || !strings.Contains(f.bodies[1], `"finalizers":["f"]`) || strings.Contains(f.bodies[1], "many") {
				t.Errorf("written: %s", f.bodies[1])
			}
		})
	}
	s, _ := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"metadata":{"name":"h","uid":"u","resourceVersion":"5"},"spec":{"handle":"h","addresses":["x"]}}`)
	})
	e, err := s.Store().Handles.Get(t.Context(), "h")
	if _, ok := errors.AsType[*datastore.UnreadableError](err); !ok || e.Rev != "" || e.UID != "" || e.Origin != nil {
		t.Errorf("get of a handle: %+v, %v; want an unreadable object, and nothing to write it with", e, err)
	}
}

// Pages are of one revision; when it is compacted between them the list starts again,
// in one page.
func TestListWhosePagesExpire(t *testing.T) {
	s, f := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		switch n {
		case 0:
			fmt.Fprint(w, list("10", "more", handle("a", "5"), handle("b", "7")))
		case 1:
			failure(w, http.StatusGone, "Expired")
		default:
			fmt.Fprint(w, list("20", "", handle("a", "5"), handle("c", "11"), handle("d", "12")))
		}
	})
	es, err := s.Store().Handles.List(t.Context(), datastore.Query{})
	if err != nil || len(es) != 3 || es[1].Key != "c" {
		t.Errorf("list: %v, %v; want a, c, d", es, err)
	}
	want := []string{"GET ipamhandles?limit=2", "GET ipamhandles?continue=more&limit=2", "GET ipamhandles"}
	if d := cmp.Diff(want, f.made()); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}

// Case D15, INV-10: what cannot be read is left out of a list and logged, unless the
// caller wants to know that nothing is missing.
func TestListOfWhatCannotBeRead(t *testing.T) {
	bad := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"uid":"u","resourceVersion":"1"},"spec":{"handle":%q,"addresses":["x"]}}`, name, name)
	}
	var items []string
	s, f := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, list("20", "", items...)) })
	for _, tt := range []struct {
		items []string
		want  string // in the error of a strict list
	}{
		{[]string{handle("a", "5"), handle("b", "6")}, ""},
		{[]string{handle("a", "5"), bad("broken"), handle("b", "6")}, `IPAMHandle broken: stored object: IPAMHandle broken: spec.addresses[0]: "x" is no address`},
		{[]string{bad("broken"), handle("a", "5"), bad("worse"), handle("b", "6"), bad("worst")}, "IPAMHandle broken: stored object: IPAMHandle broken: " +
			`spec.addresses[0]: "x" is no address (and 2 more that cannot be read)`},
	} {
		items = tt.items
		f.log.Reset()
		es, err := s.Store().Handles.List(t.Context(), datastore.Query{})
		if err != nil || len(es) != 2 || strings.Count(f.log.String(), "left out") != len(items)-2 {
			t.Errorf("list of %d: %v, %v, log:\n%s", len(items), es, err, f.log.String())
		}
		es, err = s.Store().Handles.List(t.Context(), datastore.Query{Strict: true})
		switch {
		case tt.want == "" && (err != nil || len(es) != 2):
			t.Errorf("strict list: %v, %v", es, err)
		case tt.want != "" && (err == nil || err.Error() != tt.want || es != nil):
			t.Errorf("strict list: %v, %v; want the error %s", es, err, tt.want)
		}
	}
}

// INV-10: only an answer that says so means that a deleted object is gone.
func TestAnswersToDelete(t *testing.T) {
	const marked = `{"metadata":{"name":"h","deletionTimestamp":"2026-12-01T10:00:00Z","finalizers":[%s]}}`
	for name, tt := range map[string]struct {
		answer string
		want   string // in the error; "": none
	}{
		"gone":                 {`{"kind":"Status","status":"Success","details":{"name":"h","uid":"u"}}`, ""},
		"our finalizer":        {fmt.Sprintf(marked, `"ipam.allod.io/pool"`), ""},
		"another's":            {fmt.Sprintf(marked, `"example.org/hold"`), "removed: example.org/hold;"},
		"ours and another's":   {fmt.Sprintf(marked, `"ipam.allod.io/pool","example.org/hold"`), "removed: example.org/hold;"},
		"the answer is cut":    {`{"kind":"Status","sta`, "answer"},
		"the answer is no API": {`<html>`, "answer"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, tt.answer) })
			err := s.Store().Handles.Delete(t.Context(), datastore.Entry[block.HandleID, datastore.Handle]{Key: "h", Rev: "1", UID: "u"})
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("%v; want it deleted", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "IPAMHandle h")):
				t.Errorf("%v; want an error with %q", err, tt.want)
			case errors.Is(err, datastore.ErrNotFound), errors.Is(err, datastore.ErrRefused):
				t.Errorf("%v is a certainty; want a fault", err)
			}
		})
	}
}
