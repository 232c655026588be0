// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/allod/allod/ipam/block"
)

// DetachRequest is what a CNI DEL knows. The pod fields may be empty: a DEL must
// complete without them (INV-10).
type DetachRequest struct {
	block.Attachment
	Namespace string
	Pod       string
	PodUID    string
	// Node narrows the search to the blocks that node has to do with; "" searches
	// all.
	Node string
}

// Detach gives back the addresses of one interface of one sandbox, and those known
// by the workload form if their recorded pod UID is the request's. It returns what
// it released; nothing there is success, concluded from a consistent read
// (INV-10). A VM's addresses are not its sandbox's to release.
func (c *Client) Detach(ctx context.Context, r DetachRequest) ([]netip.Addr, error) {
	if r.ContainerID == "" || r.Network == "" || r.IfName == "" {
		return nil, fmt.Errorf("detach: %w: needs network, container ID and interface name, have %+v", ErrInvalid, r.Attachment)
	}
	workload := WorkloadHandle(r.Namespace, r.Pod)
	return c.releaseWhere(ctx, c.of(r.Node), func(_ netip.Addr, s block.Slot) bool {
		if s.Type == block.VM {
			return false
		}
		return s.Holds(r.Attachment) ||
			s.Active.ContainerID == "" && r.PodUID != "" && r.PodUID == s.Active.PodUID &&
				s.Handle == workload && s.Active.Network == r.Network
	})
}

// DetachOthers gives back what this node's sandboxes hold on a network, except the
// valid ones (CNI GC). Addresses without a container ID and VMs' addresses are not
// touched.
func (c *Client) DetachOthers(ctx context.Context, network, node string, valid []block.Attachment) ([]netip.Addr, error) {
	if network == "" || node == "" {
		return nil, fmt.Errorf("detach others: %w: needs a network and a node", ErrInvalid)
	}
	keep := make(map[block.Attachment]bool, len(valid))
	for _, a := range valid {
		keep[a] = true
	}
	return c.releaseWhere(ctx, c.of(node), func(_ netip.Addr, s block.Slot) bool {
		key := s.Active.Attachment()
		return s.Type == block.Workload && s.Active.Node == node && key.Network == network && key.ContainerID != "" &&
			s.Handle == SandboxHandle(key.Network, key.ContainerID) && !keep[key]
	})
}
