// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allod/allod/ipam/datastore"
)

// Now is this machine's time until the first answer, and the server's from then on,
// whatever the answer says.
func TestNowIsTheServers(t *testing.T) {
	date := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	s, _ := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", date.Format(http.TimeFormat))
		failure(w, http.StatusInternalServerError, "InternalError")
	})
	if d := time.Since(s.Now()); d < 0 || d > time.Minute {
		t.Errorf("before the first answer Now is %v off this machine's time", d)
	}
	if _, err := s.Store().Handles.Get(t.Context(), "h"); err == nil || errors.Is(err, datastore.ErrNotFound) {
		t.Fatalf("get: %v; want a fault", err)
	}
	first := s.Now()
	if d := first.Sub(date); d < 0 || d > time.Minute {
		t.Errorf("Now is %v; the server said %v", first, date)
	}
	if d := s.Since(date); d < first.Sub(date) || d > time.Minute {
		t.Errorf("since %v: %v", date, d)
	}
}

// The estimate is off by less than a second and the time an answer takes, whatever
// the order and delay of answers; it moves only when an answer contradicts it.
func TestClockStaysWithinItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := func(label string, low, high int) time.Duration {
			return time.Duration(rapid.IntRange(low, high).Draw(t, label)) * time.Millisecond
		}
		truth := ms("ahead", -100_000_000, 100_000_000) // the server's time is local plus this
		var ahead, local time.Duration
		known := false
		for range rapid.IntRange(1, 20).Draw(t, "answers") {
			if rapid.IntRange(0, 9).Draw(t, "step") == 0 {
				truth += ms("by", -5000, 5000) // another server, or its clock was set
			}
			local += ms("pause", 0, 5000)
			sent := local
			way, back := ms("way", 0, 800), ms("back", 0, 800)
			date := (sent + way + truth).Round(0)
			if date = date / time.Second * time.Second; date > sent+way+truth {
				date -= time.Second // towards the past, also before zero
			}
			local = sent + way + back
			before := ahead
			ahead = adjust(known, ahead, date, sent, local)
			if off := ahead - truth; off < -time.Second-back || off > time.Second+way {
				t.Fatalf("%v off after an answer that took %v and %v", off, way, back)
			}
			consistent := before >= date-local && before <= date+time.Second-sent
			if known && consistent && ahead != before {
				t.Fatalf("moved by %v though nothing contradicted it", ahead-before)
			}
			known = true
		}
	})
}
