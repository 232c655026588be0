// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/allod/allod/cni/agentapi"
	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/pool"
)

// requestTimeout is what one request may take once it has its turn; waiting for
// the turn does not count (case R8).
const requestTimeout = 10 * time.Second

// library is what a Service needs of ipam.Client.
type library interface {
	Attach(ctx context.Context, r ipam.AttachRequest) (ipam.Assigned, error)
	AttachmentIPs(ctx context.Context, a block.Attachment, node string) ([]ipam.Assignment, error)
	AssignmentAttributes(ctx context.Context, a netip.Addr) (ipam.Attributes, error)
	Detach(ctx context.Context, r ipam.DetachRequest) ([]netip.Addr, error)
	DetachOthers(ctx context.Context, network, node string, valid []block.Attachment) ([]netip.Addr, error)
	Ready(ctx context.Context, r ipam.AutoAssignRequest) error
}

// Service serves the CNI verbs of one node from a library. It implements
// agentapi.Backend; the caller serialises requests of one attachment.
type Service struct {
	IPAM library
	Node pool.Node
	// Facts are the pods, namespaces and nodes of a cluster. nil: there is none; then
	// requests are served as the network's configuration says.
	Facts facts
}

var _ agentapi.Backend = (*Service)(nil)

// Add implements agentapi.Backend.
func (s *Service) Add(ctx context.Context, r agentapi.AddRequest) (agentapi.AddReply, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	asked := r
	in := informed{AddRequest: r, namespace: pool.Namespace{Name: r.Pod.Namespace}}
	if s.Facts != nil {
		var err error
		if in, err = inform(ctx, s.Facts, s.Node.Name, asked); err != nil {
			return agentapi.AddReply{}, coded(in.explained(err))
		}
	}
	r = in.AddRequest
	got, err := s.IPAM.Attach(ctx, ipam.AttachRequest{
		AutoAssignRequest: ipam.AutoAssignRequest{
			Num4: r.Num4, Num6: r.Num6,
			Owner: owner(r.Attachment, r.Pod), Host: s.Node, HostLabels: s.hostLabels(),
			Namespace: in.namespace, Use: pool.UseWorkload,
			Pools4: r.Pools4, Pools6: r.Pools6,
			NeedGateway: r.NeedGateway, BlockMask: r.BlockMask,
		},
		Addrs: r.Addrs,
	})
	if err != nil {
		return agentapi.AddReply{}, coded(in.explained(err))
	}
	reply := agentapi.AddReply{Asked: r.Differs(asked)}
	for _, a := range got.All() {
		reply.Addresses = append(reply.Addresses, agentapi.Address{
			Addr: a.Addr, Block: a.Block, Pool: a.Pool.Spec.CIDR, Gateway: a.Pool.GatewayOf(a.Block),
		})
	}
	return reply, nil
}

// Check implements agentapi.Backend. It never allocates (case R11).
func (s *Service) Check(ctx context.Context, r agentapi.CheckRequest) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	held, err := s.IPAM.AttachmentIPs(ctx, key(r.Attachment), s.Node.Name)
	if err != nil {
		return coded(fmt.Errorf("CHECK %s: %w", r.Attachment, err))
	}
	var wrong []string
	for _, a := range r.Addrs {
		if !slices.ContainsFunc(held, func(h ipam.Assignment) bool { return h.Addr == a }) {
			wrong = append(wrong, s.describe(ctx, a))
		}
	}
	for _, h := range held {
		if !slices.Contains(r.Addrs, h.Addr) {
			wrong = append(wrong, fmt.Sprintf("%s belongs to it and is not in prevResult", h.Addr))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return &agentapi.Error{
		Code:    agentapi.CodeMismatch,
		Msg:     fmt.Sprintf("CHECK %s: %s", r.Attachment, strings.Join(wrong, "; ")),
		Details: "the sandbox must be made anew: delete the pod, or run DEL and ADD",
	}
}

// describe says who has an address that the attachment should have.
func (s *Service) describe(ctx context.Context, a netip.Addr) string {
	at, err := s.IPAM.AssignmentAttributes(ctx, a)
	switch {
	case errors.Is(err, ipam.ErrNotAllocated):
		return fmt.Sprintf("%s is free", a)
	case err != nil:
		return fmt.Sprintf("%s does not belong to it (%v)", a, err)
	case at.State == block.Cooling:
		return fmt.Sprintf("%s was released %s", a, at.Released.Format(time.RFC3339))
	}
	return fmt.Sprintf("%s belongs to %s (pod %s/%s on node %s)",
		a, agentapi.Attachment(at.Active.Attachment()), at.Active.Namespace, at.Active.Pod, at.Active.Node)
}

// Del implements agentapi.Backend.
func (s *Service) Del(ctx context.Context, r agentapi.DelRequest) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := s.IPAM.Detach(ctx, ipam.DetachRequest{
		Attachment: key(r.Attachment), Namespace: r.Pod.Namespace, Pod: r.Pod.Name, PodUID: r.Pod.UID, Node: s.Node.Name,
	})
	if err != nil {
		return coded(fmt.Errorf("DEL %s: %w", r.Attachment, err))
	}
	return nil
}

// GC implements agentapi.Backend.
func (s *Service) GC(ctx context.Context, r agentapi.GCRequest) error {
	if r.Valid == nil {
		return &agentapi.Error{Code: agentapi.CodeBadConfig, Msg: "GC: no list of valid attachments; an empty one must be said"}
	}
	valid := make([]block.Attachment, 0, len(r.Valid))
	for _, a := range r.Valid {
		valid = append(valid, key(a))
	}
	if _, err := s.IPAM.DetachOthers(ctx, r.Network, s.Node.Name, valid); err != nil {
		return coded(fmt.Errorf("GC of network %s: %w", r.Network, err))
	}
	return nil
}

// Status implements agentapi.Backend.
func (s *Service) Status(ctx context.Context, r agentapi.StatusRequest) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := s.IPAM.Ready(ctx, ipam.AutoAssignRequest{
		Num4: r.Num4, Num6: r.Num6, Host: s.Node, HostLabels: s.hostLabels(), Use: pool.UseWorkload,
		Pools4: r.Pools4, Pools6: r.Pools6, NeedGateway: r.NeedGateway, BlockMask: r.BlockMask,
	})
	if err != nil {
		return &agentapi.Error{Code: agentapi.CodeNotAvailable, Msg: fmt.Sprintf("STATUS: %v", err)}
	}
	return nil
}

// hostLabels is what looks up the labels of the node; nil where there is no cluster.
func (s *Service) hostLabels() func(context.Context) (map[string]string, error) {
	if s.Facts == nil {
		return nil
	}
	return func(ctx context.Context) (map[string]string, error) {
		m, err := s.Facts.Node(ctx, s.Node.Name)
		return m.Labels, err
	}
}

func key(a agentapi.Attachment) block.Attachment { return block.Attachment(a) }

func owner(a agentapi.Attachment, p agentapi.Pod) block.Owner {
	return block.Owner{
		Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName,
		Namespace: p.Namespace, Pod: p.Name, PodUID: p.UID,
	}
}

// coded gives a library error its CNI code. What an operator must change in the
// configuration is 7; all else may be different when the runtime tries again.
func coded(err error) error {
	if _, ok := errors.AsType[*agentapi.Error](err); ok {
		return agentapi.AsError(err)
	}
	code := agentapi.CodeTryAgain
	for _, e := range []error{
		ipam.ErrNoPool, ipam.ErrNotInPool, ipam.ErrReserved, ipam.ErrInvalid, ipam.ErrBlockLimit, ipam.ErrStrictAffinity,
	} {
		// An exhausted search may find something later, whatever setting ended it.
		if errors.Is(err, e) && !errors.Is(err, ipam.ErrExhausted) {
			code = agentapi.CodeBadConfig
		}
	}
	return &agentapi.Error{Code: code, Msg: err.Error()}
}
