// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"encoding/json"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/allod/allod/test/fixture"
)

const (
	keyOfSpec    = "cni.dev/valid-attachments"
	keyOfHistory = "cni.dev/attachments" // what the specification's text said first
)

var null = json.RawMessage("null")

func attachments(ss ...fixture.Sandbox) []object {
	list := []object{}
	for _, s := range ss {
		list = append(list, object{"containerID": s.ContainerID, "ifname": s.IfName})
	}
	return list
}

// TestGC: the verb releases this node's attachments of this network that no list
// names, and nothing else.
func TestGC(t *testing.T) {
	t.Parallel()
	a, b, second := pod("a"), pod("b"), pod("a")
	second.IfName = "net1"
	for _, tc := range []struct {
		name string
		top  object
		left int // of a, a's second interface, b
	}{
		{"the list names all", object{keyOfSpec: attachments(a, second, b)}, 3},
		{"the list names one", object{keyOfSpec: attachments(b)}, 1},
		{"one interface of a container", object{keyOfSpec: attachments(second)}, 1},
		{"the other key", object{keyOfHistory: attachments(a, b)}, 2},
		{"both keys: their union", object{keyOfSpec: attachments(a), keyOfHistory: attachments(b)}, 2},
		{"an empty list", object{keyOfSpec: attachments()}, 0},
		{"a list of strangers", object{keyOfSpec: attachments(pod("stranger"))}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, gatewayPool)
			for _, s := range []fixture.Sandbox{a, b, second} {
				r.add(r.conf(nil, nil), s)
			}
			foreign := []struct {
				conf []byte
				s    fixture.Sandbox
			}{
				{r.conf(nil, object{"name": "storage"}), a},
				{r.conf(object{"nodeName": "node-b"}, nil), pod("on-node-b")},
			}
			for _, f := range foreign {
				r.add(f.conf, f.s)
			}
			for range 2 {
				r.ok("GC", r.conf(nil, tc.top), fixture.Sandbox{})
				r.counts(tc.left+len(foreign), 0)
			}
			for _, f := range foreign {
				r.ok("DEL", f.conf, f.s)
			}
			r.counts(tc.left, 0)
			r.clean()
		})
	}
}

// TestGCRefused: a list that is absent, null or not understood is an error and
// never an empty list.
func TestGCRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayPool)
	r.add(r.conf(nil, nil), pod("a"))
	for name, conf := range map[string][]byte{
		"absent":               r.conf(nil, nil),
		"null":                 r.conf(nil, object{keyOfSpec: null}),
		"null, the other key":  r.conf(nil, object{keyOfHistory: null}),
		"both null":            r.conf(nil, object{keyOfSpec: null, keyOfHistory: null}),
		"null beside a list":   r.conf(nil, object{keyOfSpec: attachments(pod("a")), keyOfHistory: null}),
		"no list":              r.conf(nil, object{keyOfSpec: object{}}),
		"an entry without ID":  r.conf(nil, object{keyOfSpec: []object{{"ifname": "eth0"}}}),
		"an entry of no shape": r.conf(nil, object{keyOfSpec: []string{"a"}}),
	} {
		t.Run(name, func(t *testing.T) {
			r := r.in(t)
			r.refused("GC", conf, fixture.Sandbox{}, types.ErrInvalidNetworkConfig, "cni.dev/")
			r.counts(1, 0)
		})
	}
	r.clean()
}

// TestGCThroughLibcni: the keys as libcni writes them, with allod as the list's
// own plugin, because no reference main plugin hands GC on.
func TestGCThroughLibcni(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayPool)
	for _, p := range []string{"a", "b"} {
		r.add(r.conf(nil, nil), pod(p))
	}
	list := r.network("k8s-pod-network", object{"type": "allod"}, nil)
	cni := libcni.NewCNIConfigWithCacheDir([]string{binDir}, t.TempDir(), nil)
	if err := cni.GCNetworkList(t.Context(), list, &libcni.GCArgs{}); err == nil {
		t.Error("GC with a nil list, which libcni sends as null, succeeded")
	}
	r.counts(2, 0)
	b := types.GCAttachment{ContainerID: pod("b").ContainerID, IfName: "eth0"}
	if err := cni.GCNetworkList(t.Context(), list, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{b}}); err != nil {
		t.Error(err)
	}
	r.counts(1, 0)
	r.ok("DEL", r.conf(nil, nil), pod("b"))
	r.counts(0, 0)
	r.clean()
}
