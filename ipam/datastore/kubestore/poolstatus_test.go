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

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// poolText is a pool of an API server with finalizers and conditions of others.
func poolText(rev, finalizers, conditions string) string {
	return fmt.Sprintf(`{"metadata":{"name":"p","uid":"u","resourceVersion":%q,"generation":3,"finalizers":[%s]},`+
		`"spec":{"cidr":"10.0.0.0/16"},"status":{"capacity":"65536","conditions":[%s]}}`, rev, finalizers, conditions)
}

const (
	foreignCondition = `{"type":"Ready","status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z","extra":1}`
	ours             = `"ipam.allod.io/pool"`
)

func allocatable(status, reason string, generation int) string {
	return fmt.Sprintf(`{"type":"Allocatable","status":%q,"observedGeneration":%d,"lastTransitionTime":"2026-01-01T00:00:00Z","reason":%q,"message":"m"}`,
		status, generation, reason)
}

// What admission decided is one patch for the finalizer and one for the condition, in
// this order, each by compare-and-swap; what others wrote is passed on.
func TestPoolStatus(t *testing.T) {
	ok := pool.Status{Finalizer: true, Allocatable: true, Reason: "OK", Message: "m", ObservedGeneration: 3}
	for name, tt := range map[string]struct {
		stored string
		want   pool.Status
		calls  []string // method, path, body without the time
	}{
		"first": {
			poolText("1", `"other/f"`, foreignCondition), ok,
			[]string{
				`PATCH ippools/p {"metadata":{"finalizers":["other/f",` + ours + `],"resourceVersion":"1","uid":"u"}}`,
				`PATCH ippools/p/status {"metadata":{"resourceVersion":"2","uid":"u"},"status":{"conditions":[` + foreignCondition + `,` +
					strings.ReplaceAll(allocatable("True", "OK", 3), "2026-01-01T00:00:00Z", "NOW") + `]}}`,
			},
		},
		"the same status keeps its time": {
			poolText("1", ours, allocatable("True", "OK", 2)), ok,
			[]string{`PATCH ippools/p/status {"metadata":{"resourceVersion":"1","uid":"u"},"status":{"conditions":[` + allocatable("True", "OK", 3) + `]}}`},
		},
		"another status moves it": {
			poolText("1", ours, allocatable("False", "Disabled", 2)), ok,
			[]string{`PATCH ippools/p/status {"metadata":{"resourceVersion":"1","uid":"u"},"status":{"conditions":[` +
				strings.ReplaceAll(allocatable("True", "OK", 3), "2026-01-01T00:00:00Z", "NOW") + `]}}`},
		},
		"INV-7: nothing to store is a fence": {
			poolText("1", ours, allocatable("True", "OK", 3)), ok,
			[]string{`PATCH ippools/p {"metadata":{"annotations":{"ipam.allod.io/fence":"1"},"resourceVersion":"1","uid":"u"}}`},
		},
		"the finalizer goes alone": {
			poolText("1", `"other/f",`+ours, ""),
			pool.Status{Reason: "Terminating", ObservedGeneration: 3},
			[]string{`PATCH ippools/p {"metadata":{"finalizers":["other/f"],"resourceVersion":"1","uid":"u"}}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
				finalizers := `"other/f"`
				if n > 0 {
					finalizers = `"other/f",` + ours
				}
				if n == 0 {
					fmt.Fprint(w, tt.stored)
					return
				}
				fmt.Fprint(w, poolText(fmt.Sprint(n+1), finalizers, foreignCondition))
			})
			e, err := s.Store().Pools.Get(t.Context(), "p")
			if err != nil {
				t.Fatal(err)
			}
			e.Value.Status = tt.want
			if _, err := s.Store().PoolStatus(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, c := range f.made()[1:] {
				got = append(got, c+" "+withoutTime(t, f.bodies[i+1]))
			}
			if d := cmp.Diff(tt.calls, got); d != "" {
				t.Errorf("calls (-want +got):\n%s", d)
			}
		})
	}
}

// withoutTime replaces a time that is not one of the test's.
func withoutTime(t *testing.T, body string) string {
	t.Helper()
	var v struct {
		Status struct {
			Conditions []struct {
				At string `json:"lastTransitionTime"`
			} `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	for _, c := range v.Status.Conditions {
		if c.At != "2026-01-01T00:00:00Z" {
			body = strings.ReplaceAll(body, c.At, "NOW")
		}
	}
	return body
}

func TestPoolStatusErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		code   int
		reason string
		want   error
		text   string
	}{
		"conflict":  {http.StatusConflict, "Conflict", datastore.ErrConflict, "IPPool p"},
		"gone":      {http.StatusNotFound, "NotFound", datastore.ErrNotFound, "IPPool p"},
		"forbidden": {http.StatusForbidden, "Forbidden", datastore.ErrRefused, "patch IPPool p"},
		"broken":    {http.StatusInternalServerError, "InternalError", nil, "patch IPPool p"},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
				if n == 0 {
					fmt.Fprint(w, poolText("1", "", ""))
					return
				}
				failure(w, tt.code, tt.reason)
			})
			e, err := s.Store().Pools.Get(t.Context(), "p")
			if err != nil {
				t.Fatal(err)
			}
			e.Value.Status = pool.Status{Finalizer: true, Allocatable: true, Reason: "OK", ObservedGeneration: 3}
			_, err = s.Store().PoolStatus(t.Context(), e)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v; want %v with %q", err, tt.want, tt.text)
			}
			if n := len(f.made()); n != 2 {
				t.Errorf("%d calls; a write is never repeated", n)
			}
			e.Origin = nil
			if _, err := s.Store().PoolStatus(t.Context(), e); !errors.Is(err, datastore.ErrRefused) {
				t.Errorf("without what was read: %v", err)
			}
		})
	}
}
