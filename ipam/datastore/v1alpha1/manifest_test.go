// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

const (
	head      = "apiVersion: ipam.allod.io/v1alpha1\n"
	goodPool  = head + "kind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.0.0.0/16}\n"
	goodRes   = head + "kind: IPReservation\nmetadata: {name: p}\nspec: {reservedCIDRs: [10.0.0.0/30]}\n"
	separator = "---\n"
)

func TestDecodeManifest(t *testing.T) {
	text, err := os.ReadFile("testdata/manifest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"as it is": string(text),
		"from DOS": strings.ReplaceAll(string(text), "\n", "\r\n"),
	} {
		objects, err := DecodeManifest(strings.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var refs []string
		for _, o := range objects {
			refs = append(refs, o.Ref())
		}
		want := []string{"IPPool/green", "IPReservation/routers", "IPPool/green-v6", "IPAMConfiguration/default"}
		if d := diff(want, refs); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		// The first pool and the configuration have every field set.
		p := objects[0].(*IPPool).Spec
		p.NamespaceSelector = "given to the other pool"
		covered(t, p)
		covered(t, objects[3].(*IPAMConfiguration).Spec)
	}
}

func TestDecodeManifestRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"unknown field":             {goodPool + "  # x\nbogus: 1\n", `document 1: unknown field "bogus"`},
		"unknown field in the spec": {goodRes + separator + head + "kind: IPPool\nmetadata: {name: q}\nspec: {cidr: 10.0.0.0/16, blocksize: 26}\n", `document 2: unknown field "spec.blocksize"`},
		"field twice":               {head + "kind: IPPool\nmetadata: {name: q}\nspec: {cidr: 10.0.0.0/16, cidr: 10.1.0.0/16}\n", "document 1: "},
		"unknown kind":              {goodRes + separator + goodRes + "..." + "\n" + head + "kind: Pod\n", `document 3: kind: "Pod"`},
		"kind of the library":       {head + "kind: IPAMBlock\n", `document 1: kind: "IPAMBlock"`},
		"unknown version":           {"apiVersion: ipam.allod.io/v9\nkind: IPPool\n", `document 1: apiVersion: "ipam.allod.io/v9"`},
		"no version":                {"kind: IPPool\n", `document 1: apiVersion: ""`},
		"no kind":                   {head + "metadata: {name: q}\n", "document 1: kind: missing"},
		"not an object":             {"hello\n", "document 1: a string, not an object"},
		"string for a number":       {head + "kind: IPPool\nmetadata: {name: q}\nspec: {cidr: 10.0.0.0/16, blockSize: '26'}\n", "document 1: spec.blockSize: want a number, have a string"},
		"string for a bool":         {head + "kind: IPPool\nmetadata: {name: q}\nspec: {cidr: 10.0.0.0/16, natOutgoing: maybe}\n", "document 1: spec.natOutgoing: want true or false, have a string"},
		"number for a string":       {head + "kind: IPAMConfiguration\nmetadata: {name: default}\nspec: {leakGracePeriod: 5}\n", "document 1: spec.leakGracePeriod: want a string, have a number"},
		"string for a list":         {head + "kind: IPReservation\nmetadata: {name: q}\nspec: {reservedCIDRs: 10.0.0.0/8}\n", "document 1: spec.reservedCIDRs: want a list, have a string"},
		"no name":                   {head + "kind: IPPool\nspec: {cidr: 10.0.0.0/16}\n", "document 1: metadata.name: missing"},
		"bad name":                  {head + "kind: IPPool\nmetadata: {name: P}\nspec: {cidr: 10.0.0.0/16}\n", "metadata.name"},
		"namespace":                 {head + "kind: IPPool\nmetadata: {name: p, namespace: shop}\nspec: {cidr: 10.0.0.0/16}\n", "document 1: metadata.namespace"},
		"same object twice":         {goodPool + separator + goodRes + separator + goodPool, "document 3: metadata.name: IPPool/p is already in document 1"},
		"wrong type":                {head + "kind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.0.0.0/16, blockSize: large}\n", "spec.blockSize"},
		"value out of bounds":       {goodRes + separator + head + "kind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.0.0.0/16, blockSize: 3}\n", "document 2: IPPool/p: spec.blockSize"},
		"rule across fields":        {head + "kind: IPAMConfiguration\nmetadata: {name: default}\nspec: {autoAllocateBlocks: false}\n", "document 1: IPAMConfiguration/default: spec.autoAllocateBlocks"},
		"second configuration":      {head + "kind: IPAMConfiguration\nmetadata: {name: second}\n", "document 1: IPAMConfiguration/second: metadata.name"},
		"no YAML":                   {"{", "document 1: not YAML"},
		"a list":                    {"- a\n", "document 1: "},
		"text":                      {"hello\n", "document 1: "},
		"too large":                 {strings.Repeat("#", MaxManifest+1), "larger than"},
		// A YAML decoder would read the first of these two and forget the second.
		"hidden document": {goodPool + "--- {kind: Pod, apiVersion: v1}\n", `document 2: apiVersion: "v1"`},
		"hidden behind a carriage return": {
			strings.ReplaceAll(goodPool+"---\nkind: Pod\n", "\n", "\r"),
			`document 2: apiVersion: ""`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := DecodeManifest(strings.NewReader(tt.in))
			if err == nil || !strings.Contains(err.Error(), tt.want) || objects != nil {
				t.Errorf("%d objects, error %v; want %q", len(objects), err, tt.want)
			}
		})
	}
}

func TestDecodeManifestReportsEverything(t *testing.T) {
	_, err := DecodeManifest(strings.NewReader(
		head + "kind: IPPool\nmetadata: {name: p}\nspec: {cidr: wrong, gateway: wrong}\n" + separator + "kind: Pod\n"))
	for _, want := range []string{"document 1: IPPool/p: spec.cidr", "document 1: IPPool/p: spec.gateway", "document 2: apiVersion"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want it to say %q", err, want)
		}
	}
}

func TestDecodeManifestOfNothing(t *testing.T) {
	for _, in := range []string{"", "\n \n", "---\n---\n", "# a comment\n", separator + "# one\n" + separator} {
		if objects, err := DecodeManifest(strings.NewReader(in)); err != nil || len(objects) != 0 {
			t.Errorf("%q: %d objects, %v; want none", in, len(objects), err)
		}
	}
}

func TestDecodeManifestReadError(t *testing.T) {
	broken := errors.New("disk on fire")
	if _, err := DecodeManifest(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("error %v; want %v", err, broken)
	}
}
