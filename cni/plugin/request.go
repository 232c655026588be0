// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/allod/allod/cni/agentapi"
)

// addRequest makes the request of an ADD. Without static addresses it asks for
// one of each configured family. A static list decides how many of each there
// are, but must have all the configured families and no other: else a dual-stack
// pod would silently lose one (INV-11).
func addRequest(args *skel.CmdArgs, c Conf, a cniArgs) (agentapi.AddRequest, error) {
	if c.NeedGateway && c.Mask == MaskHost {
		return agentapi.AddRequest{}, &agentapi.Error{
			Code:    agentapi.CodeBadConfig,
			Msg:     fmt.Sprintf("ipam.mask: %q leaves no room for a gateway, and main plugin %s needs one", MaskHost, c.Type),
			Details: fmt.Sprintf("use %q, or %q with pools whose gateway is \"first\"", MaskPool, MaskBlock),
		}
	}
	static, err := staticList(c, a)
	if err != nil {
		return agentapi.AddRequest{}, err
	}
	r := agentapi.AddRequest{
		Attachment:  attachment(args, c),
		Pod:         a.pod,
		Addrs:       static,
		Pools4:      c.IPv4Pools,
		Pools6:      c.IPv6Pools,
		NeedGateway: c.NeedGateway,
		BlockMask:   c.Mask == MaskBlock,
	}
	for _, f := range c.Families {
		n := 1
		if static != nil {
			n = count(static, f)
		}
		if f == IPv4 {
			r.Num4 = n
		} else {
			r.Num6 = n
		}
	}
	return r, nil
}

// staticList gives the static addresses, from whichever source has them.
func staticList(c Conf, a cniArgs) ([]netip.Addr, error) {
	static, source, code := c.static, "runtimeConfig.ips", agentapi.CodeBadConfig
	if len(a.static) > 0 {
		if len(static) > 0 {
			return nil, &agentapi.Error{
				Code:    agentapi.CodeBadEnvironment,
				Msg:     "static addresses both in CNI_ARGS (IP) and in runtimeConfig.ips",
				Details: "use one of the two",
			}
		}
		static, source, code = a.static, "CNI_ARGS: IP", agentapi.CodeBadEnvironment
	}
	if len(static) == 0 {
		return nil, nil
	}
	for _, f := range []Family{IPv4, IPv6} {
		wanted := slices.Contains(c.Families, f)
		if n := count(static, f); wanted != (n > 0) {
			return nil, &agentapi.Error{
				Code:    code,
				Msg:     fmt.Sprintf("%s: %d %s addresses, but ipam.families is %s", source, n, f, familyNames(c.Families)),
				Details: "give addresses of exactly these families, or change ipam.families",
			}
		}
	}
	return static, nil
}

// checkRequest makes the request of a CHECK: the addresses are prevResult's.
func checkRequest(args *skel.CmdArgs, c Conf, a cniArgs) (agentapi.CheckRequest, error) {
	// All versions that know CHECK write ips[].address alike.
	var conf struct {
		PrevResult *struct {
			IPs []struct {
				Address string `json:"address"`
			} `json:"ips"`
		} `json:"prevResult"`
	}
	bad := func(details string) error {
		return &agentapi.Error{Code: agentapi.CodeBadConfig, Msg: "network configuration", Details: details}
	}
	if err := json.Unmarshal(c.Raw, &conf); err != nil {
		return agentapi.CheckRequest{}, bad("prevResult: " + jsonError(err))
	}
	if conf.PrevResult == nil {
		return agentapi.CheckRequest{}, bad("prevResult: missing; CHECK needs the result of the ADD")
	}
	r := agentapi.CheckRequest{Attachment: attachment(args, c), Pod: a.pod}
	for i, ip := range conf.PrevResult.IPs {
		p, err := netip.ParsePrefix(ip.Address)
		if err != nil {
			return agentapi.CheckRequest{}, bad(fmt.Sprintf("prevResult.ips[%d].address: %s is not an address with a prefix length", i, short(ip.Address)))
		}
		addr := p.Addr().Unmap()
		if slices.Contains(r.Addrs, addr) {
			return agentapi.CheckRequest{}, bad(fmt.Sprintf("prevResult.ips[%d].address: %s twice", i, addr))
		}
		r.Addrs = append(r.Addrs, addr)
	}
	if len(r.Addrs) == 0 {
		return agentapi.CheckRequest{}, bad("prevResult.ips: empty")
	}
	return r, nil
}

func attachment(args *skel.CmdArgs, c Conf) agentapi.Attachment {
	return agentapi.Attachment{Network: c.Name, ContainerID: args.ContainerID, IfName: args.IfName}
}

func count(as []netip.Addr, f Family) int {
	n := 0
	for _, a := range as {
		if familyOf(a) == f {
			n++
		}
	}
	return n
}

func familyNames(fs []Family) string {
	var names []string
	for _, f := range fs {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}
