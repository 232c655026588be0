// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// call is one line of the log that direct mode writes of its calls.
type call struct {
	method string
	status int // 0: not answered
	path   string
	query  url.Values
}

// right is what RBAC grants: a verb on a resource of a group.
type right struct{ group, resource, verb string }

func (r right) String() string {
	return r.verb + " on " + strings.TrimSuffix(r.resource+"."+r.group, ".")
}

// review is how an account asks what it may do. Everybody who is authenticated may
// (system:basic-user), so no manifest grants it.
var review = right{"authorization.k8s.io", "selfsubjectrulesreviews", "create"}

// right is what the API server demands of whoever makes this call.
func (c call) right() right {
	parts := strings.Split(strings.Trim(c.path, "/"), "/")
	var r right
	if parts[0] == "apis" {
		r.group, parts = parts[1], parts[3:]
	} else {
		parts = parts[2:] // api/v1
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	r.resource = parts[0]
	if len(parts) > 2 {
		r.resource += "/" + parts[2]
	}
	r.verb = map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[c.method]
	switch one := len(parts) > 1; {
	case c.query.Get("watch") == "true":
		r.verb = "watch"
	case c.method == http.MethodGet && !one:
		r.verb = "list"
	case c.method == http.MethodDelete && !one:
		r.verb = "deletecollection"
	}
	return r
}

func parseCall(line string) (call, error) {
	f := strings.Fields(line)
	if len(f) != 3 {
		return call{}, fmt.Errorf("line %q of the call log: want METHOD STATUS PATH", line)
	}
	status, err := strconv.Atoi(f[1])
	if err != nil {
		return call{}, fmt.Errorf("line %q of the call log: %w", line, err)
	}
	u, err := url.ParseRequestURI(f[2])
	if err != nil {
		return call{}, fmt.Errorf("line %q of the call log: %w", line, err)
	}
	return call{method: f[0], status: status, path: u.Path, query: u.Query()}, nil
}

// callLog is the log file of one node's processes.
type callLog struct {
	path string

	mu      sync.Mutex
	taken   int  // lines that take has returned
	mayLack bool // rights are taken away: a 403 is no fault
}

// newCallLog makes a log that is judged at the end of the test: nothing was called
// that the manifest does not grant, and nothing was refused for want of a right.
func newCallLog(t *testing.T, path string) *callLog {
	l := &callLog{path: path}
	t.Cleanup(func() {
		granted := rightsOf(t, rbacFile())
		for _, c := range l.all(t) {
			if r := c.right(); !slices.Contains(granted, r) && r != review {
				t.Errorf("%s %s: the manifest does not grant %s", c.method, c.path, r)
			}
			if c.status == http.StatusForbidden && !l.mayLack {
				t.Errorf("%s %s: forbidden", c.method, c.path)
			}
		}
	})
	return l
}

// env is how a process is told of the log.
func (l *callLog) env() string { return "ALLOD_CALL_LOG=" + l.path }

// all reads the whole log.
func (l *callLog) all(t *testing.T) []call {
	t.Helper()
	text, err := os.ReadFile(l.path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var calls []call
	for line := range strings.Lines(string(text)) {
		c, err := parseCall(line)
		must(t, err)
		calls = append(calls, c)
	}
	return calls
}

// take returns the calls since it was called last.
func (l *callLog) take(t *testing.T) []call {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all(t)
	news := all[l.taken:]
	l.taken = len(all)
	return news
}

// isRead tells reads from writes. A review changes nothing.
func (c call) isRead() bool { return c.method == http.MethodGet || c.right() == review }

func reads(calls []call) int {
	n := 0
	for _, c := range calls {
		if c.isRead() {
			n++
		}
	}
	return n
}

func writes(calls []call) int { return len(calls) - reads(calls) }

// rights lists what the calls needed, each once.
func rights(calls []call) []right {
	var out []right
	for _, c := range calls {
		if r := c.right(); !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// answered counts the calls that got this status.
func answered(calls []call, status int) int {
	n := 0
	for _, c := range calls {
		if c.status == status {
			n++
		}
	}
	return n
}
