// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// Case D10: operators apply overlapping pools at the same moment. At rest one of them
// hands out, and every apply has ended well.
func TestManyOperators(t *testing.T) {
	o := administrator(t)
	const operators = 6
	results := make([]result, operators)
	var wg sync.WaitGroup
	for i := range operators {
		wg.Go(func() {
			results[i] = o.apply(poolManifest(fmt.Sprintf("p%d", i), fmt.Sprintf("cidr: 10.64.0.0/%d", 16+i)) +
				poolManifest(fmt.Sprintf("own%d", i), fmt.Sprintf("cidr: 10.%d.0.0/16", 70+i)))
		})
	}
	wg.Wait()
	hand := 0
	for i, r := range results {
		r.ends(0)
		wantCondition(t, fmt.Sprintf("own%d", i), admitted)
		if strings.HasPrefix(condition(t, fmt.Sprintf("p%d", i)), "True") {
			hand++
		}
	}
	if hand == 0 {
		t.Error("no pool hands out")
	}
	before := map[int]string{}
	for i := range operators {
		before[i] = condition(t, fmt.Sprintf("p%d", i))
	}
	o.apply(poolManifest("own0", "cidr: 10.70.0.0/16")).ends(0, "unchanged")
	for i := range operators {
		if now := condition(t, fmt.Sprintf("p%d", i)); now != before[i] {
			t.Errorf("p%d was not at rest: %s, then %s", i, before[i], now)
		}
	}
	r := o.run("", "check")
	r.lacks("PoolStatusOutdated", "OverlappingBlocks")
}

// Admission cut short between the finalizer and the condition, or undone by a change
// with kubectl: the pool hands out nothing, and the same apply completes it.
func TestAdmissionCutShort(t *testing.T) {
	o := administrator(t)
	v4 := poolManifest("v4", "cidr: 10.64.0.0/16")
	broken, _ := o.through(func(call string, w http.ResponseWriter, _ *http.Request) bool {
		if call == "patch ippools/status" {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}
		return false
	})
	broken.apply(v4).ends(1, "ippool/v4 created", "every object is stored, but not all that follows from it", "apply the same manifests again")
	wantCondition(t, "v4", "undecided "+v1alpha1.PoolFinalizer)
	o.apply(v4).ends(0, "ippool/v4 admitted")
	o.apply(v4).ends(0, "ippool/v4 unchanged")
	wantCondition(t, "v4", admitted)
	patch(t, v1alpha1.KindPool, "v4", `{"spec":{"natOutgoing":true}}`)
	wantCondition(t, "v4", "True OK, of another generation "+v1alpha1.PoolFinalizer)
	o.run("", "check").ends(3, "PoolStatusOutdated", `"allod-agent apply -f" with the manifest of ippool/v4`).lacks("bolt")
	o.apply(v4).ends(0, "ippool/v4 configured")
	wantCondition(t, "v4", admitted)
	patch(t, v1alpha1.KindPool, "v4", `{"spec":{"disabled":true}}`)
	o.apply(manifest(v1alpha1.KindConfiguration, "default", "strictAffinity: true")).ends(0)
	wantCondition(t, "v4", "False Disabled "+v1alpha1.PoolFinalizer)
}

// Nodes take and give back addresses while the pool is deleted: it never goes before
// its blocks, and once it is gone nobody has an address of it (INV-1).
func TestDeleteAgainstNodes(t *testing.T) {
	o := administrator(t)
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/26, blockSize: 28")).ends(0)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 3 {
		c, _ := library(t)
		node := fmt.Sprintf("node-%d", i)
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				// Refused once the pool is deleted; what was taken is always given back.
				who := owner(node, fmt.Sprintf("%s-%d", node, n))
				_, _ = c.Attach(t.Context(), ipam.AttachRequest{AutoAssignRequest: ipam.AutoAssignRequest{
					Num4: 1, Host: pool.Node{Name: node}, Use: pool.UseWorkload, Owner: who,
				}})
				if _, err := c.Detach(t.Context(), ipam.DetachRequest{Attachment: who.Attachment(), Node: node}); err != nil {
					t.Errorf("detach: %v", err)
				}
			}
		})
	}
	gone := false
	for try := 0; try < 50 && !gone; try++ {
		r := o.run("", "delete", "ippool/v4", "--timeout", "20s")
		if gone = r.code == 0; !gone {
			r.ends(1, "of its addresses ", " allocated and ") // at that moment
		}
	}
	if !gone {
		t.Error("the pool is still there")
	}
	if b := left(t, v1alpha1.KindBlock); b != 0 { // a claim may just be found to be in vain
		t.Errorf("the pool is gone, and %d blocks are left", b)
	}
	close(stop)
	wg.Wait()
	if b, a := left(t, v1alpha1.KindBlock), left(t, v1alpha1.KindAffinity); b+a != 0 {
		t.Errorf("in the end %d blocks and %d claims are left", b, a)
	}
}
