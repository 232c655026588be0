// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/test/kube/apiserver"
)

// show has pools, blocks and addresses, of a store in use; neither it nor check writes
// (INV-12), and with stderr no terminal neither says anything there.
func TestShowAndCheck(t *testing.T) {
	o := administrator(t)
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28, gateway: 10.64.0.1")).ends(0)
	got := attach(t, "node-a", "web", 3).V4
	through, p := o.through(nil)
	var pools struct {
		Pools []struct{ Name, Capacity, Allocated, Reserved, Available, Status string }
	}
	r := through.run("", "show", "-o", "json").ends(0)
	must(t, json.Unmarshal([]byte(r.out), &pools))
	if len(pools.Pools) != 1 || pools.Pools[0].Allocated != "3" || pools.Pools[0].Available != "252" || pools.Pools[0].Status != "OK" {
		t.Errorf("pools: %+v", pools)
	}
	for _, r := range []result{
		r,
		through.run("", "show", "--blocks").ends(0, got[0].Block.String(), "host:node-a"),
		through.run("", "show", "--addresses").ends(0, got[0].Addr.String(), "shop/web", "node-a"),
		through.run("", "show", "--ip", got[1].Addr.String()).ends(0, "allocated", "shop/web"),
		through.run("", "check").ends(0, "0 problems, 0 notices: 1 pool, 0 reservations, 1 block, 1 affinity, 3 allocated"),
	} {
		if r.err != "" {
			t.Errorf("stderr: %s", r.err)
		}
	}
	calls, writes := p.take()
	for _, c := range calls {
		if !strings.HasPrefix(c, "list ") {
			t.Errorf("%s was asked", c)
		}
	}
	if len(writes) != 0 || len(calls) < 30 {
		t.Errorf("%d calls, writes %q", len(calls), writes)
	}
}

// What somebody did with kubectl keeps a pool from handing out: show says so, check
// names the command that helps, and that helps (INV-13).
func TestShowSaysWhoHandsOut(t *testing.T) {
	empty(t)
	o := administrator(t)
	v4 := poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28")
	o.apply(v4).ends(0)
	for name, tc := range map[string]struct {
		patch, what string
		status      bool
	}{
		"changed":   {patch: `{"spec":{"natOutgoing":true}}`, what: "status is OK for generation "},
		"finalizer": {patch: `{"metadata":{"finalizers":null}}`, what: "its finalizer ipam.allod.io/pool is missing"},
		"status":    {patch: `{"status":null}`, what: "its status was removed", status: true},
	} {
		t.Run(name, func(t *testing.T) {
			var sub []string
			if tc.status {
				sub = []string{"status"}
			}
			_, err := raw.Resource(v1alpha1.Resource(v1alpha1.KindPool)).
				Patch(t.Context(), "v4", types.MergePatchType, []byte(tc.patch), metav1.PatchOptions{}, sub...)
			must(t, err)
			o.run("", "show").ends(0, " NotAdmitted").lacks(" OK")
			o.run("", "check").ends(3, "PoolStatusOutdated: pool v4", tc.what, `"allod-agent apply -f"`).lacks("bolt", ": : ")
			if err := tryAttach(t, "node-a", "web"); err == nil {
				t.Error("the pool hands out")
			}
			again := o.apply(v4).ends(0).lacks("unchanged", "warning")
			if name != "changed" {
				again.ends(0, "ippool/v4 admitted")
			}
			o.run("", "show").ends(0, " OK")
			o.run("", "check").ends(0)
			o.apply(v4).ends(0, "ippool/v4 unchanged")
		})
	}
	must(t, raw.Resource(v1alpha1.Resource(v1alpha1.KindPool)).Delete(t.Context(), "v4", metav1.DeleteOptions{}))
	o.run("", "show").ends(0, " Terminating")
	o.run("", "check").ends(3, "PoolTerminating: pool v4", `"allod-agent delete ippool/v4" completes it`)
	o.apply(v4).ends(1, "nothing was changed", `"allod-agent delete ippool/v4"`)
	o.run("", "delete", "ippools/v4").ends(0, "ippool/v4 deleted")
	if left(t, v1alpha1.KindPool) != 0 {
		t.Error("the pool is there")
	}
}

// Of a disabled pool admission does not put a lost finalizer back: check says so while
// the pool is in use, and what it advises helps.
func TestPoolUnprotected(t *testing.T) {
	empty(t)
	o := administrator(t)
	v4, disabled := poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28"), poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28, disabled: true")
	o.apply(v4).ends(0)
	attach(t, "node-a", "web", 1)
	patch(t, v1alpha1.KindPool, "v4", `{"metadata":{"finalizers":null}}`)
	o.apply(disabled).ends(0, "configured").lacks("warning")
	o.run("", "show").ends(0, " Disabled")
	o.run("", "check").ends(3, "PoolUnprotected: pool v4", "its finalizer ipam.allod.io/pool is missing and blocks of it exist")
	o.apply(v4).ends(0, "configured")
	wantCondition(t, "v4", admitted)
	o.run("", "check").ends(0)
}

// An object that cannot be read is told about and stops nothing.
func TestShowAndCheckUnreadable(t *testing.T) {
	o := administrator(t)
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28")).ends(0)
	got := attach(t, "node-a", "web", 1).V4[0]
	name := v1alpha1.BlockName(got.Block)
	patch(t, v1alpha1.KindBlock, name, `{"spec":{"slots":["0 nonsense"]}}`)
	o.run("", "show", "--blocks").ends(0, got.Block.String())
	o.run("", "check").ends(3, "UnreadableLine", got.Block.String())
	o.run("", "delete", "ippool/v4").ends(1, "nothing was changed")
}

// A contradiction that is over when check looks again is none; one that stays is.
func TestCheckLooksAgain(t *testing.T) {
	o := administrator(t)
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28")).ends(0)
	attach(t, "node-a", "web", 1)
	_, s := library(t)
	for name, stays := range map[string]bool{"over": false, "stays": true} {
		t.Run(name, func(t *testing.T) {
			key := datastore.AffinityKey{Owner: block.Host("node-" + name), CIDR: firstFree(t)}
			e, err := s.Store().Affinities.Create(t.Context(), key, datastore.Affinity{State: datastore.Confirmed, Pool: "v4", BlockSeq: 1})
			must(t, err)
			n := 0
			through, _ := (&operator{t, o.kubeconfig}).through(func(call string, _ http.ResponseWriter, _ *http.Request) bool {
				if call == "list ippools" {
					if n++; n == 2 && !stays {
						if err := s.Store().Affinities.Delete(t.Context(), e); err != nil {
							t.Error(err)
						}
					}
				}
				return false
			})
			if stays {
				through.run("", "check").ends(3, "BlockMissing")
			} else {
				through.run("", "check").ends(0, "0 problems, 0 notices").lacks("BlockMissing")
			}
			if n != 2 {
				t.Errorf("it looked %d times", n)
			}
		})
	}
}

func firstFree(t *testing.T) (free netip.Prefix) {
	t.Helper()
	_, s := library(t)
	blocks, err := s.Store().Blocks.List(t.Context(), datastore.Query{})
	must(t, err)
	for _, c := range []string{"10.64.0.0/28", "10.64.0.16/28"} {
		if free = netip.MustParsePrefix(c); len(blocks) == 0 || blocks[0].Key != free {
			return free
		}
	}
	return free
}

// On a terminal long lists show how far they are; the line is gone in the end.
func TestShowProgressOnTerminal(t *testing.T) {
	o := administrator(t)
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/24")).ends(0)
	cmd := exec.CommandContext(t.Context(), "script", "-qec", agentPath+" show --kubeconfig "+o.kubeconfig+" >"+filepath.Join(t.TempDir(), "out"), "/dev/null")
	out, err := cmd.CombinedOutput()
	must(t, err)
	if text := string(out); !strings.Contains(text, "reading pools: 1") || !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("the terminal shows %q", text)
	}
}

// An API server that is gone, a credential it does not know, and no CRDs: each is told
// in words, and exits with 1.
func TestNoAPIServer(t *testing.T) {
	with(t, "unknown").run("", "show").ends(1, "the credential is unknown or has expired")
	s := apiserver.New(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, s.Kubeconfig(path, s.AdminToken()))
	o := &operator{t, path}
	for _, args := range [][]string{{"show"}, {"check"}, {"delete", "ippool/v4"}} {
		o.run("", args...).ends(1, "manifests/crds")
	}
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/24")).ends(1, "nothing was changed", "manifests/crds")
	s.Stop()
	start := time.Now()
	for _, args := range [][]string{{"show"}, {"check"}, {"delete", "ippool/v4"}} {
		o.run("", args...).ends(1, "cannot be reached; is it running")
	}
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/24")).ends(1, "nothing was changed", "cannot be reached; is it running")
	if d := time.Since(start); d > time.Minute {
		t.Errorf("it took %v", d)
	}
}
