// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/cni/agentapi"
)

var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.AllowUnexported(Conf{}, cniArgs{}),
}

// conf puts an ipam object's fields into a network configuration.
func conf(ipam string) string {
	if ipam != "" {
		ipam = "," + ipam
	}
	return `{"cniVersion":"1.1.0","name":"net","type":"macvlan","ipam":{"type":"allod"` + ipam + `}}`
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func defaults() Conf {
	return Conf{
		CNIVersion: "1.1.0", Name: "net", Type: "macvlan", Families: []Family{IPv4}, Mask: MaskPool,
		Socket: "/run/allod/agent.sock", LockFile: "/run/allod/host.lock",
		Datastore: Datastore{Path: "/var/lib/allod/ipam.db", Kubeconfig: "/etc/cni/net.d/allod.d/kubeconfig"},
	}
}

func TestConf(t *testing.T) {
	for name, c := range map[string]struct {
		stdin string
		want  func(*Conf)
	}{
		"everything has a default": {conf(""), func(*Conf) {}},
		"null is absent": {
			conf(`"families":null,"mask":null,"routes":null,"dns":null,"socket":null,"datastore":null`),
			func(*Conf) {},
		},
		"families": {conf(`"families":["IPv6","IPv4"]`), func(c *Conf) { c.Families = []Family{IPv6, IPv4} }},
		"pools by name and CIDR": {conf(`"ipv4Pools":["default-v4","10.0.0.0/8"],"ipv6Pools":["FD00:0::/64"]`), func(c *Conf) {
			c.IPv4Pools, c.IPv6Pools = []string{"default-v4", "10.0.0.0/8"}, []string{"fd00::/64"}
		}},
		"no pools":  {conf(`"ipv4Pools":[],"ipv6Pools":[]`), func(*Conf) {}},
		"mask":      {conf(`"mask":"block"`), func(c *Conf) { c.Mask = MaskBlock }},
		"no routes": {conf(`"routes":[]`), func(c *Conf) { c.Routes = []Route{} }},
		"routes": {conf(`"routes":[{"dst":"0.0.0.0/0"},{"dst":"fd00::/8","gw":"fe80::1"}]`), func(c *Conf) {
			c.Routes = []Route{
				{Dst: netip.MustParsePrefix("0.0.0.0/0")},
				{Dst: netip.MustParsePrefix("fd00::/8"), Gateway: netip.MustParseAddr("fe80::1")},
			}
		}},
		"dns": {conf(`"dns":{"nameservers":["10.0.0.10","fe80::1%eth0"],"domain":"a.b","search":["b"],"options":["ndots:5"]}`), func(c *Conf) {
			c.DNS = DNS{Nameservers: []string{"10.0.0.10", "fe80::1%eth0"}, Domain: "a.b", Search: []string{"b"}, Options: []string{"ndots:5"}}
		}},
		"paths": {conf(`"socket":"/s//x","agentBinary":"/a","lockFile":"/l","nodeName":"node-1.example"`), func(c *Conf) {
			c.Socket, c.AgentBinary, c.LockFile, c.NodeName = "/s/x", "/a", "/l", "node-1.example"
		}},
		"datastore bolt": {conf(`"datastore":{"type":"bolt","path":"/d"}`), func(c *Conf) { c.Datastore.Type, c.Datastore.Path = StoreBolt, "/d" }},
		"datastore kubernetes": {conf(`"datastore":{"type":"kubernetes","kubeconfig":"/k"}`), func(c *Conf) {
			c.Datastore.Type, c.Datastore.Kubeconfig = StoreKubernetes, "/k"
		}},
		"datastore by its path":       {conf(`"datastore":{"path":"/d"}`), func(c *Conf) { c.Datastore.Type, c.Datastore.Path = StoreBolt, "/d" }},
		"datastore by its kubeconfig": {conf(`"datastore":{"kubeconfig":"/k"}`), func(c *Conf) { c.Datastore.Type, c.Datastore.Kubeconfig = StoreKubernetes, "/k" }},
		"datastore either": {conf(`"datastore":{"kubeconfig":"/k","path":"/d"}`), func(c *Conf) {
			c.Datastore = Datastore{Path: "/d", Kubeconfig: "/k"}
		}},
		"static addresses": {
			strings.Replace(conf(""), `"ipam"`, `"runtimeConfig":{"portMappings":[1],"ips":["10.0.0.5","fd00::5/64","::ffff:10.0.0.6"]},"ipam"`, 1),
			func(c *Conf) { c.static = addrs("10.0.0.5", "fd00::5", "10.0.0.6") },
		},
		"a whole configuration": {`{"cniVersion":"1.1.0","name":"k8s-pod-network","type":"ptp","mtu":1450,"ipam":{"type":"allod",
			"families":["IPv4"],"ipv4Pools":["default-v4"],"ipv6Pools":[],"mask":"pool","routes":[{"dst":"0.0.0.0/0"}],
			"socket":"/run/allod/agent.sock","datastore":{"type":"kubernetes","kubeconfig":"/etc/cni/net.d/allod.d/kubeconfig"}}}`, func(c *Conf) {
			c.Name, c.Type, c.NeedGateway, c.IPv4Pools = "k8s-pod-network", "ptp", true, []string{"default-v4"}
			c.Routes = []Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}}
			c.Datastore.Type, c.Datastore.Kubeconfig = StoreKubernetes, "/etc/cni/net.d/allod.d/kubeconfig"
		}},
		"ptp needs a gateway": {strings.Replace(conf(""), "macvlan", "ptp", 1), func(c *Conf) { c.Type, c.NeedGateway = "ptp", true }},
		"a bridge that is gateway needs one": {
			strings.Replace(conf(""), `"macvlan"`, `"bridge","isGateway":true`, 1),
			func(c *Conf) { c.Type, c.NeedGateway = "bridge", true },
		},
		"a bridge that is default gateway needs one": {
			strings.Replace(conf(""), `"macvlan"`, `"bridge","isDefaultGateway":true`, 1),
			func(c *Conf) { c.Type, c.NeedGateway = "bridge", true },
		},
		"a plain bridge needs none": {
			strings.Replace(conf(""), `"macvlan"`, `"bridge","isGateway":false,"isDefaultGateway":"maybe"`, 1),
			func(c *Conf) { c.Type = "bridge" },
		},
		"isGateway of another plugin": {strings.Replace(conf(""), `"macvlan"`, `"macvlan","isGateway":true`, 1), func(*Conf) {}},
	} {
		t.Run(name, func(t *testing.T) {
			want := defaults()
			c.want(&want)
			want.Raw = []byte(c.stdin)
			for how, s := range map[string]strictness{"strict": strict, "lenient": lenient} {
				got, err := parseConf([]byte(c.stdin), s)
				if err != nil {
					t.Fatalf("%s: %v", how, err)
				}
				if diff := cmp.Diff(want, got, byValue); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

// Every error names the field; and by INV-10 the same configuration does not stop
// a DEL, for which the field keeps its default.
func TestConfErrorsNameTheField(t *testing.T) {
	for name, c := range map[string]struct {
		stdin string
		want  string // starts the details
	}{
		"no ipam":                 {`{"cniVersion":"1.1.0","name":"net","type":"macvlan"}`, "ipam: missing"},
		"null ipam":               {`{"cniVersion":"1.1.0","name":"net","type":"macvlan","ipam":null}`, "ipam: missing"},
		"ipam is a list":          {`{"cniVersion":"1.1.0","name":"net","type":"macvlan","ipam":[]}`, "ipam: is a JSON array, want an object"},
		"no type":                 {`{"cniVersion":"1.1.0","name":"net","type":"macvlan","ipam":{}}`, "ipam.type: missing"},
		"null type":               {`{"cniVersion":"1.1.0","name":"net","type":"macvlan","ipam":{"type":null}}`, "ipam.type: missing"},
		"other type":              {`{"cniVersion":"1.1.0","name":"net","type":"macvlan","ipam":{"type":"host-local"}}`, `ipam.type: "host-local", want "allod"`},
		"unknown field":           {conf(`"subnet":"10.0.0.0/8"`), "ipam.subnet: unknown field (known: agentBinary, datastore, dns, families,"},
		"field in other case":     {conf(`"Mask":"pool"`), "ipam.Mask: unknown field"},
		"families no list":        {conf(`"families":"IPv4"`), "ipam.families: is a JSON string, want a list"},
		"families empty":          {conf(`"families":[]`), "ipam.families: empty"},
		"families unknown":        {conf(`"families":["IPv4","ipv6"]`), `ipam.families[1]: "ipv6", want one of IPv4, IPv6`},
		"families twice":          {conf(`"families":["IPv4","IPv4"]`), "ipam.families[1]: IPv4 twice"},
		"pools no strings":        {conf(`"ipv4Pools":[1]`), "ipam.ipv4Pools: is a JSON number, want a string"},
		"pool empty":              {conf(`"ipv4Pools":["a",""]`), `ipam.ipv4Pools[1]: "" is neither`},
		"pool an address":         {conf(`"ipv4Pools":["10.0.0.1"]`), `ipam.ipv4Pools[0]: "10.0.0.1" is neither`},
		"pool in capitals":        {conf(`"ipv6Pools":["Default"]`), `ipam.ipv6Pools[0]: "Default" is neither`},
		"pool no CIDR":            {conf(`"ipv4Pools":["10.0.0.0/33"]`), `ipam.ipv4Pools[0]: "10.0.0.0/33" is not a CIDR`},
		"pool with host bits":     {conf(`"ipv4Pools":["10.0.0.1/8"]`), "ipam.ipv4Pools[0]: 10.0.0.1/8 has bits set beyond its length; the network is 10.0.0.0/8"},
		"pool of other family":    {conf(`"ipv6Pools":["10.0.0.0/8"]`), "ipam.ipv6Pools[0]: 10.0.0.0/8 is IPv4"},
		"mask":                    {conf(`"mask":"26"`), `ipam.mask: "26", want one of pool, block, host`},
		"mask no string":          {conf(`"mask":26`), "ipam.mask: is a JSON number, want a string"},
		"route without dst":       {conf(`"routes":[{}]`), `ipam.routes[0].dst: "" is not a CIDR`},
		"route with host bits":    {conf(`"routes":[{"dst":"10.0.0.1/8"}]`), "ipam.routes[0].dst: 10.0.0.1/8 has bits"},
		"route with a bad gw":     {conf(`"routes":[{"dst":"10.0.0.0/8","gw":"x"}]`), `ipam.routes[0].gw: "x" is not an address`},
		"route's gw of other":     {conf(`"routes":[{"dst":"10.0.0.0/8","gw":"fd00::1"}]`), "ipam.routes[0].gw: fd00::1 is IPv6, dst is not"},
		"route's unknown field":   {conf(`"routes":[{"dst":"10.0.0.0/8","via":"x"}]`), `ipam.routes: unknown field "via"`},
		"routes no list":          {conf(`"routes":{}`), "ipam.routes: is a JSON object, want a list"},
		"dns unknown field":       {conf(`"dns":{"nameserver":[]}`), "ipam.dns.nameserver: unknown field (known: domain, nameservers, options, search)"},
		"dns nameserver":          {conf(`"dns":{"nameservers":["ns1"]}`), `ipam.dns.nameservers[0]: "ns1" is not an address`},
		"dns domain":              {conf(`"dns":{"domain":"a b"}`), "ipam.dns.domain: "},
		"dns search":              {conf(`"dns":{"search":["a",""]}`), "ipam.dns.search[1]: "},
		"dns options":             {conf(`"dns":{"options":["a\nb"]}`), "ipam.dns.options[0]: "},
		"socket relative":         {conf(`"socket":"run/x"`), `ipam.socket: "run/x" is not an absolute path`},
		"socket too long":         {conf(`"socket":"/` + strings.Repeat("x", 107) + `"`), "ipam.socket: longer than the 107 bytes"},
		"agentBinary relative":    {conf(`"agentBinary":"allod-agent"`), "ipam.agentBinary: "},
		"lockFile empty":          {conf(`"lockFile":""`), "ipam.lockFile: "},
		"nodeName":                {conf(`"nodeName":"Node_1"`), "ipam.nodeName: "},
		"nodeName too long":       {conf(`"nodeName":"` + strings.Repeat("x", 254) + `"`), "ipam.nodeName: "},
		"datastore no object":     {conf(`"datastore":"bolt"`), "ipam.datastore: is a JSON string, want an object"},
		"datastore type":          {conf(`"datastore":{"type":"etcd"}`), `ipam.datastore.type: "etcd", want one of bolt, kubernetes`},
		"datastore path":          {conf(`"datastore":{"path":"x"}`), "ipam.datastore.path: "},
		"datastore kubeconfig":    {conf(`"datastore":{"kubeconfig":7}`), "ipam.datastore.kubeconfig: is a JSON number"},
		"datastore unknown field": {conf(`"datastore":{"file":"/x"}`), "ipam.datastore.file: unknown field (known: kubeconfig, path, type)"},
		"runtimeConfig no object": {`{"cniVersion":"1.1.0","name":"net","type":"macvlan","ipam":{"type":"allod"},"runtimeConfig":1}`, "runtimeConfig: is a JSON number"},
		"ips no list":             {`{"cniVersion":"1.1.0","name":"net","type":"macvlan","ipam":{"type":"allod"},"runtimeConfig":{"ips":"10.0.0.5"}}`, "runtimeConfig.ips: is a JSON string, want a list"},
		"ips no address":          {`{"cniVersion":"1.1.0","name":"net","type":"macvlan","ipam":{"type":"allod"},"runtimeConfig":{"ips":["10.0.0.5","x"]}}`, `runtimeConfig.ips[1]: "x" is not an address`},
		"ips bad length":          {`{"cniVersion":"1.1.0","name":"net","type":"macvlan","ipam":{"type":"allod"},"runtimeConfig":{"ips":["10.0.0.5/33"]}}`, "runtimeConfig.ips[0]: "},
		"ips multicast":           {`{"cniVersion":"1.1.0","name":"net","type":"macvlan","ipam":{"type":"allod"},"runtimeConfig":{"ips":["224.0.0.1"]}}`, "runtimeConfig.ips[0]: "},
		"ips zone":                {`{"cniVersion":"1.1.0","name":"net","type":"macvlan","ipam":{"type":"allod"},"runtimeConfig":{"ips":["fe80::1%eth0"]}}`, "runtimeConfig.ips[0]: "},
		"ips twice":               {`{"cniVersion":"1.1.0","name":"net","type":"macvlan","ipam":{"type":"allod"},"runtimeConfig":{"ips":["10.0.0.5","10.0.0.5/8"]}}`, "runtimeConfig.ips[1]: 10.0.0.5 twice"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseConf([]byte(c.stdin), strict)
			e, ok := errors.AsType[*agentapi.Error](err)
			if !ok {
				t.Fatalf("got %T %v", err, err)
			}
			if e.Code != agentapi.CodeBadConfig || !strings.HasPrefix(e.Details, c.want) {
				t.Errorf("code %d, details %q: want code %d, details %q…", e.Code, e.Details, agentapi.CodeBadConfig, c.want)
			}

			got, err := parseConf([]byte(c.stdin), lenient)
			if strings.HasPrefix(c.want, "ipam.datastore") { // it decides where to release
				if e := agentapi.AsError(err); e == nil || e.Code != agentapi.CodeBadConfig || !strings.HasPrefix(e.Details, c.want) {
					t.Errorf("lenient: %v, want code %d that names the field", err, agentapi.CodeBadConfig)
				}
				return
			}
			if err != nil {
				t.Fatalf("INV-10: lenient: %v", err)
			}
			if strings.HasPrefix(c.want, "ipam.nodeName") != (got.badNode != nil) {
				t.Errorf("lenient: a node name that cannot be read is noted as %v", got.badNode)
			}
			want := defaults()
			want.Raw, got.badNode = []byte(c.stdin), nil
			if diff := cmp.Diff(want, got, byValue); diff != "" {
				t.Errorf("INV-10: lenient (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConfReportsAllErrorsAtOnce(t *testing.T) {
	_, err := parseConf([]byte(conf(`"mask":"x","nodeName":"_","colour":"red"`)), strict)
	for _, field := range []string{"ipam.mask", "ipam.nodeName", "ipam.colour"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in: %v", field, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
}

// Lenient keeps the good fields beside a bad one, also within an object: a DEL
// has to find the store that the ADD used.
func TestLenientKeepsGoodFields(t *testing.T) {
	got, err := parseConf([]byte(conf(`"socket":"/s","mask":5,"datastore":{"type":"bolt","path":"/d"}`)), lenient)
	if err != nil || got.Socket != "/s" || got.Datastore.Path != "/d" || got.Mask != MaskPool {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestConfUndecodable(t *testing.T) {
	for name, stdin := range map[string]string{"empty": "", "cut": `{"name":`, "a list": "[]", "type is a number": `{"type":5}`} {
		for how, s := range map[string]strictness{"strict": strict, "lenient": lenient} {
			_, err := parseConf([]byte(stdin), s)
			if e, ok := errors.AsType[*agentapi.Error](err); !ok || e.Code != agentapi.CodeUndecodable {
				t.Errorf("%s, %s: got %v", name, how, err)
			}
		}
	}
}

// The configured store, else Kubernetes if its kubeconfig is there, else the embedded
// store if its file is.
func TestChooseStore(t *testing.T) {
	for _, tt := range []struct {
		typ    StoreType
		exists []string
		hidden string // cannot be looked at
		want   StoreType
	}{
		{StoreBolt, []string{"/k"}, "", StoreBolt},
		{StoreKubernetes, []string{"/d"}, "", StoreKubernetes},
		{StoreUnset, []string{"/k", "/d"}, "", StoreKubernetes},
		{StoreUnset, []string{"/d"}, "", StoreBolt},
		{StoreUnset, []string{"/d"}, "/k", StoreUnset}, // another store is never a substitute
		{StoreUnset, nil, "", StoreUnset},
	} {
		d := Datastore{Type: tt.typ, Path: "/d", Kubeconfig: "/k"}
		got, err := d.Choose(func(path string) error {
			switch {
			case path == tt.hidden:
				return &fs.PathError{Op: "stat", Path: path, Err: fs.ErrPermission}
			case slices.Contains(tt.exists, path):
				return nil
			}
			return fs.ErrNotExist
		})
		if got != tt.want || (err != nil) != (tt.want == StoreUnset) {
			t.Errorf("%+v with %v: %q, %v; want %q", d, tt.exists, got, err, tt.want)
		}
		if e := agentapi.AsError(err); err != nil && (e.Code != agentapi.CodeTryAgain || !strings.Contains(e.Error(), "/k")) {
			t.Errorf("no store: %v; want code 11 that names the paths", err)
		}
	}
}
