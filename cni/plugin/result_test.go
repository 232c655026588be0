// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/allod/allod/cni/agentapi"
)

// TestResultGolden prints the result of every mask, family and version. A case is
// "result version=… give=(…)" over a network configuration; what it prints is also
// read back as libcni reads a result of that version.
func TestResultGolden(t *testing.T) {
	datadriven.Walk(t, "testdata/result", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var version string
			d.ScanArgs(t, "version", &version)
			give, _ := d.Arg("give")
			var reply agentapi.AddReply
			for _, name := range give.Vals {
				reply.Addresses = append(reply.Addresses, given(t, name))
			}
			c, err := parseConf([]byte(d.Input), strict)
			if err != nil {
				t.Fatal(err)
			}
			res, err := result(c, reply)
			if err != nil {
				return "error: " + err.Error()
			}
			converted, err := res.GetAsVersion(version)
			if err != nil {
				t.Fatal(err)
			}
			var printed, line bytes.Buffer
			if err := errors.Join(converted.PrintTo(&printed), json.Compact(&line, printed.Bytes())); err != nil {
				t.Fatal(err)
			}
			if _, err := create.Create(version, printed.Bytes()); err != nil {
				t.Fatalf("not a result of version %s: %v", version, err)
			}
			return line.String()
		})
	})
}

// given is an address by the name it has in the golden files.
func given(t *testing.T, name string) agentapi.Address {
	t.Helper()
	p, a := netip.MustParsePrefix, netip.MustParseAddr
	all := map[string]agentapi.Address{
		"v4":       {Addr: a("10.64.0.70"), Block: p("10.64.0.64/26"), Pool: p("10.64.0.0/16"), Gateway: a("10.64.0.1")},
		"v4-first": {Addr: a("10.64.0.70"), Block: p("10.64.0.64/26"), Pool: p("10.64.0.0/16"), Gateway: a("10.64.0.64")},
		"v4-none":  {Addr: a("10.64.0.70"), Block: p("10.64.0.64/26"), Pool: p("10.64.0.0/16")},
		"v4-other": {Addr: a("10.64.3.9"), Block: p("10.64.3.0/26"), Pool: p("10.64.0.0/16"), Gateway: a("10.64.0.1")},
		"v6":       {Addr: a("fd00::46"), Block: p("fd00::40/122"), Pool: p("fd00::/64"), Gateway: a("fd00::1")},
		"v6-first": {Addr: a("fd00::46"), Block: p("fd00::40/122"), Pool: p("fd00::/64"), Gateway: a("fd00::40")},
	}
	got, ok := all[name]
	if !ok {
		t.Fatalf("no address %q", name)
	}
	return got
}

// A reply that makes no sense is an error, never a panic or a wrong address.
func TestResultRefusesNonsense(t *testing.T) {
	p, a := netip.MustParsePrefix, netip.MustParseAddr
	for name, addresses := range map[string][]agentapi.Address{
		"no address":         nil,
		"zero":               {{}},
		"no block":           {{Addr: a("10.0.0.5"), Pool: p("10.0.0.0/16")}},
		"no pool":            {{Addr: a("10.0.0.5"), Block: p("10.0.0.0/26")}},
		"outside its block":  {{Addr: a("10.0.0.70"), Block: p("10.0.0.0/26"), Pool: p("10.0.0.0/16")}},
		"outside its pool":   {{Addr: a("10.0.0.5"), Block: p("10.0.0.0/26"), Pool: p("10.1.0.0/16")}},
		"block of the other": {{Addr: a("10.0.0.5"), Block: p("fd00::/122"), Pool: p("10.0.0.0/16")}},
		"mapped":             {{Addr: a("::ffff:10.0.0.5"), Block: p("::ffff:10.0.0.0/122"), Pool: p("::ffff:10.0.0.0/112")}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := result(Conf{Mask: MaskPool}, agentapi.AddReply{Addresses: addresses})
			if e, ok := errors.AsType[*agentapi.Error](err); !ok || e.Code != agentapi.CodeInternal {
				t.Errorf("got %v", err)
			}
		})
	}
}
