// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/pool"
)

// The rules in the markers are those of pool.Validate and datastore.Config.Validate,
// in the same words: what one of them refuses, so does the API server.

// IPPool is a range of addresses and who may have them. Set by an operator.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ipp,categories=allod
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name=CIDR,type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name=Capacity,type=string,JSONPath=`.status.capacity`
// +kubebuilder:printcolumn:name=Allocated,type=string,JSONPath=`.status.allocated`
// +kubebuilder:printcolumn:name=Cooling,type=string,JSONPath=`.status.cooling`
// +kubebuilder:printcolumn:name=Reserved,type=string,JSONPath=`.status.reserved`
// +kubebuilder:printcolumn:name=Available,type=string,JSONPath=`.status.available`
// +kubebuilder:printcolumn:name=Allocatable,type=string,JSONPath=`.status.conditions[?(@.type=="Allocatable")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Allocatable")].reason`
// +kubebuilder:printcolumn:name=Uses,type=string,JSONPath=`.spec.allowedUses`,priority=1
// +kubebuilder:printcolumn:name=Mode,type=string,JSONPath=`.spec.assignmentMode`,priority=1
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type IPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IPPoolSpec   `json:"spec"`
	Status            IPPoolStatus `json:"status,omitzero"`
}

// IPPoolSpec is what an operator sets.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.blockSize) || self.blockSize == 0 || !isCIDR(self.cidr) || (self.blockSize >= (cidr(self.cidr).ip().family() == 4 ? (cidr(self.cidr).prefixLength() > 24 ? cidr(self.cidr).prefixLength() : 24) : (cidr(self.cidr).prefixLength() > 120 ? cidr(self.cidr).prefixLength() : 120)) && self.blockSize <= (cidr(self.cidr).ip().family() == 4 ? 32 : 128))`,messageExpression=`'does not fit ' + self.cidr + '; choose ' + (cidr(self.cidr).ip().family() == 4 ? (cidr(self.cidr).prefixLength() > 24 ? 'its own length' : '24') + ' to 32' : (cidr(self.cidr).prefixLength() > 120 ? 'its own length' : '120') + ' to 128') + ', or leave it out'`,fieldPath=.blockSize
// +kubebuilder:validation:XValidation:rule=`!has(self.gateway) || self.gateway != 'first' || !isCIDR(self.cidr) || (has(self.blockSize) && self.blockSize != 0 ? self.blockSize : (cidr(self.cidr).ip().family() == 4 ? (cidr(self.cidr).prefixLength() > 26 ? cidr(self.cidr).prefixLength() : 26) : (cidr(self.cidr).prefixLength() > 122 ? cidr(self.cidr).prefixLength() : 122))) != (cidr(self.cidr).ip().family() == 4 ? 32 : 128)`,messageExpression=`'"first" takes the only address of each block of /' + (cidr(self.cidr).ip().family() == 4 ? '32; set spec.blockSize to 31' : '128; set spec.blockSize to 127') + ' or less, or name one address'`,fieldPath=.gateway
// +kubebuilder:validation:XValidation:rule=`!has(self.gateway) || !isIP(self.gateway) || !isCIDR(self.cidr) || cidr(self.cidr).containsIP(self.gateway)`,messageExpression=`self.gateway + ' is not in spec.cidr ' + self.cidr + '; choose an address of the pool, or "first"'`,fieldPath=.gateway
// +kubebuilder:validation:XValidation:rule=`!has(self.allowedUses) || !self.allowedUses.exists(u, u == 'LoadBalancer') || self.allowedUses.all(u, u == 'LoadBalancer')`,message=`LoadBalancer cannot be combined with other uses; create a pool of its own`,fieldPath=.allowedUses
// +kubebuilder:validation:XValidation:rule=`!has(self.allowedUses) || !self.allowedUses.exists(u, u == 'LoadBalancer') || !has(self.nodeSelector) || self.nodeSelector.size() == 0`,message=`LoadBalancer addresses belong to no node; remove spec.nodeSelector`,fieldPath=.allowedUses
// +kubebuilder:validation:XValidation:rule=`!has(self.allowedUses) || !self.allowedUses.exists(u, u == 'LoadBalancer') || !((has(self.ipipMode) && self.ipipMode in ['Always', 'CrossSubnet']) || (has(self.vxlanMode) && self.vxlanMode in ['Always', 'CrossSubnet']))`,message=`LoadBalancer addresses are not encapsulated; set spec.ipipMode and spec.vxlanMode to Never`,fieldPath=.allowedUses
// +kubebuilder:validation:XValidation:rule=`!has(self.allowedUses) || !self.allowedUses.exists(u, u == 'Tunnel') || !has(self.namespaceSelector) || self.namespaceSelector.size() == 0`,message=`Tunnel addresses belong to no namespace; remove Tunnel or spec.namespaceSelector`,fieldPath=.allowedUses
// +kubebuilder:validation:XValidation:rule=`!(has(self.ipipMode) && self.ipipMode in ['Always', 'CrossSubnet']) || !isCIDR(self.cidr) || cidr(self.cidr).ip().family() == 4`,message=`IPIP carries IPv4 only; set Never, and spec.vxlanMode if the pool needs a tunnel`,fieldPath=.ipipMode
// +kubebuilder:validation:XValidation:rule=`!((has(self.ipipMode) && self.ipipMode in ['Always', 'CrossSubnet']) && (has(self.vxlanMode) && self.vxlanMode in ['Always', 'CrossSubnet']))`,message=`cannot be on together with spec.vxlanMode; set one of them to Never`,fieldPath=.ipipMode
type IPPoolSpec struct {
	// CIDR is the range. It cannot change.
	//
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule=`isCIDR(self)`,messageExpression=`self.contains('ffff:') ? self + ' is an IPv4-mapped IPv6 CIDR, or no CIDR; write it as IPv4, like 10.0.0.0/16' : '"' + self + '" is no CIDR such as 10.0.0.0/16'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || cidr(self).masked() == cidr(self)`,messageExpression=`self + ' has host bits set; write them as 0'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || !(cidr(self).containsCIDR('0.0.0.0/8') || cidr('0.0.0.0/8').containsCIDR(self))`,messageExpression=`self + ' overlaps 0.0.0.0/8 (unspecified), which hosts cannot use; choose another range'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || !(cidr(self).containsCIDR('127.0.0.0/8') || cidr('127.0.0.0/8').containsCIDR(self))`,messageExpression=`self + ' overlaps 127.0.0.0/8 (loopback), which hosts cannot use; choose another range'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || !(cidr(self).containsCIDR('169.254.0.0/16') || cidr('169.254.0.0/16').containsCIDR(self))`,messageExpression=`self + ' overlaps 169.254.0.0/16 (link-local), which hosts cannot use; choose another range'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || !(cidr(self).containsCIDR('224.0.0.0/4') || cidr('224.0.0.0/4').containsCIDR(self))`,messageExpression=`self + ' overlaps 224.0.0.0/4 (multicast), which hosts cannot use; choose another range'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || !(cidr(self).containsCIDR('255.255.255.255/32') || cidr('255.255.255.255/32').containsCIDR(self))`,messageExpression=`self + ' overlaps 255.255.255.255/32 (broadcast), which hosts cannot use; choose another range'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || !(cidr(self).containsCIDR('::/128') || cidr('::/128').containsCIDR(self))`,messageExpression=`self + ' overlaps ::/128 (unspecified), which hosts cannot use; choose another range'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || !(cidr(self).containsCIDR('::1/128') || cidr('::1/128').containsCIDR(self))`,messageExpression=`self + ' overlaps ::1/128 (loopback), which hosts cannot use; choose another range'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || !(cidr(self).containsCIDR('fe80::/10') || cidr('fe80::/10').containsCIDR(self))`,messageExpression=`self + ' overlaps fe80::/10 (link-local), which hosts cannot use; choose another range'`
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || !(cidr(self).containsCIDR('ff00::/8') || cidr('ff00::/8').containsCIDR(self))`,messageExpression=`self + ' overlaps ff00::/8 (multicast), which hosts cannot use; choose another range'`
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf || (isCIDR(self) && isCIDR(oldSelf) && cidr(self) == cidr(oldSelf))`,messageExpression=`'cannot change from ' + oldSelf + ' to ' + self + '; create another pool'`
	CIDR string `json:"cidr"`
	// BlockSize is the prefix length of a block: 24 to 32, default 26, for IPv4, and
	// 120 to 128, default 122, for IPv6; the pool's own length if that is longer.
	//
	// +optional
	BlockSize int `json:"blockSize,omitempty"`
	// Gateway is the gateway that addresses are given with: an address of the pool,
	// "first" for the first one of each block, or empty for none. It is reserved.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self in ['', 'first'] || isIP(self)`,messageExpression=`'"' + self + '" is neither an address nor "first"'`
	Gateway string `json:"gateway,omitempty"`
	// NodeSelector names the nodes that the pool serves, in the syntax of label
	// selectors; empty selects all.
	//
	// +optional
	NodeSelector Selector `json:"nodeSelector,omitempty"`
	// NamespaceSelector names the namespaces that the pool serves, in the syntax of
	// label selectors; empty selects all.
	//
	// +optional
	NamespaceSelector Selector `json:"namespaceSelector,omitempty"`
	// AllowedUses says what addresses are for: Workload, Tunnel, LoadBalancer. The
	// default is Workload and Tunnel, or Workload alone with a namespaceSelector.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.all(u, u in ['Workload', 'Tunnel', 'LoadBalancer'])`,messageExpression=`'unknown use "' + self.filter(u, !(u in ['Workload', 'Tunnel', 'LoadBalancer']))[0] + '"; use Workload, Tunnel or LoadBalancer'`
	// +kubebuilder:validation:XValidation:rule=`self.all(u, self.filter(v, v == u).size() == 1)`,messageExpression=`self.filter(u, self.filter(v, v == u).size() > 1)[0] + ' is listed twice; remove one'`
	AllowedUses []Use `json:"allowedUses,omitempty"`
	// AssignmentMode is Automatic, the default, or Manual: only for requests that
	// name the pool.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self in ['', 'Automatic', 'Manual']`,messageExpression=`'unknown mode "' + self + '"; use Automatic or Manual'`
	AssignmentMode pool.AssignmentMode `json:"assignmentMode,omitempty"`
	// Disabled stops assignment from the pool; what is assigned stays.
	//
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// IPIPMode is Never, the default, Always or CrossSubnet.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self in ['', 'Never', 'Always', 'CrossSubnet']`,messageExpression=`'unknown mode "' + self + '"; use Never, Always or CrossSubnet'`
	IPIPMode pool.TunnelMode `json:"ipipMode,omitempty"`
	// VXLANMode is Never, the default, Always or CrossSubnet.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self in ['', 'Never', 'Always', 'CrossSubnet']`,messageExpression=`'unknown mode "' + self + '"; use Never, Always or CrossSubnet'`
	VXLANMode pool.TunnelMode `json:"vxlanMode,omitempty"`
	// NATOutgoing hides addresses of the pool behind the node's for destinations
	// outside all pools.
	//
	// +optional
	NATOutgoing bool `json:"natOutgoing,omitempty"`
}

// Use is what an address of a pool may be for, see [pool.Use].
//
// +kubebuilder:validation:MaxLength=32
type Use string

// Selector is a label selector in the text form of Kubernetes.
//
// +kubebuilder:validation:MaxLength=4096
// +kubebuilder:validation:XValidation:rule=`(self + ',').matches(r'^(([ \t\r\n]*(![ \t\r\n]*([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?|([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?([ \t\r\n]*(=|==|!=)[ \t\r\n]*([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?|[ \t\r\n]*[<>][ \t\r\n]*[0-9]{1,18}|[ \t\r\n]+(in|notin)[ \t\r\n]*[(][ \t\r\n]*([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?[ \t\r\n]*(,[ \t\r\n]*([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?[ \t\r\n]*)*[)])?)[ \t\r\n]*,)+|[ \t\r\n]*,)$')`,messageExpression=`'not a label selector; ' + (self.contains('all()') ? 'leave it empty to select all' : self.contains('has(') ? 'write the key alone for "has the label", !key for "has not"' : self.contains('&&') ? 'separate requirements with commas' : self.contains('||') ? 'use "key in (a, b)"' : self.contains("'") || self.contains('"') ? 'write values without quotes' : 'use the Kubernetes syntax: key=value, key in (a, b), key, !key')`
// +kubebuilder:validation:XValidation:rule=`!self.matches(r'[a-z0-9.-]{254}/')`,message=`not a label selector; the part of a key before / has at most 253 characters`
type Selector string

// IPPoolStatus is what admission decided and what is in use. The numbers are
// decimal text: a pool may hold more addresses than 64 bits count.
type IPPoolStatus struct {
	// +optional
	Capacity string `json:"capacity,omitempty"`
	// +optional
	Allocated string `json:"allocated,omitempty"`
	// +optional
	Cooling string `json:"cooling,omitempty"`
	// +optional
	Reserved string `json:"reserved,omitempty"`
	// +optional
	Available string `json:"available,omitempty"`
	// Conditions has Allocatable: whether the pool hands out addresses, and if not, why.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConditionAllocatable is the type of the condition that admission sets on a pool.
const ConditionAllocatable = "Allocatable"

// IPReservation lists CIDRs that automatic assignment must not hand out. Set by
// an operator.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ipr,categories=allod
// +kubebuilder:printcolumn:name=CIDRs,type=string,JSONPath=`.spec.reservedCIDRs`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type IPReservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IPReservationSpec `json:"spec"`
}

// IPReservationSpec holds CIDRs that may overlap and nest.
//
// +kubebuilder:validation:XValidation:rule=`has(self.reservedCIDRs) && size(self.reservedCIDRs) > 0`,message="spec.reservedCIDRs: empty; name at least one CIDR"
type IPReservationSpec struct {
	// ReservedCIDRs may be of both families.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule=`isCIDR(self)`,messageExpression=`self.contains('ffff:') ? self + ' is an IPv4-mapped IPv6 CIDR, or no CIDR; write it as IPv4, like 10.0.0.0/16' : '"' + self + '" is no CIDR such as 10.0.0.0/16'`
	// +kubebuilder:validation:items:XValidation:rule=`!isCIDR(self) || cidr(self).masked() == cidr(self)`,messageExpression=`self + ' has host bits set; write them as 0'`
	ReservedCIDRs []string `json:"reservedCIDRs,omitempty"`
}

// IPAMConfiguration is the singleton named "default". Set by an operator.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ipamconfig,categories=allod
// +kubebuilder:validation:XValidation:rule=`self.metadata.name == 'default'`,message=`the one IPAMConfiguration is named "default"`
// +kubebuilder:printcolumn:name=Strict,type=boolean,JSONPath=`.spec.strictAffinity`
// +kubebuilder:printcolumn:name=Blocks/Host,type=integer,JSONPath=`.spec.maxBlocksPerHost`
// +kubebuilder:printcolumn:name=Cooldown,type=integer,JSONPath=`.spec.ipCooldownSeconds`
// +kubebuilder:printcolumn:name=Grace,type=string,JSONPath=`.spec.leakGracePeriod`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type IPAMConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IPAMConfigurationSpec `json:"spec"`
}

// IPAMConfigurationSpec is what an operator sets; an absent field has its default.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.autoAllocateBlocks) || self.autoAllocateBlocks || (has(self.strictAffinity) && self.strictAffinity)`,message=`false needs spec.strictAffinity true: every address would be borrowed`,fieldPath=.autoAllocateBlocks
type IPAMConfigurationSpec struct {
	// StrictAffinity keeps nodes from borrowing addresses of blocks of other nodes.
	//
	// +optional
	StrictAffinity bool `json:"strictAffinity,omitempty"`
	// AutoAllocateBlocks lets nodes claim blocks; the default is true.
	//
	// +optional
	AutoAllocateBlocks *bool `json:"autoAllocateBlocks,omitempty"`
	// MaxBlocksPerHost is the most blocks of a pool's family a node claims; 0, the
	// default, means 20.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self >= 0`,message=`is negative; 0 means 20`
	MaxBlocksPerHost int `json:"maxBlocksPerHost,omitempty"`
	// KubeVirtVMAddressPersistence is Enabled, the default, or Disabled: whether
	// virtual machines keep their addresses over a restart.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self in ['', 'Enabled', 'Disabled']`,messageExpression=`'"' + self + '" is neither Enabled nor Disabled'`
	KubeVirtVMAddressPersistence Persistence `json:"kubeVirtVMAddressPersistence,omitempty"`
	// IPCooldownSeconds is how long a released address rests, 0 to 1200.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self >= 0 && self <= 1200`,message=`is outside 0 to 1200 seconds`
	IPCooldownSeconds int `json:"ipCooldownSeconds,omitempty"`
	// LeakGracePeriod is how long an owner must be gone before its address is
	// collected; the default is 15m, 0s turns the collection off.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([-+]?0|[-+]?(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)?$') && (self == '' || duration(self) >= duration('0s'))`,message=`is no duration such as 15m, or longer than 2562047h`,messageExpression=`self.matches('^-[0-9.]') ? self + ' is negative; 0s turns the collection of leaked addresses off' : '"' + self + '" is no duration such as 15m'`
	LeakGracePeriod string `json:"leakGracePeriod,omitempty"`
}

// Persistence says whether VMs keep their addresses over a restart.
type Persistence string

// The values of Persistence. Enabled is the default.
const (
	Enabled  Persistence = "Enabled"
	Disabled Persistence = "Disabled"
)

func meta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: APIVersion, Kind: kind}
}
