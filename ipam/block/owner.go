// SPDX-License-Identifier: Apache-2.0

package block

// HandleID names the owner of a set of addresses. Handle IDs are formatted by
// the ipam package only and are compared, never parsed.
type HandleID string

// Type says what an allocation is for. A value this version does not know is
// kept as it is and counts as a live owner (INV-2).
type Type string

// The allocation types of the data model.
const (
	Workload        Type = "workload"
	VM              Type = "vm"
	IPIPTunnel      Type = "ipipTunnelAddress"
	VXLANTunnel     Type = "vxlanTunnelAddress"
	VXLANV6Tunnel   Type = "vxlanV6TunnelAddress"
	WireguardTunnel Type = "wireguardTunnelAddress"
	WireguardV6     Type = "wireguardV6TunnelAddress"
	LoadBalancer    Type = "loadBalancer"
	WindowsReserved Type = "windowsReserved"
)

// Attachment is the identity of one interface of one sandbox (CNI spec: network
// name, CNI_CONTAINERID, CNI_IFNAME). A DEL carries nothing else it can be
// trusted for (INV-8).
type Attachment struct {
	Network     string
	ContainerID string
	IfName      string
}

// Owner is who holds an address. The zero Owner means nobody (for an active or
// alternate owner) and is distinct from an owner that could not be read.
type Owner struct {
	Network     string
	Namespace   string
	Pod         string
	PodUID      string
	ContainerID string
	IfName      string
	Node        string
	VM          string // KubeVirt VirtualMachine name
	VMIUID      string // UID of the VirtualMachineInstance
	NodeUID     string // tunnels: UID of the Node object
}

// IsZero reports whether o is nobody.
func (o Owner) IsZero() bool { return o == Owner{} }

// Attachment returns the sandbox interface that o stands for.
func (o Owner) Attachment() Attachment {
	return Attachment{Network: o.Network, ContainerID: o.ContainerID, IfName: o.IfName}
}

// SamePod reports whether o and p are the same interface of the same pod on the
// same node, whatever sandbox it runs in now. Without a pod UID the answer is
// no: a name alone is not an identity (INV-8).
func (o Owner) SamePod(p Owner) bool {
	return o.PodUID != "" && o.PodUID == p.PodUID &&
		o.Network == p.Network && o.IfName == p.IfName && o.Node == p.Node
}
