// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPPoolList is a list of IPPool objects, as an API server returns it.
//
// +kubebuilder:object:root=true
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPPool `json:"items"`
}

// IPReservationList is a list of IPReservation objects, as an API server returns it.
//
// +kubebuilder:object:root=true
type IPReservationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPReservation `json:"items"`
}

// IPAMConfigurationList is a list of IPAMConfiguration objects, as an API server returns it.
//
// +kubebuilder:object:root=true
type IPAMConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPAMConfiguration `json:"items"`
}

// IPAMBlockList is a list of IPAMBlock objects, as an API server returns it.
//
// +kubebuilder:object:root=true
type IPAMBlockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPAMBlock `json:"items"`
}

// BlockAffinityList is a list of BlockAffinity objects, as an API server returns it.
//
// +kubebuilder:object:root=true
type BlockAffinityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BlockAffinity `json:"items"`
}

// IPAMHandleList is a list of IPAMHandle objects, as an API server returns it.
//
// +kubebuilder:object:root=true
type IPAMHandleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPAMHandle `json:"items"`
}

// TunnelEndpointList is a list of TunnelEndpoint objects, as an API server returns it.
//
// +kubebuilder:object:root=true
type TunnelEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TunnelEndpoint `json:"items"`
}
