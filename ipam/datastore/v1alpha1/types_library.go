// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/block"
)

// IPAMBlock is one slice of a pool: the only record of an allocation. Written by
// the library.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ipb,categories=allod
// +kubebuilder:validation:XValidation:rule=`!(isCIDR(self.spec.cidr) && cidr(self.spec.cidr).masked() == cidr(self.spec.cidr) && ip.isCanonical(self.spec.cidr.substring(0, self.spec.cidr.indexOf('/')))) || self.metadata.name == (self.spec.cidr.startsWith(':') ? '0' : "") + self.spec.cidr.replace('.', '-').replace(':', '-').replace('/', '-')`,messageExpression=`'metadata.name: a block is named after its CIDR: ' + (self.spec.cidr.startsWith(':') ? '0' : "") + self.spec.cidr.replace('.', '-').replace(':', '-').replace('/', '-')`
// +kubebuilder:selectablefield:JSONPath=`.spec.cidr`
// +kubebuilder:selectablefield:JSONPath=`.spec.affinity`
// +kubebuilder:printcolumn:name=CIDR,type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name=Affinity,type=string,JSONPath=`.spec.affinity`
// +kubebuilder:printcolumn:name=Pool,type=string,JSONPath=`.metadata.labels.ipam\.allod\.io/pool`
// +kubebuilder:printcolumn:name=Space,type=string,JSONPath=`.metadata.labels.ipam\.allod\.io/space`
// +kubebuilder:printcolumn:name=Empty,type=string,JSONPath=`.metadata.labels.ipam\.allod\.io/empty`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type IPAMBlock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IPAMBlockSpec `json:"spec"`
}

// IPAMBlockSpec is [block.Wire] with its field names in JSON, and any other field
// as it came: what a newer version added survives an older one's update.
//
// +kubebuilder:pruning:PreserveUnknownFields
type IPAMBlockSpec struct {
	// Format is the version of this form; a reader of a lower one does not write.
	//
	// +kubebuilder:validation:Minimum=1
	Format int `json:"format"`
	// CIDR is the block. It cannot change.
	//
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule=`isCIDR(self)`,messageExpression=`self.contains('ffff:') ? self + ' is an IPv4-mapped IPv6 CIDR, or no CIDR; write it as IPv4, like 10.0.0.0/16' : '"' + self + '" is no CIDR such as 10.0.0.0/16'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || cidr(self).masked() == cidr(self)`,messageExpression=`self + ' has host bits set; write them as 0'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || ip.isCanonical(self.substring(0, self.indexOf('/')))`,messageExpression=`self + ' is not in canonical form: lower case, zeros shortened, as in fd00::40/122'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || (cidr(self).ip().family() == 4 ? cidr(self).prefixLength() >= 24 : cidr(self).prefixLength() >= 120)`,message=`is larger than a block may be: /24 to /32, /120 to /128`
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`the CIDR cannot change; create another object`
	CIDR string `json:"cidr"`
	// Affinity is the owner, host:<node> or virtual:<name>; empty if there is none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Affinity string `json:"affinity,omitempty"`
	// ClaimedAt is when the owner got the block.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ClaimedAt string `json:"claimedAt,omitempty"`
	// Sequence is the last sequence number given; it only grows (INV-15).
	//
	// +optional
	// +kubebuilder:validation:Type=integer
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule=`self >= oldSelf`,message=`a sequence only grows`
	Sequence string `json:"sequence,omitempty"`
	// Queue has the free ordinals, longest free first: "7,0-3,5".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Queue string `json:"queue"`
	// Slots has one line for each ordinal that is not free: ordinal, state, handle,
	// sequence, key=value fields.
	//
	// +optional
	// +listType=atomic
	Slots []string `json:"slots,omitempty"`
	// Extra are the fields that this version does not know.
	Extra []block.Extra `json:"-"`
}

// BlockAffinity is an owner's claim on a block. Written by the library.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ba,categories=allod
// +kubebuilder:validation:XValidation:rule=`self.spec.name.size() == 0 || !(isCIDR(self.spec.cidr) && cidr(self.spec.cidr).masked() == cidr(self.spec.cidr) && ip.isCanonical(self.spec.cidr.substring(0, self.spec.cidr.indexOf('/')))) || ((!has(self.spec.type) || self.spec.type != 'virtual') && self.spec.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$') && (self.spec.name + '.' + (self.spec.cidr.startsWith(':') ? '0' : "") + self.spec.cidr.replace('.', '-').replace(':', '-').replace('/', '-')).size() <= 253 ? self.metadata.name == self.spec.name + '.' + (self.spec.cidr.startsWith(':') ? '0' : "") + self.spec.cidr.replace('.', '-').replace(':', '-').replace('/', '-') : self.metadata.name.matches('^([a-z0-9][a-z0-9-]{0,199}-)?[a-z2-7]{52}$'))`,messageExpression=`'metadata.name: an affinity is named after its owner and its CIDR: ' + ((!has(self.spec.type) || self.spec.type != 'virtual') && self.spec.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$') && (self.spec.name + '.' + (self.spec.cidr.startsWith(':') ? '0' : "") + self.spec.cidr.replace('.', '-').replace(':', '-').replace('/', '-')).size() <= 253 ? self.spec.name + '.' + (self.spec.cidr.startsWith(':') ? '0' : "") + self.spec.cidr.replace('.', '-').replace(':', '-').replace('/', '-') : 'what is readable of them, a hyphen, and a hash of 52 characters')`
// +kubebuilder:selectablefield:JSONPath=`.spec.cidr`
// +kubebuilder:selectablefield:JSONPath=`.spec.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.type`
// +kubebuilder:selectablefield:JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name=State,type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name=Type,type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name=Owner,type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name=CIDR,type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name=Pool,type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type BlockAffinity struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              BlockAffinitySpec `json:"spec"`
}

// BlockAffinitySpec names owner and block; the object's name is never parsed.
//
// +kubebuilder:validation:XValidation:rule=`(has(self.type) && self.type.size() > 0 ? self.type : 'host') == (has(oldSelf.type) && oldSelf.type.size() > 0 ? oldSelf.type : 'host')`,message=`the type cannot change; create another object`,fieldPath=.type
type BlockAffinitySpec struct {
	// State is pending, confirmed or pendingDeletion; empty reads as pending: a
	// claim that counts for nothing.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self in ['', 'pending', 'confirmed', 'pendingDeletion']`,messageExpression=`'"' + self + '" is none of pending, confirmed and pendingDeletion'`
	State string `json:"state,omitempty"`
	// Type is host or virtual; empty reads as host. It cannot change.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self in ['', 'host', 'virtual']`,messageExpression=`'"' + self + '" is neither host nor virtual'`
	Type block.AffinityType `json:"type,omitempty"`
	// Name is the node, or the virtual owner. It cannot change.
	//
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`self != ''`,message=`missing`
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`the owner cannot change; create another object`
	Name string `json:"name"`
	// CIDR is the block. It cannot change.
	//
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule=`isCIDR(self)`,messageExpression=`self.contains('ffff:') ? self + ' is an IPv4-mapped IPv6 CIDR, or no CIDR; write it as IPv4, like 10.0.0.0/16' : '"' + self + '" is no CIDR such as 10.0.0.0/16'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || cidr(self).masked() == cidr(self)`,messageExpression=`self + ' has host bits set; write them as 0'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || ip.isCanonical(self.substring(0, self.indexOf('/')))`,messageExpression=`self + ' is not in canonical form: lower case, zeros shortened, as in fd00::40/122'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || (cidr(self).ip().family() == 4 ? cidr(self).prefixLength() >= 24 : cidr(self).prefixLength() >= 120)`,message=`is larger than a block may be: /24 to /32, /120 to /128`
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`the CIDR cannot change; create another object`
	CIDR string `json:"cidr"`
	// Pool is the pool of the block.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Pool string `json:"pool,omitempty"`
	// BlockSequence is the block's sequence at claim, in decimal.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,20})?$') && (self.size() < 20 || self <= '18446744073709551615')`,messageExpression=`'"' + self + '" is no number of 64 bits'`
	BlockSequence string `json:"blockSequence,omitempty"`
	// PendingSince is when the request began that made the claim pending. What is no
	// time reads as not known.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PendingSince string `json:"pendingSince,omitempty"`
}

// IPAMHandle is the intent of an owner that several nodes may serve. Written by
// the library.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=iph,categories=allod
// +kubebuilder:validation:XValidation:rule=`self.spec.handle.size() == 0 || (self.spec.handle.size() <= 253 && self.spec.handle.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$') ? self.metadata.name == self.spec.handle : self.metadata.name.matches('^([a-z0-9][a-z0-9-]{0,199}-)?[a-z2-7]{52}$'))`,messageExpression=`'metadata.name: a handle is named after its ID: ' + (self.spec.handle.size() <= 253 && self.spec.handle.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$') ? self.spec.handle : 'what is readable of it, a hyphen, and a hash of 52 characters')`
// +kubebuilder:selectablefield:JSONPath=`.spec.handle`
// +kubebuilder:printcolumn:name=Handle,type=string,JSONPath=`.spec.handle`
// +kubebuilder:printcolumn:name=Addresses,type=string,JSONPath=`.spec.addresses`
// +kubebuilder:printcolumn:name=Releasing,type=boolean,JSONPath=`.spec.releasing`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type IPAMHandle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IPAMHandleSpec `json:"spec"`
}

// IPAMHandleSpec names the exact addresses of a handle.
type IPAMHandleSpec struct {
	// Handle is the handle ID. It cannot change.
	//
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`self != ''`,message=`missing`
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`the handle cannot change; create another object`
	Handle string `json:"handle"`
	// Addresses are those that belong to the handle.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule=`isIP(self)`,messageExpression=`'"' + self + '" is no address'`
	Addresses []string `json:"addresses,omitempty"`
	// Releasing is set before the addresses are freed.
	//
	// +optional
	Releasing bool `json:"releasing,omitempty"`
}
