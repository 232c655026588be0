// SPDX-License-Identifier: Apache-2.0

package ipam

import "github.com/allod/allod/ipam/block"

// DefaultNetwork is the network name of a handle when none is given.
const DefaultNetwork = "k8s-pod-network"

// WindowsHandle is the handle of the ordinals that hosts reserve of their blocks.
const WindowsHandle block.HandleID = "windows-reserved-ipam-handle"

// SandboxHandle is the handle of a pod sandbox: <network>.<containerID>. The
// interface is not part of it; a DEL of one interface releases that one only.
func SandboxHandle(network, containerID string) block.HandleID {
	if network == "" {
		network = DefaultNetwork
	}
	return block.HandleID(network + "." + containerID)
}

// WorkloadHandle is the handle of an allocation known by its workload:
// <namespace>.<pod>.
func WorkloadHandle(namespace, pod string) block.HandleID {
	return block.HandleID(namespace + "." + pod)
}
