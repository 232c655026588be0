// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/cni/agentapi"
)

// recorder is a Backend that keeps its requests and answers as told.
type recorder struct {
	got   []any
	reply agentapi.AddReply
	err   error
}

func (r *recorder) keep(q any) error { r.got = append(r.got, q); return r.err }

func (r *recorder) Add(ctx context.Context, q agentapi.AddRequest) (agentapi.AddReply, error) {
	if _, ok := ctx.Deadline(); !ok {
		return agentapi.AddReply{}, errors.New("no deadline")
	}
	return r.reply, r.keep(q)
}
func (r *recorder) Check(_ context.Context, q agentapi.CheckRequest) error { return r.keep(q) }
func (r *recorder) Del(_ context.Context, q agentapi.DelRequest) error     { return r.keep(q) }
func (r *recorder) GC(_ context.Context, q agentapi.GCRequest) error       { return r.keep(q) }
func (r *recorder) Status(context.Context, agentapi.StatusRequest) error   { return r.keep("status") }

func over(r *recorder) Plugin {
	return Plugin{Version: "test", Backend: func(context.Context, Conf) (agentapi.Backend, error) { return r, nil }}
}

func TestAddAnswersInTheConfigurationsVersion(t *testing.T) {
	for _, v := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		r := &recorder{reply: agentapi.AddReply{Addresses: []agentapi.Address{given(t, "v4")}}}
		res, err := over(r).add(t.Context(), cmdArgs(strings.Replace(conf(""), "1.1.0", v, 1), ""))
		if err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		if res.Version() != v {
			t.Errorf("result has version %s, want %s", res.Version(), v)
		}
	}
}

// INV-10, case R13: DEL needs name, cniVersion and type, whatever else is wrong,
// and passes its backend's error on: nothing is swallowed.
func TestDelCompletesWithLittle(t *testing.T) {
	for name, c := range map[string]struct {
		stdin, args string
		want        agentapi.Pod
	}{
		"name, cniVersion and type":       {`{"cniVersion":"1.1.0","name":"net","type":"ptp"}`, "", agentapi.Pod{}},
		"broken ipam":                     {`{"cniVersion":"1.1.0","name":"net","type":"ptp","ipam":"x"}`, "", agentapi.Pod{}},
		"broken fields":                   {conf(`"mask":7,"subnet":"x","nodeName":"_"`), "", agentapi.Pod{}},
		"broken CNI_ARGS":                 {conf(""), "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=95f1;FOO;IP=x", pod},
		"both static sources":             {strings.Replace(conf(""), `"ipam"`, `"runtimeConfig":{"ips":["10.0.0.5"]},"ipam"`, 1), "IP=10.0.0.5", agentapi.Pod{}},
		"a broken prevResult":             {strings.Replace(conf(""), `"ipam"`, `"prevResult":7,"ipam"`, 1), "", agentapi.Pod{}},
		"a mask that the main can't take": {strings.Replace(conf(`"mask":"host"`), "macvlan", "ptp", 1), "", agentapi.Pod{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{}
			args := cmdArgs(c.stdin, c.args)
			args.Netns = "" // case R2
			if err := over(r).del(t.Context(), args); err != nil {
				t.Fatal(err)
			}
			want := []any{agentapi.DelRequest{Attachment: eth0, Pod: c.want}}
			if diff := cmp.Diff(want, r.got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	// Success of a DEL in another store would be a leak for ever.
	if err := over(&recorder{}).del(t.Context(), cmdArgs(conf(`"datastore":{"path":"relative"}`), "")); err == nil {
		t.Error("DEL succeeded without knowing the store")
	}
	r := &recorder{err: &agentapi.Error{Code: agentapi.CodeTryAgain, Msg: "store"}}
	if err := over(r).del(t.Context(), cmdArgs(conf(""), "")); agentapi.AsError(err).Code != agentapi.CodeTryAgain {
		t.Errorf("R13: DEL swallowed its backend's error: %v", err)
	}
}

// GC, too, is not stopped by a field it has no use for.
func TestGCIsLenient(t *testing.T) {
	r := &recorder{}
	stdin := `{"cniVersion":"1.1.0","name":"net","type":"ptp","ipam":{"mask":7},"cni.dev/attachments":[]}`
	if err := over(r).gc(t.Context(), cmdArgs(stdin, "")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{agentapi.GCRequest{Network: "net", Valid: []agentapi.Attachment{}}}, r.got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// ADD, CHECK and STATUS refuse what they do not understand before any backend
// hears of it; GC refuses an unknown list (INV-2).
func TestBadConfigurationReachesNoBackend(t *testing.T) {
	bad := conf(`"mask":7`)
	for name, do := range map[string]func(Plugin) error{
		"ADD":          func(p Plugin) error { _, err := p.add(t.Context(), cmdArgs(bad, "")); return err },
		"ADD, args":    func(p Plugin) error { _, err := p.add(t.Context(), cmdArgs(conf(""), "FOO")); return err },
		"CHECK":        func(p Plugin) error { return p.check(t.Context(), cmdArgs(bad, "")) },
		"CHECK, prev":  func(p Plugin) error { return p.check(t.Context(), cmdArgs(conf(""), "")) },
		"STATUS":       func(p Plugin) error { return p.status(t.Context(), cmdArgs(bad, "")) },
		"INV-2: GC":    func(p Plugin) error { return p.gc(t.Context(), cmdArgs(conf(""), "")) },
		"DEL, no JSON": func(p Plugin) error { return p.del(t.Context(), cmdArgs("{", "")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{}
			if err := do(over(r)); err == nil {
				t.Error("no error")
			}
			if r.got != nil {
				t.Errorf("backend got %v", r.got)
			}
		})
	}
}

// Case R11: CHECK hands over prevResult's addresses and asks for nothing else.
func TestCheckOnlyChecks(t *testing.T) {
	r := &recorder{}
	stdin := strings.Replace(conf(""), `"ipam"`, `"prevResult":{"ips":[{"address":"10.0.0.5/16"}]},"ipam"`, 1)
	if err := over(r).check(t.Context(), cmdArgs(stdin, "")); err != nil {
		t.Fatal(err)
	}
	want := []any{agentapi.CheckRequest{Attachment: eth0, Addrs: addrs("10.0.0.5")}}
	if diff := cmp.Diff(want, r.got, byValue); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatusCodes(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want uint
	}{
		"try again":    {&agentapi.Error{Code: agentapi.CodeTryAgain, Msg: "x"}, 50},
		"internal":     {errors.New("x"), 50},
		"no agent":     {fmt.Errorf("x: %w", agentapi.ErrNotConnected), 50},
		"unavailable":  {&agentapi.Error{Code: 50, Msg: "x"}, 50},
		"limited":      {&agentapi.Error{Code: 51, Msg: "x"}, 51},
		"config stays": {&agentapi.Error{Code: 7, Msg: "x"}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			err := cniError(statusError(over(&recorder{err: c.err}).status(t.Context(), cmdArgs(conf(""), ""))))
			if e, ok := errors.AsType[*types.Error](err); !ok || e.Code != c.want || !strings.HasPrefix(e.Msg, "x") {
				t.Errorf("got %#v, want code %d", err, c.want)
			}
		})
	}
	if err := statusError(nil); err != nil {
		t.Errorf("healthy: %v", err)
	}
}

func TestCNIErrorKeepsAllParts(t *testing.T) {
	got := cniError(&agentapi.Error{Code: 11, Msg: "m", Details: "d"})
	if diff := cmp.Diff(error(types.NewError(11, "m", "d")), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if cniError(nil) != nil {
		t.Error("no error became one")
	}
}

func TestBackendThatCannotBeMade(t *testing.T) {
	p := Plugin{Backend: func(context.Context, Conf) (agentapi.Backend, error) {
		return nil, &agentapi.Error{Code: agentapi.CodeTryAgain, Msg: "no store"}
	}}
	if err := p.del(t.Context(), cmdArgs(conf(""), "")); agentapi.AsError(err).Code != agentapi.CodeTryAgain {
		t.Errorf("got %v", err)
	}
}
