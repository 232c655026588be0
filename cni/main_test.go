// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/cni/agentapi"
)

// Paths of what TestMain builds: the plugin as it is shipped, alone in its folder,
// and a stand-in for the agent, alone in another.
var allod, fakeAgent string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "allod-cni-")
	if err == nil {
		defer os.RemoveAll(dir)
		allod, fakeAgent = filepath.Join(dir, "plugin", "allod"), filepath.Join(dir, "agent", "allod-agent")
		err = errors.Join(build(allod, "."), build(fakeAgent, "./testdata/fakeagent"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func build(out, pkg string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=v1.2.3", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return nil
}

// answer is what a run of allod left behind.
type answer struct {
	exit           int
	stdout, stderr string
}

// cniError decodes what a failed verb prints.
func (a answer) cniError(t *testing.T) types.Error {
	t.Helper()
	var e types.Error
	if err := json.Unmarshal([]byte(a.stdout), &e); a.exit == 0 || err != nil || e.Code == 0 {
		t.Fatalf("no CNI error: exit %d, stdout %q, stderr %q", a.exit, a.stdout, a.stderr)
	}
	return e
}

func runAllod(t *testing.T, binary, stdin string, env []string, args ...string) answer {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = strings.NewReader(stdin), &stdout, &stderr, env
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			t.Fatal(err)
		}
	}
	return answer{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// env is what a runtime sets for a verb.
func env(verb string) []string {
	return []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=3f9c", "CNI_NETNS=/run/none", "CNI_IFNAME=eth0",
		"CNI_PATH=/none", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=95f1",
	}
}

// conf has all that any verb wants; ipam is what its ipam object has besides type.
func conf(version string, ipam map[string]any) string {
	object := map[string]any{"type": "allod"}
	for k, v := range ipam {
		object[k] = v
	}
	out, err := json.Marshal(map[string]any{
		"cniVersion": version, "name": "net", "type": "macvlan", "ipam": object,
		"prevResult":                map[string]any{"cniVersion": version, "ips": []any{map[string]any{"version": "4", "address": "10.64.0.70/16"}}},
		"cni.dev/valid-attachments": []any{},
	})
	if err != nil {
		panic(err)
	}
	return string(out)
}

// recorder is a Backend that keeps its last request and answers as told.
type recorder struct {
	got any
	err error
}

func (r *recorder) keep(q any) error { r.got = q; return r.err }

func (r *recorder) Add(_ context.Context, q agentapi.AddRequest) (agentapi.AddReply, error) {
	return agentapi.AddReply{Addresses: []agentapi.Address{{
		Addr: netip.MustParseAddr("10.64.0.70"), Block: netip.MustParsePrefix("10.64.0.64/26"),
		Pool: netip.MustParsePrefix("10.64.0.0/16"), Gateway: netip.MustParseAddr("10.64.0.1"),
	}}}, r.keep(q)
}
func (r *recorder) Check(_ context.Context, q agentapi.CheckRequest) error { return r.keep(q) }
func (r *recorder) Del(_ context.Context, q agentapi.DelRequest) error     { return r.keep(q) }
func (r *recorder) GC(_ context.Context, q agentapi.GCRequest) error       { return r.keep(q) }
func (r *recorder) Status(context.Context, agentapi.StatusRequest) error   { return r.keep("status") }

// serveAgent serves b on a socket until the test ends.
func serveAgent(t *testing.T, b agentapi.Backend) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- agentapi.Serve(ctx, l, b, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

func TestVersionTouchesNothing(t *testing.T) {
	const about = "CNI IPAM plugin allod v1.2.3\nCNI protocol versions supported: 0.3.1, 0.4.0, 1.0.0, 1.1.0\n"
	for name, c := range map[string]struct {
		env, args []string
		want      answer
	}{
		"VERSION": {
			[]string{"CNI_COMMAND=VERSION"},
			nil,
			answer{0, `{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}` + "\n", ""},
		},
		"no command": {nil, nil, answer{0, "", about}},
		"--version":  {nil, []string{"--version"}, answer{0, "allod v1.2.3\n", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			got := runAllod(t, allod, "not even JSON", c.env, c.args...)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Each verb at each version of the specification, as far as the version has it.
func TestVerbsAtEachVersion(t *testing.T) {
	since := map[string]string{"ADD": "0.3.1", "DEL": "0.3.1", "CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
	for _, v := range []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", "1.2.0"} {
		for verb, first := range since {
			t.Run(verb+" "+v, func(t *testing.T) {
				r := &recorder{}
				a := runAllod(t, allod, conf(v, map[string]any{"socket": serveAgent(t, r)}), env(verb))
				if v < first || v == "1.2.0" { // versions sort as strings
					if e := a.cniError(t); e.Code != types.ErrIncompatibleCNIVersion || r.got != nil {
						t.Errorf("got %+v, backend got %v", e, r.got)
					}
					return
				}
				if a.exit != 0 || a.stderr != "" || r.got == nil {
					t.Fatalf("%+v, backend got %v", a, r.got)
				}
				var res struct{ CNIVersion string }
				switch err := json.Unmarshal([]byte(a.stdout), &res); {
				case verb != "ADD" && a.stdout != "":
					t.Errorf("stdout %q", a.stdout)
				case verb == "ADD" && (err != nil || res.CNIVersion != v):
					t.Errorf("result %q, %v", a.stdout, err)
				}
			})
		}
	}
}

func TestErrorsReachTheRuntime(t *testing.T) {
	for name, c := range map[string]struct {
		verb string
		err  error
		want types.Error
	}{
		"ADD":    {"ADD", &agentapi.Error{Code: 11, Msg: "pool full", Details: "add a pool"}, types.Error{Code: 11, Msg: "pool full", Details: "add a pool"}},
		"DEL":    {"DEL", &agentapi.Error{Code: 11, Msg: "store away"}, types.Error{Code: 11, Msg: "store away"}}, // case R13
		"CHECK":  {"CHECK", &agentapi.Error{Code: 7, Msg: "other owner"}, types.Error{Code: 7, Msg: "other owner"}},
		"STATUS": {"STATUS", &agentapi.Error{Code: 11, Msg: "starting"}, types.Error{Code: 50, Msg: "starting"}},
	} {
		t.Run(name, func(t *testing.T) {
			socket := serveAgent(t, &recorder{err: c.err})
			got := runAllod(t, allod, conf("1.1.0", map[string]any{"socket": socket}), env(c.verb)).cniError(t)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What a configuration holds is nobody's business, least of all a log's.
func TestStdinIsNeverRepeated(t *testing.T) {
	const secret = "hunter2"
	for name, stdin := range map[string]string{
		"not JSON":      `{"name":"net","cniVersion":"1.1.0",` + secret,
		"unknown field": `{"name":"net","cniVersion":"1.1.0","type":"ptp","token":"` + secret + `","ipam":{"type":"allod","token":"` + secret + `"}}`,
		"wrong shape":   `{"name":"net","cniVersion":"1.1.0","type":"ptp","ipam":["` + secret + `"]}`,
		"no agent":      `{"name":"net","cniVersion":"1.1.0","type":"ptp","token":"` + secret + `","ipam":{"type":"allod","socket":"/none"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			a := runAllod(t, allod, stdin, env("ADD"))
			a.cniError(t)
			if strings.Contains(a.stdout+a.stderr, secret) {
				t.Errorf("repeated: %+v", a)
			}
		})
	}
}

// dyingAgent accepts, reads the request's first bytes, and closes.
func dyingAgent(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, 4))
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return socket
}

func deadSocket(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	return socket
}

// INV-1, INV-10: a failed connect makes every verb direct; once bytes were sent
// only DEL may be done again, by direct mode.
func TestFallback(t *testing.T) {
	verbs := []string{"ADD", "CHECK", "DEL", "GC", "STATUS"}
	sockets := map[string]func(*testing.T) string{
		"no socket":      func(t *testing.T) string { return filepath.Join(t.TempDir(), "none") },
		"nobody listens": deadSocket,
		"agent dies":     dyingAgent,
	}
	for name, socket := range sockets {
		for _, verb := range verbs {
			t.Run(name+", "+verb, func(t *testing.T) {
				a := runAllod(t, allod, conf("1.1.0", map[string]any{"socket": socket(t), "agentBinary": fakeAgent}), env(verb))
				if name == "agent dies" && verb != "DEL" {
					want := types.ErrTryAgainLater
					if verb == "STATUS" {
						want = types.ErrPluginNotAvailable
					}
					if e := a.cniError(t); e.Code != want {
						t.Errorf("got %+v, want code %d", e, want)
					}
					return
				}
				if a.exit != 0 || !strings.Contains(a.stdout, `"stdin":`) {
					t.Errorf("direct mode was not started: %+v", a)
				}
			})
		}
	}
}

// Direct mode gets the environment and all of stdin as the runtime gave them, also
// when that is more than a pipe holds.
func TestDirectModeGetsTheSameRequest(t *testing.T) {
	stdin := conf("1.1.0", map[string]any{"socket": "/none", "agentBinary": fakeAgent})
	stdin = strings.TrimSuffix(stdin, "}") + `,"padding":"` + strings.Repeat("x", 300_000) + "\"}\n"
	environ := append(env("ADD"), "OTHER=kept")
	a := runAllod(t, allod, stdin, environ)
	var got struct {
		Args, Env []string
		Stdin     []byte
	}
	if err := json.Unmarshal([]byte(a.stdout), &got); err != nil {
		t.Fatalf("%v: %+v", err, a)
	}
	if string(got.Stdin) != stdin {
		t.Errorf("stdin has %d bytes, want %d", len(got.Stdin), len(stdin))
	}
	if diff := cmp.Diff(environ, got.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{fakeAgent, "cni"}, got.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

func TestAgentBesideThePlugin(t *testing.T) {
	dir := t.TempDir()
	for name, from := range map[string]string{"allod": allod, agentName: fakeAgent} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a := runAllod(t, filepath.Join(dir, "allod"), conf("1.1.0", map[string]any{"socket": "/none"}), env("ADD"))
	if a.exit != 0 || !strings.Contains(a.stdout, filepath.Join(dir, agentName)) {
		t.Errorf("got %+v", a)
	}
}

// Case R13: where neither the agent nor direct mode is there, every verb says so
// and what to do, DEL too.
func TestNoAgentAtAll(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, ipam := range map[string]map[string]any{
		"not beside allod": {"socket": "/none"},
		"not configured":   {"socket": "/none", "agentBinary": "/none/allod-agent"},
		"not executable":   {"socket": "/none", "agentBinary": file},
	} {
		for _, verb := range []string{"ADD", "DEL"} {
			t.Run(name+", "+verb, func(t *testing.T) {
				e := runAllod(t, allod, conf("1.1.0", ipam), env(verb)).cniError(t)
				if e.Code != types.ErrTryAgainLater || !strings.Contains(e.Msg, "/none") || !strings.Contains(e.Details, "agentBinary") {
					t.Errorf("got %+v", e)
				}
			})
		}
	}
}

// A configuration that names allod as its own agent ends with an error, not in a
// circle.
func TestAllodIsNotItsOwnAgent(t *testing.T) {
	e := runAllod(t, allod, conf("1.1.0", map[string]any{"socket": "/none", "agentBinary": allod}), env("ADD")).cniError(t)
	if e.Code != types.ErrInvalidNetworkConfig || !strings.Contains(e.Details, "agentBinary") {
		t.Errorf("got %+v", e)
	}
}
