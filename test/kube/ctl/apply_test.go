// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/test/kube/apiserver"
)

// Every valid sample that an operator applies: stored, and each pool is admitted or
// warned about.
func TestApplySamples(t *testing.T) {
	o := administrator(t)
	files, err := filepath.Glob(filepath.Join(moduleRoot, "manifests", "samples", "valid", "*.yaml"))
	must(t, err)
	n := 0
	for _, file := range files {
		base := filepath.Base(file)
		if !strings.HasPrefix(base, "pool-") && !strings.HasPrefix(base, "reservation") && !strings.HasPrefix(base, "configuration") {
			continue
		}
		n++
		t.Run(base, func(t *testing.T) {
			empty(t)
			o := &operator{t, o.kubeconfig}
			text, err := os.ReadFile(file)
			must(t, err)
			objects, err := apiserver.Decode(text)
			must(t, err)
			first := o.run("", "apply", "-f", file).ends(0, "datastore: kubernetes https://127.0.0.1:", "(context test)", " created").lacks("embedded store")
			for _, object := range objects {
				name := object.GetName()
				if object.GetKind() != v1alpha1.KindPool || strings.Contains(first.err, "warning: ippool/"+name+" hands out nothing: CIDROverlap") {
					continue
				}
				if got := condition(t, name); got != admitted && got != "False Disabled" {
					t.Errorf("pool %s: %s\n%s", name, got, first.err)
				}
			}
			o.run("", "apply", "-f", file).ends(0, " unchanged").lacks("configured", "created")
			o.run("", "check").ends(map[bool]int{false: 0, true: 3}[strings.Contains(first.err, "CIDROverlap")])
		})
	}
	if n < 10 {
		t.Errorf("%d samples only", n)
	}
}

// Case D10: of two pools that overlap the older hands out; when it is gone, the other.
func TestApplyOverlap(t *testing.T) {
	o := administrator(t)
	o.apply(poolManifest("older", "cidr: 10.64.0.0/16")).ends(0, "ippool/older created")
	o.apply(poolManifest("a-younger", "cidr: 10.64.128.0/17")).ends(0, "ippool/a-younger created",
		"warning: ippool/a-younger hands out nothing: CIDROverlap: 10.64.128.0/17 overlaps pool older (10.64.0.0/16)")
	wantCondition(t, "older", admitted)
	wantCondition(t, "a-younger", overlaps)
	o.run("", "check").ends(3, "PoolNotAllocatable")
	at := transition(t, "older")
	o.apply(poolManifest("older", "cidr: 10.64.0.0/16, natOutgoing: true")).ends(0, "ippool/older configured")
	wantCondition(t, "older", admitted) // of the new generation
	if transition(t, "older") != at {
		t.Error("the time of the condition has moved without its status")
	}
	o.run("", "delete", "ippool/older").ends(0, "ippool/older deleted")
	wantCondition(t, "a-younger", admitted)
	o.run("", "check").ends(0)
	o.apply(poolManifest("a-younger", "cidr: 10.64.128.0/17, disabled: true")).ends(0).lacks("warning")
	wantCondition(t, "a-younger", "False Disabled "+v1alpha1.PoolFinalizer)
}

func transition(t *testing.T, name string) string {
	t.Helper()
	o := object(t, v1alpha1.KindPool, name)
	status := o.Object["status"].(map[string]any)["conditions"].([]any)[0].(map[string]any)
	return status["lastTransitionTime"].(string)
}

// What another writer put on an object survives; what a manifest says beside the spec
// is ignored.
func TestApplyKeepsWhatIsOfOthers(t *testing.T) {
	o := administrator(t)
	o.apply(strings.Replace(poolManifest("v4", "cidr: 10.64.0.0/16"), "{name: v4}", "{name: v4, labels: {mine: x}, annotations: {mine: x}}", 1)).ends(0)
	if got := object(t, v1alpha1.KindPool, "v4"); len(got.GetLabels())+len(got.GetAnnotations()) != 0 {
		t.Errorf("labels %v, annotations %v", got.GetLabels(), got.GetAnnotations())
	}
	patch(t, v1alpha1.KindPool, "v4", `{"metadata":{"labels":{"team":"net"},"annotations":{"note":"n"},"finalizers":["example.com/f","`+v1alpha1.PoolFinalizer+`"]}}`)
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/16, gateway: 10.64.0.1")).ends(0, "configured")
	got := object(t, v1alpha1.KindPool, "v4")
	if got.GetLabels()["team"] != "net" || got.GetAnnotations()["note"] != "n" || len(got.GetFinalizers()) != 2 {
		t.Errorf("labels %v, annotations %v, finalizers %v", got.GetLabels(), got.GetAnnotations(), got.GetFinalizers())
	}
}

// A reservation, a gateway, and a reservation that goes change what blocks are
// labelled with (INV-13).
func TestApplyRelabels(t *testing.T) {
	o := administrator(t)
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 30")).ends(0)
	got := attach(t, "node-a", "web", 1).V4[0]
	space := func(want block.Space) {
		t.Helper()
		if got := object(t, v1alpha1.KindBlock, v1alpha1.BlockName(got.Block)).GetLabels()[v1alpha1.LabelSpace]; got != string(want) {
			t.Errorf("label %s, want %s", got, want)
		}
	}
	space(block.SpaceFree)
	r := manifest(v1alpha1.KindReservation, "r", "reservedCIDRs: ["+got.Block.String()+"]")
	o.apply(r).ends(0, "ipreservation/r created")
	space(block.SpaceFull)
	// An apply cut short: stored, not labelled. The same apply completes it.
	patch(t, v1alpha1.KindBlock, v1alpha1.BlockName(got.Block), `{"metadata":{"labels":{"`+v1alpha1.LabelSpace+`":"cooling"}}}`)
	o.apply(r).ends(0, "ipreservation/r unchanged")
	space(block.SpaceFull)
	o.run("", "delete", "ipreservation/r").ends(0, "ipreservation/r deleted")
	space(block.SpaceFree)
	o.run("", "check").ends(0)
}

// A refusal of any object, by the library or by the API server, changes nothing.
func TestApplyRefused(t *testing.T) {
	o := administrator(t)
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28")).ends(0)
	got := attach(t, "node-a", "web", 1).V4[0]
	more := poolManifest("more", "cidr: 10.65.0.0/16")
	free := got.Block.Addr()
	if free == got.Addr {
		free = free.Next()
	}
	for name, tt := range map[string]struct{ manifest, want string }{
		"not valid":               {manifest(v1alpha1.KindReservation, "r", "reservedCIDRs: [x]"), `spec.reservedCIDRs[0]: "x" is no CIDR`},
		"the CIDR":                {poolManifest("v4", "cidr: 10.66.0.0/24"), "spec.cidr: cannot change from 10.64.0.0/24 to 10.66.0.0/24"},
		"case C8: the block size": {poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 30"), "spec.blockSize: cannot change from 28 to 30 now: block " + got.Block.String()},
		"a gateway in use":        {poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28, gateway: "+got.Addr.String()), "spec.gateway: " + got.Addr.String() + " is in use by pod shop/web on node node-a"},
	} {
		t.Run(name, func(t *testing.T) {
			before := object(t, v1alpha1.KindPool, "v4").GetResourceVersion()
			through, p := (&operator{t, o.kubeconfig}).through(nil)
			through.apply(more+tt.manifest).ends(1, "nothing was changed", tt.want)
			if _, writes := p.take(); len(writes) != 0 {
				t.Errorf("it wrote %q", writes)
			}
			if now := object(t, v1alpha1.KindPool, "v4").GetResourceVersion(); now != before {
				t.Error("the pool is another")
			}
		})
	}
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/24, blockSize: 28, gateway: "+free.String())).ends(0, "configured")
}

// When a write fails in the middle, apply says how far it came, and the same apply
// completes it.
func TestApplyCutShort(t *testing.T) {
	o := administrator(t)
	all := poolManifest("one", "cidr: 10.64.0.0/16") + poolManifest("two", "cidr: 10.65.0.0/16") +
		manifest(v1alpha1.KindReservation, "r", "reservedCIDRs: [10.64.0.0/28]")
	n := 0
	broken, _ := o.through(func(call string, w http.ResponseWriter, r *http.Request) bool {
		if call != "create ippools" || r.URL.Query().Get("dryRun") != "" {
			return false
		}
		if n++; n == 2 {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}
		return false
	})
	r := broken.apply(all).ends(1, "ippool/one created", "1 of 3 objects are written, ippool/two may have been written or not, ipreservation/r not tried",
		"to apply the same manifests again is safe").lacks("nothing was changed")
	if strings.Contains(r.out, "two") {
		t.Errorf("stdout: %s", r.out)
	}
	wantCondition(t, "one", "undecided")
	o.apply(all).ends(0, "ippool/one admitted", "ippool/two created", "ipreservation/r created")
	wantCondition(t, "one", admitted)
	wantCondition(t, "two", admitted)
}

// The same manifests again write nothing.
func TestApplyAgainWritesNothing(t *testing.T) {
	o := administrator(t)
	all := poolManifest("v4", "cidr: 10.64.0.0/16, gateway: first") + manifest(v1alpha1.KindConfiguration, "default", "ipCooldownSeconds: 30") +
		manifest(v1alpha1.KindReservation, "r", "reservedCIDRs: [10.64.0.0/28]")
	o.apply(all).ends(0)
	attach(t, "node-a", "web", 1)
	through, p := o.through(nil)
	through.apply(all).ends(0, "ippool/v4 unchanged", "ipamconfiguration/default unchanged", "ipreservation/r unchanged")
	if _, writes := p.take(); len(writes) != 0 {
		t.Errorf("it wrote %q", writes)
	}
}

// A pool that gets its gateway while a pod gets the same address is warned about.
func TestApplyGatewayRace(t *testing.T) {
	o := administrator(t)
	o.apply(poolManifest("v4", "cidr: 10.64.0.0/30, blockSize: 30")).ends(0)
	raced := false
	racing, _ := o.through(func(call string, _ http.ResponseWriter, r *http.Request) bool {
		if call == "update ippools" && r.URL.Query().Get("dryRun") == "" && !raced {
			raced = true
			attach(t, "node-a", "web", 4)
		}
		return false
	})
	racing.apply(poolManifest("v4", "cidr: 10.64.0.0/30, blockSize: 30, gateway: 10.64.0.1")).ends(0, "configured",
		"warning: ippool/v4 was stored while a pod got the address: spec.gateway: 10.64.0.1 is in use by pod shop/web")
	if !raced {
		t.Error("nobody raced")
	}
	o.run("", "check").ends(3, "GatewayInUse")
}
