// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/cni/agentapi"
)

func TestArgs(t *testing.T) {
	pod := agentapi.Pod{Namespace: "shop", Name: "web-0", UID: "95f1"}
	for name, c := range map[string]struct {
		args string
		want cniArgs
	}{
		"none": {"", cniArgs{}},
		"kubelet": {
			"IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=3f9c;K8S_POD_UID=95f1",
			cniArgs{pod: pod},
		},
		"no UID":              {"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0", cniArgs{pod: agentapi.Pod{Namespace: "shop", Name: "web-0"}}},
		"empty UID":           {"K8S_POD_UID=", cniArgs{}},
		"a container's name":  {"K8S_POD_NAME=My_Container.1", cniArgs{pod: agentapi.Pod{Name: "My_Container.1"}}},
		"unknown, ignored":    {"IgnoreUnknown=true;FOO=bar;K8S_POD_UID=95f1", cniArgs{pod: agentapi.Pod{UID: "95f1"}}},
		"ignored, said later": {"FOO=a=b;IgnoreUnknown=1", cniArgs{}},
		"one address":         {"IP=10.0.0.5", cniArgs{static: addrs("10.0.0.5")}},
		"addresses":           {"IP=10.0.0.5/24,fd00::5", cniArgs{static: addrs("10.0.0.5", "fd00::5")}},
		"no address":          {"IP=", cniArgs{}},
		"a ; at the end":      {"K8S_POD_UID=95f1;", cniArgs{pod: agentapi.Pod{UID: "95f1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, how := range []strictness{strict, lenient} {
				got, err := parseArgs(c.args, how)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, got, byValue); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestArgsErrorsNameTheKey(t *testing.T) {
	good := ";K8S_POD_UID=95f1" // what a DEL keeps (INV-10)
	for name, c := range map[string]struct{ args, want string }{
		"no value":           {"IgnoreUnknown", `"IgnoreUnknown": want key=value`},
		"unknown":            {"FOO=bar", `unknown "FOO"`},
		"unknown, not to be": {"IgnoreUnknown=0;FOO=bar", `unknown "FOO"`},
		"known key, case":    {"ip=10.0.0.5", `unknown "ip"`},
		"bad bool":           {"IgnoreUnknown=yes", `IgnoreUnknown: "yes"`},
		"namespace":          {"K8S_POD_NAMESPACE=a b", `K8S_POD_NAMESPACE: "a b"`},
		"name":               {"K8S_POD_NAME=a/b", `K8S_POD_NAME: "a/b"`},
		"long name":          {"K8S_POD_NAME=" + strings.Repeat("x", 254), "K8S_POD_NAME: "},
		"uid":                {"K8S_POD_UID=é", "K8S_POD_UID: "},
		"address":            {"IP=10.0.0.256", `IP: [0]: "10.0.0.256"`},
		"second address":     {"IP=10.0.0.5,", `IP: [1]: ""`},
		"address twice":      {"IP=10.0.0.5,10.0.0.5", "IP: [1]: 10.0.0.5 twice"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseArgs(c.args, strict)
			e, ok := errors.AsType[*agentapi.Error](err)
			if !ok || e.Code != agentapi.CodeBadEnvironment || !strings.Contains(e.Details, c.want) {
				t.Errorf("got %#v, want code %d and %q", err, agentapi.CodeBadEnvironment, c.want)
			}
			got, err := parseArgs(c.args+good, lenient)
			if err != nil {
				t.Fatalf("INV-10: %v", err)
			}
			want := cniArgs{pod: agentapi.Pod{UID: "95f1"}}
			if diff := cmp.Diff(want, got, byValue); diff != "" {
				t.Errorf("INV-10 (-want +got):\n%s", diff)
			}
		})
	}
}
