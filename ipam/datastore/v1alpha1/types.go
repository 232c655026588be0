// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/pool"
)

// IPPool is a range of addresses and who may have them. Set by an operator.
type IPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IPPoolSpec   `json:"spec"`
	Status            IPPoolStatus `json:"status,omitzero"`
}

// IPPoolSpec is what an operator sets; see [pool.Spec] for the defaults.
type IPPoolSpec struct {
	CIDR              string              `json:"cidr"`
	BlockSize         int                 `json:"blockSize,omitempty"`
	Gateway           string              `json:"gateway,omitempty"` // an address, "first", or "" for none
	NodeSelector      string              `json:"nodeSelector,omitempty"`
	NamespaceSelector string              `json:"namespaceSelector,omitempty"`
	AllowedUses       []pool.Use          `json:"allowedUses,omitempty"`
	AssignmentMode    pool.AssignmentMode `json:"assignmentMode,omitempty"`
	Disabled          bool                `json:"disabled,omitempty"`
	IPIPMode          pool.TunnelMode     `json:"ipipMode,omitempty"`
	VXLANMode         pool.TunnelMode     `json:"vxlanMode,omitempty"`
	NATOutgoing       bool                `json:"natOutgoing,omitempty"`
}

// IPPoolStatus is what admission decided and what is in use. The numbers are
// decimal text: a pool may hold more addresses than 64 bits count.
type IPPoolStatus struct {
	Capacity   string             `json:"capacity,omitempty"`
	Allocated  string             `json:"allocated,omitempty"`
	Cooling    string             `json:"cooling,omitempty"`
	Reserved   string             `json:"reserved,omitempty"`
	Available  string             `json:"available,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConditionAllocatable is the type of the condition that admission sets on a pool.
const ConditionAllocatable = "Allocatable"

// IPReservation lists CIDRs that automatic assignment must not hand out. Set by
// an operator.
type IPReservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IPReservationSpec `json:"spec"`
}

// IPReservationSpec holds CIDRs that may overlap and nest.
type IPReservationSpec struct {
	ReservedCIDRs []string `json:"reservedCIDRs,omitempty"`
}

// IPAMConfiguration is the singleton named "default". Set by an operator.
type IPAMConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IPAMConfigurationSpec `json:"spec"`
}

// IPAMConfigurationSpec: an absent field reads as its default, see
// [datastore.ConfigDefaults].
type IPAMConfigurationSpec struct {
	StrictAffinity               bool        `json:"strictAffinity,omitempty"`
	AutoAllocateBlocks           *bool       `json:"autoAllocateBlocks,omitempty"` // default true
	MaxBlocksPerHost             int         `json:"maxBlocksPerHost,omitempty"`   // 0 means 20
	KubeVirtVMAddressPersistence Persistence `json:"kubeVirtVMAddressPersistence,omitempty"`
	IPCooldownSeconds            int         `json:"ipCooldownSeconds,omitempty"` // 0 to 1200
	LeakGracePeriod              string      `json:"leakGracePeriod,omitempty"`   // a Go duration; default 15m, 0s is off
}

// Persistence says whether VMs keep their addresses over a restart.
type Persistence string

// The values of Persistence. Enabled is the default.
const (
	Enabled  Persistence = "Enabled"
	Disabled Persistence = "Disabled"
)

// IPAMBlock is one slice of a pool: the only record of an allocation. Written by
// the library.
type IPAMBlock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IPAMBlockSpec `json:"spec"`
}

// IPAMBlockSpec is [block.Wire] with its field names in JSON: format, cidr,
// affinity, claimedAt, sequence, queue, slots, and any other field as it came.
type IPAMBlockSpec block.Wire

// BlockAffinity is an owner's claim on a block. Written by the library.
type BlockAffinity struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              BlockAffinitySpec `json:"spec"`
}

// BlockAffinitySpec names owner and block; the object's name is never parsed.
type BlockAffinitySpec struct {
	State         string             `json:"state,omitempty"` // empty reads as pending: a claim that counts for nothing
	Type          block.AffinityType `json:"type,omitempty"`  // empty reads as host
	Name          string             `json:"name"`            // the node, or the virtual owner
	CIDR          string             `json:"cidr"`
	Pool          string             `json:"pool,omitempty"`
	BlockSequence string             `json:"blockSequence,omitempty"` // decimal
}

// IPAMHandle is the intent of an owner that several nodes may serve. Written by
// the library.
type IPAMHandle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IPAMHandleSpec `json:"spec"`
}

// IPAMHandleSpec names the exact addresses of a handle.
type IPAMHandleSpec struct {
	Handle    string   `json:"handle"`
	Addresses []string `json:"addresses,omitempty"`
	Releasing bool     `json:"releasing,omitempty"`
}

func meta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: APIVersion, Kind: kind}
}
