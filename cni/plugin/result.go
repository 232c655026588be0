// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/allod/allod/cni/agentapi"
)

// result makes the CNI result of what the backend gave: the only place where a
// mask is chosen. Like that of any IPAM plugin it has no interfaces; the main
// plugin fills these in.
func result(c Conf, reply agentapi.AddReply) (*types100.Result, error) {
	if len(reply.Addresses) == 0 {
		return nil, badReply("no address")
	}
	res := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Routes:     []*types.Route{},
		DNS: types.DNS{
			Nameservers: c.DNS.Nameservers,
			Domain:      c.DNS.Domain,
			Search:      c.DNS.Search,
			Options:     c.DNS.Options,
		},
	}
	given := map[Family]bool{}
	for _, a := range reply.Addresses {
		ip, err := ipConfig(c, a)
		if err != nil {
			return nil, err
		}
		res.IPs = append(res.IPs, ip)
		given[familyOf(a.Addr)] = true
	}
	for _, r := range resultRoutes(c.Routes) {
		if given[familyOf(r.Dst.Addr())] {
			route := &types.Route{Dst: ipNet(r.Dst)}
			if r.Gateway.IsValid() {
				route.GW = r.Gateway.AsSlice()
			}
			res.Routes = append(res.Routes, route)
		}
	}
	return res, nil
}

// resultRoutes applies the default: nil is a default route per family, without a
// gateway, so that the main plugin takes the address's.
func resultRoutes(configured []Route) []Route {
	if configured != nil {
		return configured
	}
	return []Route{
		{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0)},
		{Dst: netip.PrefixFrom(netip.IPv6Unspecified(), 0)},
	}
}

// ipConfig applies the mask. Main plugins want the gateway inside the address's
// prefix. A host prefix has no room for one; outside a block's it means that the
// pool's gateway is a fixed address, which only the pool's prefix can reach.
func ipConfig(c Conf, a agentapi.Address) (*types100.IPConfig, error) {
	if !a.Addr.IsValid() || a.Addr.Is4In6() || !a.Block.Contains(a.Addr) || !a.Pool.Contains(a.Addr) {
		return nil, badReply(fmt.Sprintf("address %q, block %q, pool %q", a.Addr, a.Block, a.Pool))
	}
	bits := a.Addr.BitLen()
	switch c.Mask {
	case MaskPool:
		bits = a.Pool.Bits()
	case MaskBlock:
		bits = a.Block.Bits()
	case MaskHost:
	}
	prefix := netip.PrefixFrom(a.Addr, bits)
	ip := &types100.IPConfig{Address: ipNet(prefix)}
	switch {
	case !a.Gateway.IsValid():
	case prefix.Contains(a.Gateway):
		ip.Gateway = a.Gateway.AsSlice()
	case c.Mask == MaskBlock:
		return nil, &agentapi.Error{
			Code:    agentapi.CodeBadConfig,
			Msg:     fmt.Sprintf("ipam.mask: %q, but gateway %s of pool %s is outside block %s", MaskBlock, a.Gateway, a.Pool, a.Block),
			Details: fmt.Sprintf("set the pool's gateway to \"first\", or the mask to %q", MaskPool),
		}
	}
	if c.NeedGateway && ip.Gateway == nil {
		return nil, &agentapi.Error{
			Code:    agentapi.CodeBadConfig,
			Msg:     fmt.Sprintf("pool %s has no gateway for %s, and main plugin %s needs one", a.Pool, a.Addr, c.Type),
			Details: "set the pool's gateway",
		}
	}
	return ip, nil
}

func badReply(what string) error {
	return &agentapi.Error{Code: agentapi.CodeInternal, Msg: "reply of the address service makes no sense", Details: what}
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
