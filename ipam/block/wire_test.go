// SPDX-License-Identifier: Apache-2.0

package block

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// The spec of an IPAMBlock as an operator sees it in the cluster.
const storedSpec = `
format: 1
cidr: 10.70.3.8/29
affinity: host:worker-2
claimedAt: "2026-12-01T09:58:00.25Z"
sequence: "1796119290000000001"
queue: "6,1-4"
slots:
- 0 allocated k8s-pod-network.a1b2 1796119290000000001 type=workload since=2026-12-01T10:01:30Z net=k8s-pod-network pod=blog/db-0 uid=7f0c cid=a1b2 if=eth0 node=worker-2
- 5 allocated vxlan-tunnel-addr-worker-2 1796119290000000000 type=vxlanTunnelAddress since=2026-12-01T10:01:30Z node=worker-2 nodeuid=11d3
- 7 cooling - 1796119200000000000 type=workload released=2026-12-01T10:01:10Z last=k8s-pod-network.c3d4 net=k8s-pod-network pod=blog/web-1 uid=2e9a cid=c3d4 if=eth0 node=worker-2
`

// Design, section 13: the sketch of the stored form settles the names. A block
// like it is read without a complaint, means what it says, and is written back
// as it was.
func TestStoredSpec(t *testing.T) {
	var stored struct {
		Format    int      `json:"format"`
		CIDR      string   `json:"cidr"`
		Affinity  string   `json:"affinity"`
		ClaimedAt string   `json:"claimedAt"`
		Sequence  string   `json:"sequence"`
		Queue     string   `json:"queue"`
		Slots     []string `json:"slots"`
	}
	if err := yaml.UnmarshalStrict([]byte(storedSpec), &stored); err != nil {
		t.Fatal(err)
	}
	w := Wire{
		Format: stored.Format, CIDR: stored.CIDR, Affinity: stored.Affinity, ClaimedAt: stored.ClaimedAt,
		Sequence: stored.Sequence, Queue: stored.Queue, Slots: stored.Slots,
	}
	b := mustDecode(t, w)
	if p := b.Problems(); len(p) != 0 {
		t.Errorf("problems: %q", p)
	}
	if d := diffWire(w, Encode(b)); d != "" {
		t.Errorf("written back (-was +is):\n%s", d)
	}
	if want := Host("worker-2"); b.Affinity != want {
		t.Errorf("affinity %v, want %v", b.Affinity, want)
	}
	if d := cmp.Diff([]string{"10.70.3.14", "10.70.3.9", "10.70.3.10", "10.70.3.11", "10.70.3.12"}, free(b)); d != "" {
		t.Errorf("free (-want +got):\n%s", d)
	}
	want := map[string]Slot{
		"10.70.3.8": {
			State: Allocated, Type: Workload, Handle: "k8s-pod-network.a1b2", Seq: 1796119290000000001,
			Since: time.Date(2026, 12, 1, 10, 1, 30, 0, time.UTC),
			Active: Owner{
				Network: "k8s-pod-network", Namespace: "blog", Pod: "db-0", PodUID: "7f0c",
				ContainerID: "a1b2", IfName: "eth0", Node: "worker-2",
			},
		},
		"10.70.3.13": {
			State: Allocated, Type: VXLANTunnel, Handle: "vxlan-tunnel-addr-worker-2", Seq: 1796119290000000000,
			Since:  time.Date(2026, 12, 1, 10, 1, 30, 0, time.UTC),
			Active: Owner{Node: "worker-2", NodeUID: "11d3"},
		},
		"10.70.3.15": {
			State: Cooling, Type: Workload, Seq: 1796119200000000000,
			Released: time.Date(2026, 12, 1, 10, 1, 10, 0, time.UTC), LastHandle: "k8s-pod-network.c3d4",
			Active: Owner{
				Network: "k8s-pod-network", Namespace: "blog", Pod: "web-1", PodUID: "2e9a",
				ContainerID: "c3d4", IfName: "eth0", Node: "worker-2",
			},
		},
	}
	got := map[string]Slot{}
	for a, s := range b.All() {
		got[a.String()] = s
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("slots (-want +got):\n%s", d)
	}
	if s, ok := b.Slot(netip.MustParseAddr("10.70.3.15")); !ok || s.State != Cooling {
		t.Errorf("slot of .15: %+v, %v", s, ok)
	}
	if _, ok := b.Slot(netip.MustParseAddr("10.70.3.9")); ok {
		t.Error("a free address has a slot")
	}
}

// Unknown spec fields belong to the value: neither the reader's input nor the
// writer's output may be changed through it (D16).
func TestExtraIsNotShared(t *testing.T) {
	in := Wire{CIDR: "10.0.0.0/30", Sequence: "1", Queue: "0-3", Extra: []Extra{{Key: "k", JSON: []byte(`"old"`)}}}
	b := mustDecode(t, in)
	copy(in.Extra[0].JSON, `"new"`)
	in.Extra[0].Key = "x"
	out := Encode(b)
	copy(out.Extra[0].JSON, `"out"`)
	if e := Encode(b).Extra[0]; e.Key != "k" || string(e.JSON) != `"old"` {
		t.Errorf("extra is %s=%s", e.Key, e.JSON)
	}
	damaged := mustDecode(t, Wire{CIDR: "10.0.0.0/30", Sequence: "1", Queue: "0-2"})
	damaged.Problems()[0] = "changed"
	if damaged.Problems()[0] == "changed" {
		t.Error("problems are shared")
	}
}
