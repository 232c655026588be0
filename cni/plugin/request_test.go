// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/cni/agentapi"
)

var (
	eth0 = agentapi.Attachment{Network: "net", ContainerID: "3f9c", IfName: "eth0"}
	pod  = agentapi.Pod{Namespace: "shop", Name: "web-0", UID: "95f1"}
)

func cmdArgs(stdin, args string) *skel.CmdArgs {
	return &skel.CmdArgs{ContainerID: eth0.ContainerID, IfName: eth0.IfName, Netns: "/n", Args: args, StdinData: []byte(stdin)}
}

func TestAddRequest(t *testing.T) {
	dual := conf(`"families":["IPv4","IPv6"],"ipv4Pools":["a"],"ipv6Pools":["b"]`)
	ips := func(c, list string) string {
		return strings.Replace(c, `"ipam"`, `"runtimeConfig":{"ips":`+list+`},"ipam"`, 1)
	}
	for name, c := range map[string]struct {
		stdin, args string
		want        agentapi.AddRequest
	}{
		"default": {
			conf(""), "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=95f1",
			agentapi.AddRequest{Attachment: eth0, Pod: pod, Num4: 1},
		},
		"IPv6": {conf(`"families":["IPv6"]`), "", agentapi.AddRequest{Attachment: eth0, Num6: 1}},
		"INV-11: dual stack is one request": {
			dual, "",
			agentapi.AddRequest{Attachment: eth0, Num4: 1, Num6: 1, Pools4: []string{"a"}, Pools6: []string{"b"}},
		},
		"static by CNI_ARGS": {
			conf(""), "IP=10.0.0.5,10.0.0.6",
			agentapi.AddRequest{Attachment: eth0, Num4: 2, Addrs: addrs("10.0.0.5", "10.0.0.6")},
		},
		"static by runtimeConfig": {
			ips(conf(""), `["10.0.0.5/8"]`), "",
			agentapi.AddRequest{Attachment: eth0, Num4: 1, Addrs: addrs("10.0.0.5")},
		},
		"no static in the list": {ips(conf(""), `[]`), "", agentapi.AddRequest{Attachment: eth0, Num4: 1}},
		"static, both families": {dual, "IP=10.0.0.5,fd00::5,fd00::6", agentapi.AddRequest{
			Attachment: eth0, Num4: 1, Num6: 2, Addrs: addrs("10.0.0.5", "fd00::5", "fd00::6"), Pools4: []string{"a"}, Pools6: []string{"b"},
		}},
		"static replaces the families: one of two": {dual, "IP=10.0.0.5", agentapi.AddRequest{
			Attachment: eth0, Num4: 1, Addrs: addrs("10.0.0.5"), Pools4: []string{"a"}, Pools6: []string{"b"},
		}},
		"static replaces the families: another": {
			ips(conf(""), `["fd00::5"]`), "",
			agentapi.AddRequest{Attachment: eth0, Num6: 1, Addrs: addrs("fd00::5")},
		},
		"ptp, block": {
			strings.Replace(conf(`"mask":"block"`), "macvlan", "ptp", 1), "",
			agentapi.AddRequest{Attachment: eth0, Num4: 1, NeedGateway: true, BlockMask: true},
		},
		"host under another plugin": {conf(`"mask":"host"`), "", agentapi.AddRequest{Attachment: eth0, Num4: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			args := cmdArgs(c.stdin, c.args)
			conf, a, err := parse(args, strict)
			if err != nil {
				t.Fatal(err)
			}
			got, err := addRequest(args, conf, a)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, byValue); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}

	for name, c := range map[string]struct {
		stdin, args string
		code        uint
		message     string
	}{
		"static twice": {ips(conf(""), `["10.0.0.5"]`), "IP=10.0.0.5", agentapi.CodeBadEnvironment, "both in CNI_ARGS (IP) and in runtimeConfig.ips"},
		"ptp, host":    {strings.Replace(conf(`"mask":"host"`), "macvlan", "ptp", 1), "", agentapi.CodeBadConfig, "ipam.mask"},
	} {
		t.Run(name, func(t *testing.T) {
			args := cmdArgs(c.stdin, c.args)
			conf, a, err := parse(args, strict)
			if err != nil {
				t.Fatal(err)
			}
			_, err = addRequest(args, conf, a)
			e, ok := errors.AsType[*agentapi.Error](err)
			if !ok || e.Code != c.code || !strings.Contains(e.Msg, c.message) {
				t.Errorf("got %#v, want code %d and %q", err, c.code, c.message)
			}
		})
	}
}

func TestCheckRequest(t *testing.T) {
	withPrev := func(prev string) string {
		return strings.Replace(conf(""), `"ipam"`, `"prevResult":`+prev+`,"ipam"`, 1)
	}
	good := map[string]struct {
		prev string
		want []netip.Addr
	}{
		"1.1.0":            {`{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.5/16","gateway":"10.0.0.1","interface":2},{"address":"fd00::5/64"}]}`, addrs("10.0.0.5", "fd00::5")},
		"0.4.0":            {`{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.5/16"}]}`, addrs("10.0.0.5")},
		"a mapped address": {`{"ips":[{"address":"::ffff:10.0.0.5/112"}]}`, addrs("10.0.0.5")},
	}
	for name, c := range good {
		t.Run(name, func(t *testing.T) {
			got, err := checkRequest(cmdArgs("", ""), Conf{Name: "net", Raw: []byte(withPrev(c.prev))}, cniArgs{pod: pod})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(agentapi.CheckRequest{Attachment: eth0, Pod: pod, Addrs: c.want}, got, byValue); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for name, c := range map[string]struct{ stdin, want string }{
		"missing":       {conf(""), "prevResult: missing"},
		"null":          {withPrev("null"), "prevResult: missing"},
		"no object":     {withPrev(`"x"`), "prevResult: "},
		"no ips":        {withPrev(`{}`), "prevResult.ips: empty"},
		"no address":    {withPrev(`{"ips":[{}]}`), `prevResult.ips[0].address: ""`},
		"no prefix":     {withPrev(`{"ips":[{"address":"10.0.0.5"}]}`), "prevResult.ips[0].address"},
		"address twice": {withPrev(`{"ips":[{"address":"10.0.0.5/16"},{"address":"10.0.0.5/8"}]}`), "prevResult.ips[1].address: 10.0.0.5 twice"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := checkRequest(cmdArgs("", ""), Conf{Name: "net", Raw: []byte(c.stdin)}, cniArgs{})
			e, ok := errors.AsType[*agentapi.Error](err)
			if !ok || e.Code != agentapi.CodeBadConfig || !strings.HasPrefix(e.Details, c.want) {
				t.Errorf("got %#v, want code %d and %q", err, agentapi.CodeBadConfig, c.want)
			}
		})
	}
}

func TestGCRequest(t *testing.T) {
	const a, b = `{"containerID":"a","ifname":"eth0"}`, `{"containerID":"b","ifname":"eth0"}`
	const ka, kb = `"cni.dev/valid-attachments"`, `"cni.dev/attachments"`
	id := func(c string) agentapi.Attachment {
		return agentapi.Attachment{Network: "net", ContainerID: c, IfName: "eth0"}
	}
	for name, c := range map[string]struct {
		keys string
		want []agentapi.Attachment
	}{
		"first key":        {ka + `:[` + a + `]`, []agentapi.Attachment{id("a")}},
		"second key":       {kb + `:[` + a + `]`, []agentapi.Attachment{id("a")}},
		"the same in both": {ka + `:[` + a + `],` + kb + `:[` + a + `]`, []agentapi.Attachment{id("a")}},
		"union of both":    {ka + `:[` + a + `],` + kb + `:[` + b + `]`, []agentapi.Attachment{id("a"), id("b")}},
		"one is empty":     {ka + `:[],` + kb + `:[` + b + `]`, []agentapi.Attachment{id("b")}},
		"empty":            {ka + `:[]`, []agentapi.Attachment{}},
		"both empty":       {ka + `:[],` + kb + `:[]`, []agentapi.Attachment{}},
		"unknown in entry": {ka + `:[{"containerID":"a","ifname":"eth0","netns":"/x"}]`, []agentapi.Attachment{id("a")}},
		"two on one sandbox": {
			ka + `:[` + a + `,{"containerID":"a","ifname":"net1"}]`,
			[]agentapi.Attachment{id("a"), {Network: "net", ContainerID: "a", IfName: "net1"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := gcRequest(Conf{Name: "net", Raw: fmt.Appendf(nil, "{%s}", c.keys)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(agentapi.GCRequest{Network: "net", Valid: c.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	// INV-2: unknown is alive. None of these is "nothing is valid".
	for name, c := range map[string]struct{ keys, want string }{
		"absent":                 {``, `cni.dev/valid-attachments: missing`},
		"null":                   {ka + `:null`, `cni.dev/valid-attachments: null`},
		"second null":            {kb + `:null`, `cni.dev/attachments: null`},
		"both null":              {ka + `:null,` + kb + `:null`, `cni.dev/valid-attachments: null`},
		"one null, one list":     {ka + `:[` + a + `],` + kb + `:null`, `cni.dev/attachments: null`},
		"no list":                {ka + `:{}`, `cni.dev/valid-attachments: is a JSON object, want a list`},
		"null entry":             {ka + `:[null]`, `cni.dev/valid-attachments[0].containerID: `},
		"entry without ID":       {ka + `:[` + a + `,{"ifname":"eth0"}]`, `cni.dev/valid-attachments[1].containerID: `},
		"entry without ifname":   {ka + `:[{"containerID":"a"}]`, `cni.dev/valid-attachments[0].ifname: `},
		"entry with a bad ID":    {kb + `:[{"containerID":"a/b","ifname":"eth0"}]`, `cni.dev/attachments[0].containerID: `},
		"entry with a bad name":  {kb + `:[{"containerID":"a","ifname":"eth0/1"}]`, `cni.dev/attachments[0].ifname: `},
		"entry of another shape": {ka + `:["a"]`, `cni.dev/valid-attachments: is a JSON string, want an object`},
	} {
		t.Run("INV-2: "+name, func(t *testing.T) {
			_, err := gcRequest(Conf{Name: "net", Raw: fmt.Appendf(nil, "{%s}", c.keys)})
			e, ok := errors.AsType[*agentapi.Error](err)
			if !ok || e.Code != agentapi.CodeBadConfig || !strings.HasPrefix(e.Details, c.want) {
				t.Errorf("got %#v, want code %d and %q", err, agentapi.CodeBadConfig, c.want)
			}
		})
	}
}

// An answer that is not what was asked for gives no interface an address.
func TestAnswers(t *testing.T) {
	as := func(r agentapi.AddReply, a agentapi.Asked) agentapi.AddReply {
		r.Asked = &a
		return r
	}
	reply := func(list ...string) (r agentapi.AddReply) {
		for _, a := range addrs(list...) {
			r.Addresses = append(r.Addresses, agentapi.Address{Addr: a})
		}
		return r
	}
	for name, c := range map[string]struct {
		r    agentapi.AddRequest
		a    agentapi.AddReply
		says string
	}{
		"as asked":       {agentapi.AddRequest{Num4: 1, Num6: 1}, reply("10.0.0.1", "fd00::1"), ""},
		"nothing":        {agentapi.AddRequest{Num4: 1}, reply(), "0 IPv4 and 0 IPv6"},
		"another family": {agentapi.AddRequest{Num4: 1}, reply("fd00::1"), "0 IPv4 and 1 IPv6"},
		"too many":       {agentapi.AddRequest{Num4: 1}, reply("10.0.0.1", "10.0.0.2"), "2 IPv4"},
		"twice":          {agentapi.AddRequest{Num4: 2}, reply("10.0.0.1", "10.0.0.1"), "10.0.0.1 twice"},
		// Annotations of the pod may have made it another request (Asked).
		"another family, as the pod asked": {agentapi.AddRequest{Num4: 1}, as(reply("fd00::1"), agentapi.Asked{Num6: 1}), ""},
		"not what the pod asked":           {agentapi.AddRequest{Num4: 1}, as(reply("10.0.0.1"), agentapi.Asked{Num4: 1, Addrs: addrs("10.0.0.9")}), "lacks 10.0.0.9"},
		"not the address":                  {agentapi.AddRequest{Num4: 1, Addrs: addrs("10.0.0.9")}, reply("10.0.0.1"), "lacks 10.0.0.9"},
	} {
		t.Run(name, func(t *testing.T) {
			err := answers(c.r, c.a)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}
