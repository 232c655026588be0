// SPDX-License-Identifier: Apache-2.0

// Package agentapi is what the CNI plugin and the node agent say to each other:
// one request and one reply per CNI verb, as Go values (Backend) and as
// HTTP/JSON over a unix socket (Client, Handler). It knows nothing of network
// configurations, masks, stores or pools beyond their names; it needs the
// standard library only, because the plugin's size is a budget.
//
// Version skew: plugin and agent are replaced one after the other, so either may
// be one minor version older. Both sides ignore JSON fields they do not know, a
// new field's zero value must mean what the version before did, and a verb or a
// field is never given another meaning. A field a decision depends on (the list
// of valid attachments) is refused when it is missing, never defaulted.
package agentapi

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Backend serves the CNI verbs. Client, the node agent's service and direct mode
// implement it. Methods may be called concurrently; each honours ctx. Errors
// carry a CNI error code when they are, or wrap, an *Error; AsError decides about
// the others.
type Backend interface {
	// Add gives the attachment its addresses. It is idempotent per attachment.
	Add(ctx context.Context, r AddRequest) (AddReply, error)
	// Check says whether the attachment holds exactly r.Addrs. It writes nothing.
	Check(ctx context.Context, r CheckRequest) error
	// Del releases what the attachment holds; nothing held is success (INV-10).
	Del(ctx context.Context, r DelRequest) error
	// GC releases this node's attachments of r.Network that r.Valid does not name.
	GC(ctx context.Context, r GCRequest) error
	// Status says whether an Add of this network could be served now.
	Status(ctx context.Context, r StatusRequest) error
}

// Attachment names one interface of one sandbox on one network: the key of every
// request. No field is empty.
type Attachment struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
}

// String is for messages.
func (a Attachment) String() string {
	return fmt.Sprintf("%s of container %s on network %s", a.IfName, a.ContainerID, a.Network)
}

// Pod is what the runtime said of the pod. Each field may be empty: a runtime
// other than Kubernetes sends none, an old kubelet no UID.
type Pod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// AddRequest asks for Num4 IPv4 and Num6 IPv6 addresses, all or none (INV-11).
type AddRequest struct {
	Attachment
	Pod  Pod `json:"pod,omitzero"`
	Num4 int `json:"num4,omitempty"`
	Num6 int `json:"num6,omitempty"`
	// Addrs are static addresses. Either there are none, or there are exactly Num4
	// IPv4 and Num6 IPv6 addresses and these and no others are asked for.
	Addrs []netip.Addr `json:"addrs,omitempty"`
	// Pools4 and Pools6 restrict the choice: names or canonical CIDRs of pools, in
	// order of preference. Empty: all automatic pools.
	Pools4 []string `json:"pools4,omitempty"`
	Pools6 []string `json:"pools6,omitempty"`
	// NeedGateway: the main plugin cannot work without a gateway, so a pool that
	// has none is not eligible.
	NeedGateway bool `json:"needGateway,omitempty"`
	// BlockMask: the address will be configured with its block's mask, so a gateway
	// must lie in the same block.
	BlockMask bool `json:"blockMask,omitempty"`
}

// Address is one address given, with all a mask can be made of.
type Address struct {
	Addr    netip.Addr   `json:"addr"`
	Block   netip.Prefix `json:"block"`
	Pool    netip.Prefix `json:"pool"`
	Gateway netip.Addr   `json:"gateway,omitzero"` // zero: none
}

// AddReply is what the attachment now has.
type AddReply struct {
	Addresses []Address `json:"addresses"`
	// Asked is what was asked for in the end, when the pod's or its namespace's
	// annotations made it something other than the request said. nil: they did not.
	Asked *Asked `json:"asked,omitempty"`
}

// Asked is what a pod wants: so many addresses of each family, or exactly Addrs.
type Asked struct {
	Num4  int          `json:"num4,omitempty"`
	Num6  int          `json:"num6,omitempty"`
	Addrs []netip.Addr `json:"addrs,omitempty"`
}

// Differs returns what r asks for if was asked for something else.
func (r AddRequest) Differs(was AddRequest) *Asked {
	if r.Num4 == was.Num4 && r.Num6 == was.Num6 && slices.Equal(r.Addrs, was.Addrs) {
		return nil
	}
	return &Asked{Num4: r.Num4, Num6: r.Num6, Addrs: r.Addrs}
}

// CheckRequest names the addresses that the attachment's interface was given
// (prevResult): what the store says must be these and no others.
type CheckRequest struct {
	Attachment
	Pod   Pod          `json:"pod,omitzero"`
	Addrs []netip.Addr `json:"addrs"`
}

// DelRequest asks for the release of an attachment. Pod serves the workload form
// of a handle only; a request without it is complete.
type DelRequest struct {
	Attachment
	Pod Pod `json:"pod,omitzero"`
}

// StatusRequest is what an Add of the network would ask for, as in AddRequest. All
// zero, as an older plugin sends it, it means any address.
type StatusRequest struct {
	Num4        int      `json:"num4,omitempty"`
	Num6        int      `json:"num6,omitempty"`
	Pools4      []string `json:"pools4,omitempty"`
	Pools6      []string `json:"pools6,omitempty"`
	NeedGateway bool     `json:"needGateway,omitempty"`
	BlockMask   bool     `json:"blockMask,omitempty"`
}

// GCRequest carries all attachments of a network that are still in use on this
// node. Valid is never nil: an empty list means "none is", nil means unknown and
// is refused (INV-2). Every entry is of Network.
type GCRequest struct {
	Network string       `json:"network"`
	Valid   []Attachment `json:"valid"`
}

// The CNI error codes in use.
const (
	CodeBadEnvironment uint = 4   // CNI_ARGS and the like
	CodeUndecodable    uint = 6   // not JSON, or not of the right shape
	CodeBadConfig      uint = 7   // the network configuration must be changed
	CodeTryAgain       uint = 11  // the same request may succeed later
	CodeNotAvailable   uint = 50  // STATUS: no ADD can be served
	CodeLimited        uint = 51  // STATUS: served, but containers lack connectivity
	CodeMismatch       uint = 100 // CHECK: the store says otherwise
	CodeInternal       uint = 999 // a fault nobody foresaw
)

// Error is an error with its CNI code. Msg says what failed and on what, Details
// why and what to do.
type Error struct {
	Code    uint   `json:"code"`
	Msg     string `json:"msg"`
	Details string `json:"details,omitempty"`
}

// Error joins message and details.
func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + ": " + e.Details
}

// AsError gives any error a CNI code: its own if it is or wraps an *Error (the
// text is then the whole chain's), try-again if the agent gave none or a deadline
// or a cancellation ended it, else internal. AsError(nil) is nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		if err.Error() == e.Error() {
			return e // nothing was wrapped around it
		}
		return &Error{Code: e.Code, Msg: err.Error()}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, ErrNotConnected), errors.Is(err, ErrNoAnswer):
		return &Error{Code: CodeTryAgain, Msg: err.Error()}
	default:
		return &Error{Code: CodeInternal, Msg: err.Error()}
	}
}

// What a Client's error has in its chain when the agent answered nothing.
var (
	// ErrNotConnected: connecting failed. Not one byte of the request left the
	// process.
	ErrNotConnected = errors.New("not connected")
	// ErrNoAnswer: connected, and then nothing that can be understood came back. The
	// request may have been carried out.
	ErrNoAnswer = errors.New("no answer")
)
