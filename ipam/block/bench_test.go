// SPDX-License-Identifier: Apache-2.0

package block

import (
	"fmt"
	"testing"
)

// fullBlock is a /26 with n pods of ordinary names.
func fullBlock(b *testing.B, n int) Block {
	blk := mustNew(b, "10.64.0.64/26")
	for i := range n {
		cid := fmt.Sprintf("%064x", i)
		blk, _ = blk.Allocate(Request{
			N: 1, Handle: HandleID("k8s-pod-network." + cid), Type: Workload, Now: t0,
			Owner: Owner{
				Network: "k8s-pod-network", Namespace: "shop", Pod: fmt.Sprintf("web-7d4b9c6f5d-%05d", i),
				PodUID:      fmt.Sprintf("95f1c7a2-0d0b-4c1e-9b55-%012d", i),
				ContainerID: cid, IfName: "eth0", Node: "node-a.example.internal",
			},
		})
	}
	return blk
}

// BenchmarkAllocateEncode is the CPU a node spends on the last ADD of a block.
func BenchmarkAllocateEncode(b *testing.B) {
	blk := fullBlock(b, 63)
	r := Request{N: 1, Handle: "k8s-pod-network.last", Type: Workload, Now: t0, Owner: Owner{Pod: "last"}}
	b.ReportAllocs()
	for b.Loop() {
		next, _ := blk.Allocate(r)
		Encode(next)
	}
}

// BenchmarkDecode is the CPU a full block costs whoever reads it.
func BenchmarkDecode(b *testing.B) {
	w := Encode(fullBlock(b, 64))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(w); err != nil {
			b.Fatal(err)
		}
	}
}
