// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/allod/allod/ipam/block"
)

func covered(t *testing.T, spec any) {
	t.Helper()
	v := reflect.ValueOf(spec)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%T: the sample leaves %s out", spec, v.Type().Field(i).Name)
		}
	}
}

// FuzzDecodeManifest: what is accepted is written as YAML and accepted again as
// the same; what is refused is refused for a document.
func FuzzDecodeManifest(f *testing.F) {
	text, err := os.ReadFile("testdata/manifest.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	for _, s := range []string{goodPool, goodRes + separator + goodPool, "", "---", "...\n", "a: &a [*a]\n", "{", "--- # x\n" + goodPool} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := DecodeManifest(bytes.NewReader(data))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "document ") && !strings.HasPrefix(err.Error(), "manifest: ") {
				t.Fatalf("error names no document: %v", err)
			}
			return
		}
		var again bytes.Buffer
		for _, o := range objects {
			y, err := yaml.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			again.WriteString(separator)
			again.Write(y)
		}
		got, err := DecodeManifest(&again)
		if err != nil {
			t.Fatalf("its own output is refused: %v\n%s", err, again.String())
		}
		if d := diff(objects, got); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	})
}

// fuzzStored reads stored JSON, turns it into a value and back, and demands that
// the second reading gives what the first gave.
func fuzzStored[T, V any](f *testing.F, value func(*T) (V, error), object func(V) *T, view func(V) any, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var o T
		if json.Unmarshal(data, &o) != nil {
			return
		}
		v, err := value(&o)
		if err != nil {
			return
		}
		again, err := value(rejson(t, object(v)))
		if err != nil {
			t.Fatalf("its own output is refused: %v", err)
		}
		if d := diff(view(v), view(again)); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	})
}

func identity[V any](v V) any { return v }

func FuzzBlock(f *testing.F) {
	text, err := os.ReadFile("testdata/block.yaml")
	if err != nil {
		f.Fatal(err)
	}
	sample, err := yaml.YAMLToJSON(text)
	if err != nil {
		f.Fatal(err)
	}
	fuzzStored(f, (*IPAMBlock).Block, FromBlock,
		func(b block.Block) any { return []any{block.Encode(b), b.Labels()} },
		string(sample), `{"spec":{"cidr":"10.0.0.0/31","sequence":"7","x":{"y":[1.0, "<"]}}}`, `{"spec":[]}`,
		`{"spec":{"cidr":"fd00::/128","format":2,"slots":["0 what"]},"metadata":{"labels":{"ipam.allod.io/space":"full"}}}`)
}

func FuzzAffinity(f *testing.F) {
	fuzzStored(f,
		func(o *BlockAffinity) (*BlockAffinity, error) {
			k, a, err := o.Affinity()
			return FromAffinity(k, a), err
		},
		func(o *BlockAffinity) *BlockAffinity { return o }, func(o *BlockAffinity) any { return *o },
		`{"spec":{"name":"n","cidr":"10.0.0.0/29"}}`,
		`{"spec":{"state":"confirmed","type":"virtual","name":"lb","cidr":"fd00::/122","pool":"p","blockSequence":"18446744073709551615"}}`)
}

func FuzzHandle(f *testing.F) {
	fuzzStored(f,
		func(o *IPAMHandle) (*IPAMHandle, error) {
			id, h, err := o.Handle()
			return FromHandle(id, h), err
		},
		func(o *IPAMHandle) *IPAMHandle { return o }, func(o *IPAMHandle) any { return *o },
		`{"spec":{"handle":"h","addresses":["10.0.0.1","::1"],"releasing":true}}`, `{"spec":{"handle":"\u0000"}}`)
}

func FuzzPool(f *testing.F) {
	fuzzStored(f, (*IPPool).Pool, FromPool, identity,
		`{"metadata":{"name":"p","uid":"u","generation":3,"finalizers":["ipam.allod.io/pool"],"creationTimestamp":"2026-12-01T10:00:00Z"},`+
			`"spec":{"cidr":"10.0.0.0/16","gateway":"first"},"status":{"conditions":[{"type":"Allocatable","status":"True","reason":"OK","message":"m","observedGeneration":3}]}}`,
		`{"spec":{"cidr":"fd00::/64","gateway":"fd00::1","allowedUses":["Tunnel"]}}`)
}

func FuzzReservation(f *testing.F) {
	fuzzStored(f, (*IPReservation).Reservation, FromReservation, identity,
		`{"metadata":{"name":"r"},"spec":{"reservedCIDRs":["10.0.0.0/8","fd00::/128"]}}`)
}

func FuzzConfig(f *testing.F) {
	fuzzStored(f, (*IPAMConfiguration).Config, FromConfig, identity,
		`{"spec":{}}`, `{"spec":{"strictAffinity":true,"autoAllocateBlocks":false,"ipCooldownSeconds":5,"leakGracePeriod":"1h2m"}}`)
}
