// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/utils"

	"github.com/allod/allod/cni/agentapi"
)

// FuzzConf: any stdin is refused with a code and one line, or gives a
// configuration that needs no further check.
func FuzzConf(f *testing.F) {
	for _, s := range []string{
		conf(""),
		conf(`"families":["IPv4","IPv6"],"ipv4Pools":["a","10.0.0.0/8"],"mask":"block","routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"}]`),
		conf(`"dns":{"nameservers":["10.0.0.10"],"search":["a"]},"socket":"/s","agentBinary":"/a","nodeName":"n","lockFile":"/l"`),
		conf(`"datastore":{"type":"bolt","path":"/d","kubeconfig":"/k"},"colour":"red"`),
		`{"type":"bridge","isGateway":true,"runtimeConfig":{"ips":["10.0.0.5/8","fe80::1%eth0"]},"ipam":{"type":"allod"}}`,
		`{"ipam":[]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stdin []byte) {
		c, err := parseConf(stdin, strict)
		checkError(t, err)
		if err == nil {
			checkConf(t, c)
		}
		// INV-10: what strict takes or refuses for a field, lenient takes, but for the
		// one that decides where.
		l, lerr := parseConf(stdin, lenient)
		if lerr == nil {
			checkConf(t, l)
		} else if e := agentapi.AsError(lerr); e.Code != agentapi.CodeUndecodable && !strings.HasPrefix(e.Details, "ipam.datastore") {
			t.Errorf("lenient refuses a field: %v", lerr)
		}
	})
}

func checkError(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if e := agentapi.AsError(err); e.Code == agentapi.CodeInternal || strings.Contains(e.Error(), "\n") {
		t.Errorf("error %d %q", e.Code, e.Error())
	}
}

func checkConf(t *testing.T, c Conf) {
	t.Helper()
	if len(c.Families) == 0 || len(c.Families) > 2 || !slices.Contains([]Mask{MaskPool, MaskBlock, MaskHost}, c.Mask) {
		t.Errorf("families %v, mask %v", c.Families, c.Mask)
	}
	for _, path := range []string{c.Socket, c.LockFile, c.Datastore.Path} {
		if !strings.HasPrefix(path, "/") {
			t.Errorf("path %q", path)
		}
	}
	for _, r := range c.Routes {
		if !r.Dst.IsValid() || r.Gateway.IsValid() && r.Gateway.Is4() != r.Dst.Addr().Is4() {
			t.Errorf("route %v", r)
		}
	}
	checkPlain(t, c.static)
}

func checkPlain(t *testing.T, as []netip.Addr) {
	t.Helper()
	for _, a := range as {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
			t.Errorf("address %v", a)
		}
	}
}

// FuzzArgs: any CNI_ARGS is refused with a code, or gives names that are legal and
// addresses that are plain.
func FuzzArgs(f *testing.F) {
	f.Add("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=95f1;IP=10.0.0.5,fd00::1/64")
	f.Add(";;=;IP=;IP=x;K8S_POD_NAME==")
	f.Fuzz(func(t *testing.T, s string) {
		_, err := parseArgs(s, strict)
		checkError(t, err)
		a, err := parseArgs(s, lenient)
		if err != nil {
			t.Errorf("INV-10: lenient: %v", err)
		}
		for _, v := range []string{a.pod.Namespace, a.pod.Name, a.pod.UID} {
			if len(v) > 253 || strings.ContainsAny(v, " \t\n/=;\x00") {
				t.Errorf("name %q", v)
			}
		}
		checkPlain(t, a.static)
	})
}

// FuzzGC: a list is refused, or every entry of it names an attachment; it is nil
// in no case (INV-2).
func FuzzGC(f *testing.F) {
	f.Add([]byte(`{"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}],"cni.dev/attachments":[]}`))
	f.Add([]byte(`{"cni.dev/valid-attachments":null}`))
	f.Add([]byte(`{"cni.dev/attachments":[null]}`))
	f.Fuzz(func(t *testing.T, stdin []byte) {
		r, err := gcRequest(Conf{Name: "net", Raw: stdin})
		if err != nil {
			checkError(t, err)
			return
		}
		if r.Valid == nil {
			t.Error("nil list")
		}
		for _, a := range r.Valid {
			if utils.ValidateContainerID(a.ContainerID) != nil || utils.ValidateInterfaceName(a.IfName) != nil {
				t.Errorf("entry %+v", a)
			}
		}
	})
}

// FuzzPrevResult: prevResult is refused, or gives one address at least.
func FuzzPrevResult(f *testing.F) {
	f.Add([]byte(`{"prevResult":{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.5/16"},{"address":"fd00::5/64"}]}}`))
	f.Add([]byte(`{"prevResult":{"ips":[{"address":"fe80::1%eth0/64"}]}}`))
	f.Fuzz(func(t *testing.T, stdin []byte) {
		r, err := checkRequest(cmdArgs("", ""), Conf{Name: "net", Raw: stdin}, cniArgs{})
		if err != nil {
			checkError(t, err)
			return
		}
		if len(r.Addrs) == 0 {
			t.Error("no address")
		}
		checkPlain(t, r.Addrs)
	})
}
