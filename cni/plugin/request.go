// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/allod/allod/cni/agentapi"
)

// addRequest makes the request of an ADD: one address of each configured family,
// or the static addresses, which replace the families.
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
	want := statusRequest(c)
	if len(static) > 0 {
		want.Num4, want.Num6 = count(static, IPv4), count(static, IPv6)
	}
	return agentapi.AddRequest{
		Attachment: attachment(args, c), Pod: a.pod, Addrs: static,
		Num4: want.Num4, Num6: want.Num6, Pools4: want.Pools4, Pools6: want.Pools6,
		NeedGateway: want.NeedGateway, BlockMask: want.BlockMask,
	}, nil
}

// answers refuses a reply that is not what was asked for, by the request or by the
// pod's annotations: whatever sent it, no interface gets an address from it.
func answers(r agentapi.AddRequest, reply agentapi.AddReply) error {
	if a := reply.Asked; a != nil {
		r.Num4, r.Num6, r.Addrs = a.Num4, a.Num6, a.Addrs
	}
	var addrs []netip.Addr
	for _, a := range reply.Addresses {
		if slices.Contains(addrs, a.Addr) {
			return fmt.Errorf("the backend's answer has %s twice", a.Addr)
		}
		addrs = append(addrs, a.Addr)
	}
	if n4, n6 := count(addrs, IPv4), count(addrs, IPv6); n4 != r.Num4 || n6 != r.Num6 {
		return fmt.Errorf("the backend answered %d IPv4 and %d IPv6 addresses to a request for %d and %d", n4, n6, r.Num4, r.Num6)
	}
	for _, a := range r.Addrs {
		if !slices.Contains(addrs, a) {
			return fmt.Errorf("the backend's answer lacks %s, which was asked for", a)
		}
	}
	return nil
}

// statusRequest is what the network asks for of a pod that wants nothing special.
func statusRequest(c Conf) agentapi.StatusRequest {
	r := agentapi.StatusRequest{
		Pools4: c.IPv4Pools, Pools6: c.IPv6Pools, NeedGateway: c.NeedGateway, BlockMask: c.Mask == MaskBlock,
	}
	for _, f := range c.Families {
		if f == IPv4 {
			r.Num4 = 1
		} else {
			r.Num6 = 1
		}
	}
	return r
}

// staticList gives the static addresses, from whichever source has them.
func staticList(c Conf, a cniArgs) ([]netip.Addr, error) {
	switch {
	case len(a.static) == 0:
		return c.static, nil
	case len(c.static) > 0:
		return nil, &agentapi.Error{
			Code:    agentapi.CodeBadEnvironment,
			Msg:     "static addresses both in CNI_ARGS (IP) and in runtimeConfig.ips",
			Details: "use one of the two",
		}
	}
	return a.static, nil
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
