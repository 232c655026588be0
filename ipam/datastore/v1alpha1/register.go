// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// +kubebuilder:object:generate=true
// +groupName=ipam.allod.io

// GroupVersion is the API group and version of every kind here.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// AddToScheme makes every kind and its list known to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&IPPool{}, &IPPoolList{},
		&IPReservation{}, &IPReservationList{},
		&IPAMConfiguration{}, &IPAMConfigurationList{},
		&IPAMBlock{}, &IPAMBlockList{},
		&BlockAffinity{}, &BlockAffinityList{},
		&IPAMHandle{}, &IPAMHandleList{},
		&TunnelEndpoint{}, &TunnelEndpointList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

var resources = map[string]string{
	KindPool:           "ippools",
	KindReservation:    "ipreservations",
	KindConfiguration:  "ipamconfigurations",
	KindBlock:          "ipamblocks",
	KindAffinity:       "blockaffinities",
	KindHandle:         "ipamhandles",
	KindTunnelEndpoint: "tunnelendpoints",
}

// Resource returns the resource under which an API server has objects of a kind,
// the zero value for a kind that is not one of ours.
func Resource(kind string) schema.GroupVersionResource {
	if name, ok := resources[kind]; ok {
		return GroupVersion.WithResource(name)
	}
	return schema.GroupVersionResource{}
}
