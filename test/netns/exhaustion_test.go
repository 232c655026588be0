// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"cmp"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

const ipamConfig = `
---
apiVersion: ipam.allod.io/v1alpha1
kind: IPAMConfiguration
metadata: {name: default}
spec: {autoAllocateBlocks: true, `

// TestExhaustionIsExplained (cases E1, E2): a refused ADD says which pools were
// considered, why each gave nothing, the counts, and the setting to change.
func TestExhaustionIsExplained(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		manifest string
		ipam     object
		fill     int // pods that succeed first
		release  int // of them, released again: their addresses cool
		code     uint
		words    []string
	}{
		{
			name: "case E2: every address is allocated", manifest: smallPools, fill: 4,
			words: []string{"small-v4", "10.99.0.0/30", "0 free", "0 cooling", "0 reserved", "add a pool"},
		},
		{
			name: "case E2: some are reserved",
			manifest: smallPools + `
---
apiVersion: ipam.allod.io/v1alpha1
kind: IPReservation
metadata: {name: printers}
spec: {reservedCIDRs: ["10.99.0.2/31"]}
`, fill: 2, words: []string{"small-v4", "2 reserved"},
		},
		{
			name: "case E2: some are cooling", manifest: smallPools + ipamConfig + "ipCooldownSeconds: 1200}", fill: 4, release: 3,
			words: []string{"small-v4", "3 cooling", "ipCooldownSeconds"},
		},
		{
			name: "case E1: the host's blocks are full and it may claim no more",
			manifest: `
apiVersion: ipam.allod.io/v1alpha1
kind: IPPool
metadata: {name: wide}
spec: {cidr: 10.99.0.0/24, blockSize: 30}
` + ipamConfig + "strictAffinity: true, maxBlocksPerHost: 1}", fill: 4,
			words: []string{"node-a", "maxBlocksPerHost", "1", "strictAffinity", "wide"},
		},
		{
			name: "case E2: no pool is eligible",
			manifest: `
apiVersion: ipam.allod.io/v1alpha1
kind: IPPool
metadata: {name: retired}
spec: {cidr: 10.99.0.0/24, disabled: true}
---
apiVersion: ipam.allod.io/v1alpha1
kind: IPPool
metadata: {name: by-hand}
spec: {cidr: 10.98.0.0/24, assignmentMode: Manual}
---
apiVersion: ipam.allod.io/v1alpha1
kind: IPPool
metadata: {name: tunnels}
spec: {cidr: 10.97.0.0/24, allowedUses: [Tunnel]}
`, code: types.ErrInvalidNetworkConfig, words: []string{"retired", "disabled", "by-hand", "Manual", "tunnels", "allowedUses"},
		},
		{
			name: "case E2: a pool that does not exist is asked for", manifest: smallPools,
			ipam: object{"ipv4Pools": []string{"smal-v4"}}, code: types.ErrInvalidNetworkConfig, words: []string{"smal-v4"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tc.manifest)
			conf := r.conf(tc.ipam, nil)
			for i := range tc.fill {
				r.add(conf, pod(fmt.Sprintf("web-%d", i)))
			}
			for i := range tc.release {
				r.ok("DEL", conf, pod(fmt.Sprintf("web-%d", i)))
			}
			r.refused("ADD", conf, pod("one-too-many"), cmp.Or(tc.code, types.ErrTryAgainLater), tc.words...)
			r.counts(tc.fill-tc.release, tc.release)
			r.clean()
		})
	}
}

// TestBorrowing (case E1): without strictAffinity the cap is no end: the host takes
// an address from another host's block.
func TestBorrowing(t *testing.T) {
	t.Parallel()
	r := newRig(t, `
apiVersion: ipam.allod.io/v1alpha1
kind: IPPool
metadata: {name: two-blocks}
spec: {cidr: 10.99.0.0/29, blockSize: 30}
`+ipamConfig+"maxBlocksPerHost: 1}")
	other := r.conf(object{"nodeName": "node-b"}, nil)
	r.add(other, pod("on-b"))
	for i := range 7 {
		r.add(r.conf(nil, nil), pod(fmt.Sprintf("on-a-%d", i)))
	}
	r.counts(8, 0)
	for i := range 7 {
		r.ok("DEL", r.conf(nil, nil), pod(fmt.Sprintf("on-a-%d", i)))
	}
	r.counts(1, 0)
	r.ok("DEL", other, pod("on-b"))
	r.counts(0, 0)
	r.clean()
}

// TestCooldown: a released address is not given out before its time, and the
// refusal says when the first comes free.
func TestCooldown(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallPools+ipamConfig+"ipCooldownSeconds: 600}")
	conf := r.conf(nil, nil)
	for i := range 4 {
		r.add(conf, pod(fmt.Sprintf("web-%d", i)))
	}
	before := time.Now().Add(600 * time.Second)
	for i := range 4 {
		r.ok("DEL", conf, pod(fmt.Sprintf("web-%d", i)))
	}
	after := time.Now().Add(600 * time.Second)
	r.counts(0, 4)
	e := r.refused("ADD", conf, pod("next"), types.ErrTryAgainLater, "4 cooling")
	var earliest time.Time
	for _, word := range regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)`).FindAllString(e.Msg+" "+e.Details, -1) {
		at, err := time.Parse(time.RFC3339Nano, word)
		if err != nil {
			t.Fatal(err)
		}
		earliest = at
	}
	// Stamps may be cut to whole seconds, up or down.
	if earliest.Before(before.Add(-time.Second)) || earliest.After(after.Add(time.Second)) {
		t.Errorf("the first address comes free between %s and %s; the message: %v", before, after, e)
	}
	r.clean()
}

// TestNodeSelectorHasNoLabels: direct mode knows its node's name and no labels: a
// pool for labelled nodes is skipped, with the reason (INV-13).
func TestNodeSelectorHasNoLabels(t *testing.T) {
	t.Parallel()
	r := newRig(t, `
apiVersion: ipam.allod.io/v1alpha1
kind: IPPool
metadata: {name: ssd-only}
spec: {cidr: 10.99.0.0/24, nodeSelector: "disk == ssd"}
`)
	r.refused("ADD", r.conf(nil, nil), pod("web-0"), types.ErrInvalidNetworkConfig, "ssd-only", "nodeSelector")
	r.counts(0, 0)
}
