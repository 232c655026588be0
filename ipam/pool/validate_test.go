// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// comparers for values that go-cmp cannot look into.
var comparers = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

// valid returns a pool of c with defaults, changed by each edit.
func valid(name, c string, edits ...func(*Pool)) Pool {
	p := Pool{Name: name, Spec: Spec{CIDR: cidr(c)}}
	for _, e := range edits {
		e(&p)
	}
	p.Spec = p.Spec.WithDefaults()
	return p
}

func spec(edit func(*Spec)) func(*Pool) { return func(p *Pool) { edit(&p.Spec) } }

func TestWithDefaults(t *testing.T) {
	both := []Use{UseWorkload, UseTunnel}
	for _, c := range []struct {
		name     string
		in, want Spec
	}{
		{"IPv4", Spec{CIDR: cidr("10.0.0.0/16")}, Spec{CIDR: cidr("10.0.0.0/16"), BlockSize: 26, AllowedUses: both}},
		{"IPv6", Spec{CIDR: cidr("fd00::/64")}, Spec{CIDR: cidr("fd00::/64"), BlockSize: 122, AllowedUses: both}},
		{"case C5: /31", Spec{CIDR: cidr("10.0.0.0/31")}, Spec{CIDR: cidr("10.0.0.0/31"), BlockSize: 31, AllowedUses: both}},
		{"case C5: /32", Spec{CIDR: cidr("10.0.0.0/32")}, Spec{CIDR: cidr("10.0.0.0/32"), BlockSize: 32, AllowedUses: both}},
		{"case C5: /127", Spec{CIDR: cidr("fd00::/127")}, Spec{CIDR: cidr("fd00::/127"), BlockSize: 127, AllowedUses: both}},
		{"case C5: /128", Spec{CIDR: cidr("fd00::/128")}, Spec{CIDR: cidr("fd00::/128"), BlockSize: 128, AllowedUses: both}},
		{"no CIDR yet", Spec{}, Spec{AllowedUses: both}},
		{
			"a namespaceSelector rules tunnels out",
			Spec{CIDR: cidr("10.0.0.0/16"), NamespaceSelector: "a"},
			Spec{CIDR: cidr("10.0.0.0/16"), NamespaceSelector: "a", BlockSize: 26, AllowedUses: []Use{UseWorkload}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.AssignmentMode, c.want.IPIPMode, c.want.VXLANMode = Automatic, Never, Never
			if d := cmp.Diff(c.want, c.in.WithDefaults(), comparers); d != "" {
				t.Errorf("defaults (-want +got):\n%s", d)
			}
		})
	}
	t.Run("what is set stays", func(t *testing.T) {
		in := Spec{
			CIDR: cidr("10.0.0.0/16"), BlockSize: 28, AllowedUses: []Use{UseTunnel}, AssignmentMode: Manual,
			IPIPMode: Always, VXLANMode: CrossSubnet,
		}
		if d := cmp.Diff(in, in.WithDefaults(), comparers); d != "" {
			t.Errorf("defaults changed what was set (-want +got):\n%s", d)
		}
	})
}

func TestPoolValidate(t *testing.T) {
	mappedPool := Spec{CIDR: netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 120)}
	for _, c := range []struct {
		name string
		pool Pool
		want []string // how each line of the error begins, in order; none = valid
	}{
		{"IPv4", valid("a", "10.0.0.0/16"), nil},
		{"IPv6", valid("a", "fd00::/48"), nil},
		{"/8 of /24 blocks", valid("a", "10.0.0.0/8", spec(func(s *Spec) { s.BlockSize = 24 })), nil},
		{"case C5: /31", valid("a", "10.0.0.0/31"), nil},
		{"case C5: /32", valid("a", "10.0.0.7/32"), nil},
		{"case C5: /127", valid("a", "fd00::/127"), nil},
		{"case C5: /128", valid("a", "fd00::7/128"), nil},
		{"everything set", valid("a.b", "10.0.0.0/16", spec(func(s *Spec) {
			s.Gateway.Addr, s.NodeSelector, s.VXLANMode = netip.MustParseAddr("10.0.0.1"), "zone in (a, b),!gpu", CrossSubnet
			s.AllowedUses, s.NamespaceSelector, s.AssignmentMode = []Use{UseWorkload}, "team=x", Manual
		})), nil},
		{"LoadBalancer", valid("a", "10.0.0.0/24", spec(func(s *Spec) {
			s.AllowedUses, s.NamespaceSelector = []Use{UseLoadBalancer}, "team=x"
		})), nil},

		{"defaults not filled in", Pool{Name: "a", Spec: Spec{CIDR: cidr("10.0.0.0/16")}}, []string{
			"spec.blockSize: 0", "spec.allowedUses: empty", "spec.assignmentMode: unknown mode", "spec.ipipMode: unknown mode", "spec.vxlanMode: unknown mode",
		}},
		{"no CIDR", Pool{Name: "a", Spec: Spec{}.WithDefaults()}, []string{"spec.cidr: missing"}},
		{"host bits", valid("a", "10.0.0.1/16"), []string{"spec.cidr: 10.0.0.1/16 has host bits set; write 10.0.0.0/16"}},
		{"IPv4-mapped", Pool{Name: "a", Spec: mappedPool.WithDefaults()}, []string{"spec.cidr: ::ffff:10.0.0.0/120 is an IPv4-mapped"}},
		{"around the IPv4-mapped range", valid("a", "::fffe:0:0/95"), []string{"spec.cidr: ::fffe:0:0/95 overlaps ::ffff:0.0.0.0/96 (IPv4-mapped)"}},
		{"unspecified", valid("a", "0.0.0.0/0"), []string{"spec.cidr: 0.0.0.0/0 overlaps 0.0.0.0/8 (unspecified)"}},
		{"IPv6 unspecified", valid("a", "::/64"), []string{"spec.cidr: ::/64 overlaps ::/128 (unspecified)"}},
		{"loopback", valid("a", "127.0.0.0/24"), []string{"spec.cidr: 127.0.0.0/24 overlaps 127.0.0.0/8 (loopback)"}},
		{"IPv6 loopback", valid("a", "::1/128"), []string{"spec.cidr: ::1/128 overlaps ::1/128 (loopback)"}},
		{"link-local", valid("a", "169.254.1.0/24"), []string{"spec.cidr: 169.254.1.0/24 overlaps 169.254.0.0/16 (link-local)"}},
		{"around link-local", valid("a", "169.0.0.0/8"), []string{"spec.cidr: 169.0.0.0/8 overlaps 169.254.0.0/16 (link-local)"}},
		{"IPv6 link-local", valid("a", "fe80::/64"), []string{"spec.cidr: fe80::/64 overlaps fe80::/10 (link-local)"}},
		{"multicast", valid("a", "239.1.0.0/16"), []string{"spec.cidr: 239.1.0.0/16 overlaps 224.0.0.0/4 (multicast)"}},
		{"IPv6 multicast", valid("a", "ff02::/64"), []string{"spec.cidr: ff02::/64 overlaps ff00::/8 (multicast)"}},
		{"case C1: top of IPv4", valid("a", "255.255.255.0/24"), []string{"spec.cidr: 255.255.255.0/24 overlaps 255.255.255.255/32 (broadcast)"}},
		{"case C1: top of IPv6", valid("a", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120"), []string{"spec.cidr: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120 overlaps ff00::/8"}},

		{"case C2: IPv4 blocks too large", valid("a", "10.0.0.0/8", spec(func(s *Spec) { s.BlockSize = 23 })), []string{"spec.blockSize: 23 does not fit 10.0.0.0/8; choose 24 to 32"}},
		{"case C2: IPv4 block size for IPv6", valid("a", "fd00::/64", spec(func(s *Spec) { s.BlockSize = 26 })), []string{"spec.blockSize: 26 does not fit fd00::/64; choose 120 to 128"}},
		{"IPv6 blocks too large", valid("a", "fd00::/64", spec(func(s *Spec) { s.BlockSize = 119 })), []string{"spec.blockSize: 119"}},
		{"blocks too small", valid("a", "10.0.0.0/24", spec(func(s *Spec) { s.BlockSize = 33 })), []string{"spec.blockSize: 33"}},
		{"negative", valid("a", "10.0.0.0/24", spec(func(s *Spec) { s.BlockSize = -1 })), []string{"spec.blockSize: -1"}},
		{"block larger than the pool", valid("a", "10.0.0.0/28", spec(func(s *Spec) { s.BlockSize = 26 })), []string{"spec.blockSize: 26 does not fit 10.0.0.0/28; choose 28 to 32"}},

		{"gateway outside", valid("a", "10.0.0.0/24", spec(func(s *Spec) { s.Gateway.Addr = netip.MustParseAddr("10.0.1.1") })), []string{"spec.gateway: 10.0.1.1 is not in spec.cidr 10.0.0.0/24"}},
		{"gateway of the other family", valid("a", "10.0.0.0/24", spec(func(s *Spec) { s.Gateway.Addr = netip.MustParseAddr("fd00::1") })), []string{"spec.gateway: fd00::1 is not in"}},
		{"gateway IPv4-mapped", valid("a", "10.0.0.0/24", spec(func(s *Spec) { s.Gateway.Addr = netip.MustParseAddr("::ffff:10.0.0.1") })), []string{"spec.gateway: ::ffff:10.0.0.1 is not in"}},
		{"gateway with a zone", valid("a", "fd00::/64", spec(func(s *Spec) { s.Gateway.Addr = netip.MustParseAddr("fd00::1%eth0") })), []string{"spec.gateway: fd00::1%eth0 is not in"}},
		{"gateway first and an address", valid("a", "10.0.0.0/24", spec(func(s *Spec) { s.Gateway = Gateway{true, netip.MustParseAddr("10.0.0.1")} })), []string{`spec.gateway: both "first" and 10.0.0.1`}},
		{"gateway first of two", valid("a", "10.0.0.0/24", spec(func(s *Spec) { s.Gateway.First, s.BlockSize = true, 31 })), nil},
		{"gateway first of one", valid("a", "10.0.0.0/24", spec(func(s *Spec) { s.Gateway.First, s.BlockSize = true, 32 })), []string{`spec.gateway: "first" takes the only address of each block of /32; set spec.blockSize to 31`}},
		{"gateway first of a pool of one", valid("a", "10.0.0.0/32", spec(func(s *Spec) { s.Gateway.First = true })), []string{`spec.gateway: "first"`}},
		{"gateway first of one, IPv6", valid("a", "fd00::/64", spec(func(s *Spec) { s.Gateway.First, s.BlockSize = true, 128 })), []string{`spec.gateway: "first"`}},

		{"all()", valid("a", "10.0.0.0/24", spec(func(s *Spec) { s.NodeSelector = "all()" })), []string{`spec.nodeSelector: "all()"`}},
		{"both selectors", valid("a", "10.0.0.0/24", spec(func(s *Spec) {
			s.NodeSelector, s.NamespaceSelector = "a && b", "team == 'x'"
		})), []string{"spec.nodeSelector:", "spec.namespaceSelector:"}},

		{"unknown use", valid("a", "10.0.0.0/24", spec(func(s *Spec) { s.AllowedUses = []Use{"workload"} })), []string{`spec.allowedUses: unknown use "workload"`}},
		{"use twice", valid("a", "10.0.0.0/24", spec(func(s *Spec) { s.AllowedUses = []Use{UseTunnel, UseTunnel} })), []string{"spec.allowedUses: Tunnel is listed twice"}},
		{"LoadBalancer with all it must not have", valid("a", "10.0.0.0/24", spec(func(s *Spec) {
			s.AllowedUses, s.NodeSelector, s.VXLANMode = []Use{UseWorkload, UseLoadBalancer}, "a", Always
		})), []string{"spec.allowedUses: LoadBalancer cannot be combined", "spec.allowedUses: LoadBalancer addresses belong to no node", "spec.allowedUses: LoadBalancer addresses are not encapsulated"}},
		{"Tunnel with a namespaceSelector", valid("a", "10.0.0.0/24", spec(func(s *Spec) {
			s.AllowedUses, s.NamespaceSelector = []Use{UseTunnel}, "a"
		})), []string{"spec.allowedUses: Tunnel addresses belong to no namespace"}},

		{"ipip on IPv6", valid("a", "fd00::/64", spec(func(s *Spec) { s.IPIPMode = Always })), []string{"spec.ipipMode: IPIP carries IPv4 only"}},
		{"both tunnels", valid("a", "10.0.0.0/24", spec(func(s *Spec) { s.IPIPMode, s.VXLANMode = Always, CrossSubnet })), []string{"spec.ipipMode: cannot be on together"}},
		{"unknown modes", valid("a", "10.0.0.0/24", spec(func(s *Spec) { s.IPIPMode, s.VXLANMode, s.AssignmentMode = "On", "Off", "auto" })), []string{
			`spec.assignmentMode: unknown mode "auto"`, `spec.ipipMode: unknown mode "On"`, `spec.vxlanMode: unknown mode "Off"`,
		}},

		{"no name", valid("", "10.0.0.0/24"), []string{"metadata.name:"}},
		{"case S5: capitals", valid("Default", "10.0.0.0/24"), []string{`metadata.name: "Default"`}},
		{"case S5: 253 characters", valid(strings.Repeat("a", 253), "10.0.0.0/24"), nil},
		{"case S5: 254 characters", valid(strings.Repeat("a", 254), "10.0.0.0/24"), []string{"metadata.name:"}},
		{"a name like a CIDR", valid("10.0.0.0/24", "10.0.0.0/24"), []string{"metadata.name:"}},
		{"several faults are all told", valid("A", "10.0.0.1/24", spec(func(s *Spec) { s.AssignmentMode = "x" })), []string{"spec.cidr:", "spec.assignmentMode:", "metadata.name:"}},
	} {
		t.Run(c.name, func(t *testing.T) { checkLines(t, c.pool.Validate(), c.want) })
	}
}

// checkLines requires one line of err for each beginning in want.
func checkLines(t *testing.T, err error, want []string) {
	t.Helper()
	var got []string
	if err != nil {
		got = strings.Split(err.Error(), "\n")
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("error:\n  %s\nwant lines beginning\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestSelectorHints(t *testing.T) {
	for _, c := range []struct{ text, hint string }{
		{"all()", "leave it empty to select all"},
		{"has(gpu)", "write the key alone"},
		{"a == b && c", "separate requirements with commas"},
		{"a == b || c", "key in (a, b)"},
		{"team == 'x'", "without quotes"},
		{`team == "x"`, "without quotes"},
		{"team=-x", "use the Kubernetes syntax"},
	} {
		t.Run(c.text, func(t *testing.T) {
			err := validateSelector("spec.nodeSelector", c.text)
			if err == nil || !strings.Contains(err.Error(), c.hint) {
				t.Errorf("error %v; want the hint %q", err, c.hint)
			}
		})
	}
}

func TestReservationValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Reservation
		want []string
	}{
		{"nested, both families", Reservation{"a", cidrs("10.0.0.0/8", "10.0.0.0/24", "10.0.0.7/32", "fd00::/64")}, nil},
		{"anything may be reserved", Reservation{"a", cidrs("0.0.0.0/0", "255.255.255.255/32", "ff00::/8")}, nil},
		{"nothing reserved", Reservation{"a", nil}, []string{"spec.reservedCIDRs: empty; name at least one CIDR"}},
		{"each fault by its index", Reservation{"A", []netip.Prefix{cidr("10.0.0.0/8"), cidr("10.0.0.1/8"), {}}}, []string{
			`metadata.name: "A"`, "spec.reservedCIDRs[1]: 10.0.0.1/8 has host bits set; write 10.0.0.0/8", "spec.reservedCIDRs[2]: missing or not a CIDR",
		}},
		{"IPv4-mapped", Reservation{"a", []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 120)}}, []string{"spec.reservedCIDRs[0]: ::ffff:10.0.0.0/120 is an IPv4-mapped"}},
	} {
		t.Run(c.name, func(t *testing.T) { checkLines(t, c.r.Validate(), c.want) })
	}
}

func TestValidateChange(t *testing.T) {
	old := valid("a", "10.0.0.0/16")
	for _, c := range []struct {
		name string
		to   Pool
		want []string
	}{
		{"nothing", old, nil},
		{"case C8: the block size is admission's to judge", valid("a", "10.0.0.0/16", spec(func(s *Spec) { s.BlockSize = 28 })), nil},
		{"CIDR", valid("a", "10.0.0.0/15"), []string{"spec.cidr: cannot change from 10.0.0.0/16 to 10.0.0.0/15"}},
	} {
		t.Run(c.name, func(t *testing.T) { checkLines(t, c.to.ValidateChange(old), c.want) })
	}
}

func TestPoolBlocksAndGateways(t *testing.T) {
	a := netip.MustParseAddr
	for _, c := range []struct {
		name    string
		pool    Pool
		addr    netip.Addr
		block   netip.Prefix
		gateway netip.Addr
	}{
		{"no gateway", small("10.0.0.0/16", 26, ""), a("10.0.1.70"), cidr("10.0.1.64/26"), netip.Addr{}},
		{"fixed", small("10.0.0.0/16", 26, "10.0.0.1"), a("10.0.1.70"), cidr("10.0.1.64/26"), a("10.0.0.1")},
		{"first", small("10.0.0.0/16", 26, "first"), a("10.0.1.70"), cidr("10.0.1.64/26"), a("10.0.1.64")},
		{"first, IPv6", small("fd00::/48", 122, "first"), a("fd00::1:47"), cidr("fd00::1:40/122"), a("fd00::1:40")},
		{"case C5: a pool of one", small("fd00::7/128", 128, ""), a("fd00::7"), cidr("fd00::7/128"), netip.Addr{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			block, ok := c.pool.BlockOf(c.addr)
			if !ok || block != c.block {
				t.Fatalf("BlockOf(%v) = %v, %v; want %v", c.addr, block, ok, c.block)
			}
			if got := c.pool.GatewayOf(block); got != c.gateway {
				t.Errorf("GatewayOf(%v) = %v; want %v", block, got, c.gateway)
			}
			if got := c.pool.HasGateway(); got != c.gateway.IsValid() {
				t.Errorf("HasGateway() = %v", got)
			}
		})
	}
	for _, outside := range []string{"10.1.0.0", "9.255.255.255", "fd00::1", "::ffff:10.0.0.1"} {
		if b, ok := small("10.0.0.0/16", 26, "").BlockOf(a(outside)); ok {
			t.Errorf("BlockOf(%s) = %v; it is outside", outside, b)
		}
	}
	if b, ok := (Pool{}).BlockOf(netip.Addr{}); ok {
		t.Errorf("the zero pool has block %v", b)
	}
}

func TestFamily(t *testing.T) {
	for s, want := range map[string]string{"10.0.0.1": "IPv4", "fd00::1": "IPv6", "::ffff:10.0.0.1": "IPv6"} {
		if got := FamilyOf(netip.MustParseAddr(s)).String(); got != want {
			t.Errorf("FamilyOf(%s) = %s; want %s", s, got, want)
		}
	}
	if got := (Pool{}).Family(); got != 0 || got.String() != "none" {
		t.Errorf("family of no pool: %v", got)
	}
}

// FuzzPool: a pool that validates is walked, counted and judged without a
// surprise; one that does not says which field is wrong.
func FuzzPool(f *testing.F) {
	f.Add("a", "10.0.0.0/16", 26, "first", "10.0.0.0/24", "zone=a", "")
	f.Add("b", "fd00::/48", 122, "fd00::1", "fd00::/49", "", "team in (x,y)")
	f.Add("c", "255.255.255.255/32", 0, "", "::/0", "all()", "!a")
	f.Add("", "::ffff:10.0.0.0/120", -7, "10.0.0.1%eth0", "x", "'", "(")
	f.Fuzz(func(t *testing.T, name, c string, blockSize int, gateway, reserved, nodes, namespaces string) {
		p := Pool{Name: name, Spec: Spec{BlockSize: blockSize, NodeSelector: nodes, NamespaceSelector: namespaces}}
		p.Spec.CIDR, _ = netip.ParsePrefix(c)
		p.Spec.Gateway.First = gateway == "first"
		p.Spec.Gateway.Addr, _ = netip.ParseAddr(gateway)
		p.Spec = p.Spec.WithDefaults()
		rc, _ := netip.ParsePrefix(reserved)
		rs := []Reservation{{Name: "r", CIDRs: []netip.Prefix{rc}}}
		u := NewUnassignable(p, rs)
		walked := 0
		for b := range Walk(p, name, nil, u) {
			if !b.IsValid() || b.Masked() != b || b.Bits() != p.Spec.BlockSize || !p.Spec.CIDR.Overlaps(b) || u.Covers(b) {
				t.Fatalf("pool %+v: walked to %v", p.Spec, b)
			}
			if walked++; walked == 3 {
				break
			}
		}
		err := p.Validate()
		available := UsageOf(p.Spec.CIDR, u, nil, nil).Available.Sign()
		if available < 0 || err == nil && (walked > 0) != (available > 0) {
			t.Fatalf("pool %+v: %d blocks walked, available: %d", p.Spec, walked, available)
		}
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "spec.") && !strings.HasPrefix(line, "metadata.name: ") {
					t.Fatalf("no field named: %q", line)
				}
			}
		}
		if got := Admit([]Pool{p}, nil)[0].Status; got.Allocatable != (err == nil) {
			t.Fatalf("Validate: %v; admitted: %s", err, fmt.Sprint(got))
		}
	})
}

// FuzzSelector: what validates can be evaluated; what does not selects nothing.
func FuzzSelector(f *testing.F) {
	for _, s := range []string{"", " ", "a", "!a", "a=b", "a in (b,c),d notin (e)", "all()", "a>1", "=", "a in (", "a==b,,", "a.b/c"} {
		f.Add(s, "b")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		invalid := validateSelector("spec.nodeSelector", text)
		reason, _ := unselected("spec.nodeSelector", text, "node", "n", map[string]string{"a": value})
		if strings.Contains(reason, "cannot be read") != (invalid != nil) {
			t.Fatalf("validation says %v, selection %q", invalid, reason)
		}
	})
}
