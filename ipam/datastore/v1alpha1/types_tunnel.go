// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TunnelEndpoint is how other nodes reach the pods of the node of that name.
// Published by the node's agent.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=te,categories=allod
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeUID`
// +kubebuilder:printcolumn:name=Underlay,type=string,JSONPath=`.spec.underlayAddress`
// +kubebuilder:printcolumn:name=VXLAN,type=string,JSONPath=`.spec.vxlanTunnelAddress`
// +kubebuilder:printcolumn:name=IPIP,type=string,JSONPath=`.spec.ipipTunnelAddress`
// +kubebuilder:printcolumn:name=WireGuard,type=string,JSONPath=`.spec.wireguardTunnelAddress`
// +kubebuilder:printcolumn:name=MAC,type=string,JSONPath=`.spec.vtepMAC`,priority=1
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type TunnelEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              TunnelEndpointSpec `json:"spec"`
}

// TunnelEndpointSpec has an empty field for every type of tunnel that is off. The
// addresses are named like the slot types that hold them.
type TunnelEndpointSpec struct {
	// NodeUID is the UID of the Node object that the addresses were assigned for: a
	// node of that name with another UID has not published this.
	//
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self != ''`,message=`missing`
	NodeUID string `json:"nodeUID"`
	// UnderlayAddress is the node's address that IPv4 tunnels go to.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self == '' || (isIP(self) && ip(self).family() == 4)`,messageExpression=`'"' + self + '" is no IPv4 address'`
	UnderlayAddress string `json:"underlayAddress,omitempty"`
	// UnderlayV6Address is the node's address that IPv6 tunnels go to.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self == '' || (isIP(self) && ip(self).family() == 6)`,messageExpression=`'"' + self + '" is no IPv6 address'`
	UnderlayV6Address string `json:"underlayV6Address,omitempty"`
	// IPIPTunnelAddress is the address of the ipip link.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self == '' || (isIP(self) && ip(self).family() == 4)`,messageExpression=`'"' + self + '" is no IPv4 address'`
	IPIPTunnelAddress string `json:"ipipTunnelAddress,omitempty"`
	// VXLANTunnelAddress is the address of the IPv4 VXLAN link.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self == '' || (isIP(self) && ip(self).family() == 4)`,messageExpression=`'"' + self + '" is no IPv4 address'`
	VXLANTunnelAddress string `json:"vxlanTunnelAddress,omitempty"`
	// VXLANV6TunnelAddress is the address of the IPv6 VXLAN link.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self == '' || (isIP(self) && ip(self).family() == 6)`,messageExpression=`'"' + self + '" is no IPv6 address'`
	VXLANV6TunnelAddress string `json:"vxlanV6TunnelAddress,omitempty"`
	// WireGuardTunnelAddress is the address of the IPv4 WireGuard link.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self == '' || (isIP(self) && ip(self).family() == 4)`,messageExpression=`'"' + self + '" is no IPv4 address'`
	WireGuardTunnelAddress string `json:"wireguardTunnelAddress,omitempty"`
	// WireGuardV6TunnelAddress is the address of the IPv6 WireGuard link.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self == '' || (isIP(self) && ip(self).family() == 6)`,messageExpression=`'"' + self + '" is no IPv6 address'`
	WireGuardV6TunnelAddress string `json:"wireguardV6TunnelAddress,omitempty"`
	// VTEPMAC is the MAC address of the IPv4 VXLAN link.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^(([0-9a-f]{2}:){5}[0-9a-f]{2})?$')`,messageExpression=`'"' + self + '" is no MAC address such as 0a:00:27:00:00:01'`
	VTEPMAC string `json:"vtepMAC,omitempty"`
	// VTEPV6MAC is the MAC address of the IPv6 VXLAN link.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^(([0-9a-f]{2}:){5}[0-9a-f]{2})?$')`,messageExpression=`'"' + self + '" is no MAC address such as 0a:00:27:00:00:01'`
	VTEPV6MAC string `json:"vtepV6MAC,omitempty"`
	// WireGuardPublicKey is the key of the IPv4 WireGuard link.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)?$')`,messageExpression=`'"' + self + '" is no WireGuard public key: 32 bytes in base64'`
	WireGuardPublicKey string `json:"wireguardPublicKey,omitempty"`
	// WireGuardV6PublicKey is the key of the IPv6 WireGuard link.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)?$')`,messageExpression=`'"' + self + '" is no WireGuard public key: 32 bytes in base64'`
	WireGuardV6PublicKey string `json:"wireguardV6PublicKey,omitempty"`
	// HostRoutes are the addresses in use on this node from blocks affine elsewhere.
	// For one address the newest sequence of all nodes wins.
	//
	// +optional
	// +listType=map
	// +listMapKey=addr
	// +kubebuilder:validation:MaxItems=4096
	HostRoutes []HostRoute `json:"hostRoutes,omitempty"`
}

// HostRoute is one address that is reached through this node.
type HostRoute struct {
	// Addr is the address.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`isIP(self)`,messageExpression=`'"' + self + '" is no address'`
	Addr string `json:"addr"`
	// Sequence is that of the allocation, in decimal.
	//
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,20})$') && (self.size() < 20 || self <= '18446744073709551615')`,messageExpression=`'"' + self + '" is no number of 64 bits'`
	Sequence string `json:"sequence"`
}

var (
	legalMAC = regexp.MustCompile(`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`)
	legalKey = regexp.MustCompile(`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$`)
)

// Validate returns every rule that o breaks, joined; each error names its field.
func (o *TunnelEndpoint) Validate() error {
	s := o.Spec
	errs := []error{
		ValidateName(o.Name), tooLong("nodeUID", s.NodeUID, maxNodeUID), tooMany("hostRoutes", len(s.HostRoutes), maxHostRoutes),
	}
	if s.NodeUID == "" {
		errs = append(errs, errors.New("spec.nodeUID: missing"))
	}
	for _, f := range []struct {
		field, value string
		v6           bool
	}{
		{"underlayAddress", s.UnderlayAddress, false},
		{"underlayV6Address", s.UnderlayV6Address, true},
		{"ipipTunnelAddress", s.IPIPTunnelAddress, false},
		{"vxlanTunnelAddress", s.VXLANTunnelAddress, false},
		{"vxlanV6TunnelAddress", s.VXLANV6TunnelAddress, true},
		{"wireguardTunnelAddress", s.WireGuardTunnelAddress, false},
		{"wireguardV6TunnelAddress", s.WireGuardV6TunnelAddress, true},
	} {
		errs = append(errs, validateAddress(f.field, f.value, f.v6))
	}
	for _, f := range []struct {
		field, value, what string
		legal              *regexp.Regexp
	}{
		{"vtepMAC", s.VTEPMAC, "MAC address such as 0a:00:27:00:00:01", legalMAC},
		{"vtepV6MAC", s.VTEPV6MAC, "MAC address such as 0a:00:27:00:00:01", legalMAC},
		{"wireguardPublicKey", s.WireGuardPublicKey, "WireGuard public key: 32 bytes in base64", legalKey},
		{"wireguardV6PublicKey", s.WireGuardV6PublicKey, "WireGuard public key: 32 bytes in base64", legalKey},
	} {
		if f.value != "" && !f.legal.MatchString(f.value) {
			errs = append(errs, fmt.Errorf("spec.%s: %q is no %s", f.field, f.value, f.what))
		}
	}
	return errors.Join(append(errs, s.validateHostRoutes()...)...)
}

func validateAddress(field, text string, v6 bool) error {
	if text == "" {
		return nil
	}
	family := "IPv4"
	if v6 {
		family = "IPv6"
	}
	if a, err := parseAddr(text); err != nil || a.Is6() != v6 {
		return fmt.Errorf("spec.%s: %q is no %s address", field, text, family)
	}
	return nil
}

func (s TunnelEndpointSpec) validateHostRoutes() []error {
	var errs []error
	seen := map[string]bool{}
	for i, r := range s.HostRoutes {
		if _, err := parseAddr(r.Addr); err != nil {
			errs = append(errs, fmt.Errorf("spec.hostRoutes[%d].addr: %q is no address", i, r.Addr))
		}
		if _, err := strconv.ParseUint(r.Sequence, 10, 64); err != nil || len(r.Sequence) > maxSequence {
			errs = append(errs, fmt.Errorf("spec.hostRoutes[%d].sequence: %q is no number of 64 bits", i, r.Sequence))
		}
		if seen[r.Addr] {
			errs = append(errs, fmt.Errorf("spec.hostRoutes[%d]: Duplicate value: %q", i, r.Addr))
		}
		seen[r.Addr] = true
	}
	return errs
}

// parseAddr reads an address without a zone that is no IPv4 address in disguise.
func parseAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err == nil && (a.Zone() != "" || a.Is4In6()) {
		err = fmt.Errorf("%v has a zone or is IPv4-mapped", a)
	}
	return a, err
}
