// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/ipam/datastore"
)

const watchCall = "GET ipamhandles?allowWatchBookmarks=true&resourceVersion="

// seen runs a watch to its end and returns what it yielded, one line a change.
func seen(t *testing.T, s *Store) (changes []string, end error) {
	t.Helper()
	for c, err := range s.Store().Handles.Watch(t.Context()) {
		if err != nil {
			if end != nil {
				t.Errorf("%v after the end, which was %v", err, end)
			}
			end = err
			continue
		}
		changes = append(changes, fmt.Sprint(c.Kind, " ", c.Entry.Key, " ", c.Entry.Rev, " ", c.Entry.UID))
	}
	return changes, end
}

func line(kind, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object)
}

// A WATCH that ends goes on where it stopped, a bookmark included; one whose revision
// is gone ends the sequence with an error, and so does one that cannot be opened.
func TestWatchGoesOnAndEnds(t *testing.T) {
	gone := `{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old"}`
	for name, end := range map[string]func(http.ResponseWriter){
		"event 410":      func(w http.ResponseWriter) { fmt.Fprint(w, line("ERROR", gone)) },
		"answer 410":     func(w http.ResponseWriter) { failure(w, http.StatusGone, "Expired") },
		"server is down": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"not a watch":    func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits before it opens again
			s, f := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
				switch n {
				case 0:
					fmt.Fprint(w, list("10", "", handle("a", "5"), handle("b", "7")))
				case 1:
					fmt.Fprint(w, line("MODIFIED", handle("a", "11")), line("BOOKMARK", `{"metadata":{"resourceVersion":"15"}}`))
				case 2:
					// Deleted at 16: the entry is the one seen last, at 11.
					fmt.Fprint(w, line("DELETED", handle("a", "16")), `{"type":"ADDED","obj`)
				default:
					end(w)
				}
			})
			changes, err := seen(t, s)
			want := []string{"1 a 5 u-a", "1 b 7 u-b", "3   ", "1 a 11 u-a", "2 a 11 u-a"}
			if d := cmp.Diff(want, changes); d != "" {
				t.Errorf("changes (-want +got):\n%s", d)
			}
			if err == nil || !strings.Contains(err.Error(), "watch IPAMHandle") {
				t.Errorf("ended with %v; want an error that says what failed", err)
			}
			calls := []string{"GET ipamhandles?limit=2", watchCall + "10&watch=true", watchCall + "15&watch=true", watchCall + "16&watch=true"}
			if d := cmp.Diff(calls, f.made()[:4]); d != "" {
				t.Errorf("calls (-want +got):\n%s", d)
			}
		})
	}
}

// Case D15: a record that cannot be read changes nothing for a watch, and what was
// seen of it before stays until it is deleted (INV-2).
func TestWatchLeavesOutWhatItCannotRead(t *testing.T) {
	bad := func(name, rev string) string {
		return strings.Replace(handle(name, rev), `"handle"`, `"addresses":["x"],"handle"`, 1)
	}
	s, f := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		switch n {
		case 0:
			fmt.Fprint(w, list("10", "", handle("a", "5"), bad("b", "6")))
		case 1:
			fmt.Fprint(w, line("MODIFIED", bad("a", "11")), line("DELETED", bad("b", "12")), line("DELETED", bad("a", "13")))
		default:
			failure(w, http.StatusGone, "Expired")
		}
	})
	changes, err := seen(t, s)
	if d := cmp.Diff([]string{"1 a 5 u-a", "3   ", "2 a 5 u-a"}, changes); d != "" || err == nil {
		t.Errorf("changes (-want +got):\n%s, ended with %v", d, err)
	}
	for _, text := range []string{"IPAMHandle b", "IPAMHandle a", "spec.addresses"} {
		if !strings.Contains(f.log.String(), text) {
			t.Errorf("log does not say %q:\n%s", text, f.log.String())
		}
	}
}

// INV-14: of what an operator sets nothing is left out.
func TestSettingsThatCannotBeReadFail(t *testing.T) {
	s, _ := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, list("10", "", `{"metadata":{"name":"r"},"spec":{"reservedCIDRs":["10.0.0.0/8","10.0.0/9"]}}`))
	})
	_, err := s.Store().Reservations.List(t.Context(), datastore.Query{MayBeStale: true})
	var watch error
	for c, err := range s.Store().Reservations.Watch(t.Context()) {
		if watch = err; err == nil {
			t.Errorf("watch yields %+v", c)
		}
	}
	for what, err := range map[string]error{"list": err, "watch": watch} {
		if err == nil || !strings.Contains(err.Error(), "IPReservation r") || !strings.Contains(err.Error(), "spec.reservedCIDRs[1]") {
			t.Errorf("%s: %v; want an error that names object and field", what, err)
		}
		if errors.Is(err, datastore.ErrRefused) {
			t.Errorf("%s: %v is a refusal of a write", what, err)
		}
	}
}
