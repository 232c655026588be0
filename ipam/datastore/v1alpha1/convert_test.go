// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

func diff(want, got any) string {
	return cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty())
}

// rejson writes o and reads it back as another object.
func rejson[T any](t interface{ Fatalf(string, ...any) }, o *T) *T {
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false) // as stores do
	if err := enc.Encode(o); err != nil {
		t.Fatalf("marshal: %v", err)
	}
	var out T
	if err := json.Unmarshal(data.Bytes(), &out); err != nil {
		t.Fatalf("unmarshal %s: %v", data.String(), err)
	}
	return &out
}

// The sample has every spec field of a block; it is read, proved and written back.
func TestSampleBlock(t *testing.T) {
	text, err := os.ReadFile("testdata/block.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var o IPAMBlock
	if err := yaml.UnmarshalStrict(text, &o); err != nil {
		t.Fatal(err)
	}
	b, err := o.Block()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Check(); err != nil {
		t.Errorf("Check (INV-4, INV-15): %v", err)
	}
	if p := b.Problems(); p != nil {
		t.Errorf("problems: %q", p)
	}
	if b.Pool != "green" || b.Space != block.SpaceFree || b.Affinity != block.Host("worker-7") {
		t.Errorf("block of pool %q, space %q, affinity %v", b.Pool, b.Space, b.Affinity)
	}
	if d := diff(block.Counts{Free: 14, Allocated: 1, Cooling: 1}, b.Counts()); d != "" {
		t.Errorf("counts (-want +got):\n%s", d)
	}
	back := FromBlock(b)
	if d := diff(block.Wire(o.Spec), block.Wire(back.Spec)); d != "" {
		t.Errorf("written back (-want +got):\n%s", d)
	}
	if d := diff(o.Labels, back.Labels); d != "" {
		t.Errorf("labels (-want +got):\n%s", d)
	}
	if o.Name != back.Name {
		t.Errorf("name %s; want %s", back.Name, o.Name)
	}
	if text, err := json.Marshal(back.Spec); err != nil || !strings.Contains(string(text), `"sequence":1796026530250000007,`) {
		t.Errorf("spec %s, %v; want the sequence as a number, exactly", text, err)
	}
}

// Every field of a block's spec, and the order and text of what is unknown.
func TestBlockSpecRoundTrip(t *testing.T) {
	text := rapid.StringN(0, 20, -1)
	rapid.Check(t, func(t *rapid.T) {
		s := IPAMBlockSpec{
			Format: rapid.IntRange(1, math.MaxInt32).Draw(t, "format"), CIDR: text.Draw(t, "cidr"),
			Affinity: text.Draw(t, "affinity"), ClaimedAt: text.Draw(t, "claimedAt"),
			Sequence: rapid.OneOf(text, rapid.Map(rapid.Uint64(), func(n uint64) string { return fmt.Sprint(n) })).Draw(t, "sequence"),
			Queue:    text.Draw(t, "queue"), Slots: rapid.SliceOf(text).Draw(t, "slots"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "extras") {
			j, err := json.Marshal(map[string]any{text.Draw(t, "key"): []any{text.Draw(t, "value"), nil, 1.5, true}})
			if err != nil {
				t.Fatal(err)
			}
			s.Extra = append(s.Extra, block.Extra{Key: "x" + text.Draw(t, "extra"), JSON: j})
		}
		o := rejson(t, &IPAMBlock{Spec: s})
		if d := diff(s, o.Spec); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	})
}

// Blocks that the library can make come back whole, labels too.
func TestBlockRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := genBlock(t)
		got, err := rejson(t, FromBlock(b)).Block()
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(block.Encode(b), block.Encode(got)); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
		if d := diff(b.Labels(), got.Labels()); d != "" {
			t.Fatalf("labels (-want +got):\n%s", d)
		}
	})
}

func genBlock(t *rapid.T) block.Block {
	now := time.Unix(1_800_000_000, 0)
	b, err := block.New(genCIDR(t, "cidr"), block.Affinity{
		Type: rapid.SampledFrom([]block.AffinityType{block.HostAffinity, block.VirtualAffinity}).Draw(t, "type"),
		Name: genNodeName().Draw(t, "node"),
	}, rapid.Uint64Range(0, 1<<62).Draw(t, "seq"), now)
	if err != nil {
		t.Fatal(err)
	}
	reserved := rapid.Bool().Draw(t, "reserved")
	return b.Relabel(genNodeName().Draw(t, "pool"), func(netip.Addr) bool { return !reserved })
}

func TestAffinityRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := datastore.AffinityKey{Owner: genBlock(t).Affinity, CIDR: genCIDR(t, "cidr")}
		a := datastore.Affinity{
			State: datastore.AffinityState(rapid.SampledFrom([]string{"pending", "confirmed", "pendingDeletion", "later"}).Draw(t, "state")),
			Pool:  genNodeName().Draw(t, "pool"), BlockSeq: rapid.Uint64().Draw(t, "seq"),
		}
		if ns := rapid.Int64Min(0).Draw(t, "pending since"); ns > 0 {
			a.PendingSince = time.Unix(0, ns).UTC()
		}
		gotK, gotA, err := rejson(t, FromAffinity(k, a)).Affinity()
		if err != nil || gotK != k || gotA != a {
			t.Fatalf("%v %+v, %v; want %v %+v", gotK, gotA, err, k, a)
		}
	})
}

func TestHandleRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := block.HandleID(genNodeName().Draw(t, "id"))
		var h datastore.Handle
		for range rapid.IntRange(0, 3).Draw(t, "n") {
			h.Addrs = append(h.Addrs, genCIDR(t, "addr").Addr())
		}
		h.Releasing = rapid.Bool().Draw(t, "releasing")
		gotID, got, err := rejson(t, FromHandle(id, h)).Handle()
		if d := diff(h, got); err != nil || gotID != id || d != "" {
			t.Fatalf("%q, %v (-want +got):\n%s", gotID, err, d)
		}
	})
}

func TestPoolRoundTrip(t *testing.T) {
	mode := rapid.SampledFrom([]pool.TunnelMode{pool.Never, pool.Always, pool.CrossSubnet})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 10, -1)
		c := genCIDR(t, "cidr")
		p := pool.Pool{
			Name: text.Draw(t, "name"), UID: text.Draw(t, "uid"), Generation: rapid.Int64().Draw(t, "generation"),
			Created: time.Unix(rapid.Int64Range(1, 4e9).Draw(t, "created"), 0).UTC(),
			Spec: pool.Spec{
				CIDR: c, BlockSize: rapid.IntRange(1, 128).Draw(t, "blockSize"),
				NodeSelector: text.Draw(t, "nodeSelector"), NamespaceSelector: text.Draw(t, "namespaceSelector"),
				AllowedUses:    rapid.SliceOfN(rapid.SampledFrom([]pool.Use{pool.UseWorkload, pool.UseTunnel, pool.UseLoadBalancer}), 1, 3).Draw(t, "uses"),
				AssignmentMode: rapid.SampledFrom([]pool.AssignmentMode{pool.Automatic, pool.Manual}).Draw(t, "mode"),
				Disabled:       rapid.Bool().Draw(t, "disabled"), NATOutgoing: rapid.Bool().Draw(t, "nat"),
				IPIPMode: mode.Draw(t, "ipip"), VXLANMode: mode.Draw(t, "vxlan"),
			},
			Status: pool.Status{
				Finalizer: rapid.Bool().Draw(t, "finalizer"), Allocatable: rapid.Bool().Draw(t, "allocatable"),
				Reason: text.Draw(t, "reason"), Message: text.Draw(t, "message"), ObservedGeneration: rapid.Int64().Draw(t, "observed"),
			},
		}
		switch rapid.IntRange(0, 2).Draw(t, "gateway") {
		case 1:
			p.Spec.Gateway.First = true
		case 2:
			p.Spec.Gateway.Addr = c.Addr()
		}
		got, err := rejson(t, FromPool(p)).Pool()
		if d := diff(p, got); err != nil || d != "" {
			t.Fatalf("%v (-want +got):\n%s", err, d)
		}
	})
}

func TestReservationRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := pool.Reservation{Name: genNodeName().Draw(t, "name")}
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			r.CIDRs = append(r.CIDRs, genCIDR(t, "cidr"))
		}
		got, err := rejson(t, FromReservation(r)).Reservation()
		if d := diff(r, got); err != nil || d != "" {
			t.Fatalf("%v (-want +got):\n%s", err, d)
		}
	})
}

func TestConfigRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := datastore.Config{
			StrictAffinity: rapid.Bool().Draw(t, "strict"), AutoAllocateBlocks: rapid.Bool().Draw(t, "auto"),
			MaxBlocksPerHost:             rapid.Int().Draw(t, "max"),
			KubeVirtVMAddressPersistence: rapid.Bool().Draw(t, "vm"),
			IPCooldown:                   time.Duration(rapid.IntRange(-5000, 5000).Draw(t, "cooldown")) * time.Second,
			LeakGracePeriod:              time.Duration(rapid.Int64().Draw(t, "grace")),
		}
		got, err := rejson(t, FromConfig(c)).Config()
		if err != nil || got != c {
			t.Fatalf("%+v, %v; want %+v", got, err, c)
		}
	})
}

// Every field of every kind has a JSON name, comes back, and is in no way lost
// between its struct and JSON.
func TestEveryFieldHasJSON(t *testing.T) {
	for _, spec := range []any{
		IPPoolSpec{}, IPPoolStatus{}, IPReservationSpec{}, IPAMConfigurationSpec{}, BlockAffinitySpec{}, IPAMHandleSpec{},
	} {
		typ := reflect.TypeOf(spec)
		for i := range typ.NumField() {
			f := typ.Field(i)
			v := reflect.New(typ)
			fill(t, v.Elem().Field(i))
			data, err := json.Marshal(v.Interface())
			if err != nil {
				t.Fatal(err)
			}
			got := reflect.New(typ)
			if err := json.Unmarshal(data, got.Interface()); err != nil {
				t.Fatalf("%s.%s: %s: %v", typ.Name(), f.Name, data, err)
			}
			if d := diff(v.Interface(), got.Interface()); d != "" || f.Tag.Get("json") == "" {
				t.Errorf("%s.%s: tag %q, %s (-want +got):\n%s", typ.Name(), f.Name, f.Tag.Get("json"), data, d)
			}
		}
	}
}

// fill sets v to something that is not its zero value.
func fill(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem())) // a pointer to false is not absent
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		if v.Index(0).Kind() != reflect.Struct {
			fill(t, v.Index(0))
		}
	default:
		t.Fatalf("no sample for a %v", v.Type())
	}
}

// Case R15: an object that an older version stored lacks the newer fields.
func TestAbsentFieldsReadAsDefaults(t *testing.T) {
	var c IPAMConfiguration
	if err := json.Unmarshal([]byte(`{"metadata":{"name":"default"},"spec":{}}`), &c); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Config(); err != nil || got != datastore.ConfigDefaults() {
		t.Errorf("configuration: %+v, %v; want the defaults", got, err)
	}
	var a BlockAffinity
	if err := json.Unmarshal([]byte(`{"metadata":{"name":"n"},"spec":{"name":"n","cidr":"10.0.0.0/29"}}`), &a); err != nil {
		t.Fatal(err)
	}
	k, v, err := a.Affinity()
	want := datastore.AffinityKey{Owner: block.Host("n"), CIDR: netip.MustParsePrefix("10.0.0.0/29")}
	if err != nil || k != want || v != (datastore.Affinity{State: datastore.Pending}) {
		t.Errorf("affinity: %v %+v, %v; want a pending claim of a host", k, v, err)
	}
	var p IPPool
	if err := json.Unmarshal([]byte(`{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/16"}}`), &p); err != nil {
		t.Fatal(err)
	}
	got, err := p.Pool()
	if d := diff(pool.Spec{CIDR: netip.MustParsePrefix("10.0.0.0/16")}.WithDefaults(), got.Spec); err != nil || d != "" {
		t.Errorf("pool: %v (-want +got):\n%s", err, d)
	}
	var b IPAMBlock
	if err := json.Unmarshal([]byte(`{"metadata":{"name":"b"},"spec":{"cidr":"10.0.0.0/30","queue":"0-3"}}`), &b); err != nil {
		t.Fatal(err)
	}
	bl, err := b.Block()
	if err != nil || bl.Space != block.SpaceFree || bl.Check() != nil || bl.Writable() != nil {
		t.Errorf("block: space %q, %v, %v, %v; want free and writable", bl.Space, err, bl.Check(), bl.Writable())
	}
}

func TestConversionErrorsNameTheField(t *testing.T) {
	parse := func(read func() error) error { return read() }
	for name, tt := range map[string]struct {
		err  func() error
		want []string
	}{
		"affinity": {func() error {
			_, _, err := (&BlockAffinity{Spec: BlockAffinitySpec{Type: "x", CIDR: "x", BlockSequence: "-1"}}).Affinity()
			return err
		}, []string{"spec.type", "spec.name", "spec.cidr", "spec.blockSequence"}},
		"handle": {func() error {
			_, _, err := (&IPAMHandle{Spec: IPAMHandleSpec{Addresses: []string{"10.0.0.1", "10.0.0.0/8", "fe80::1%eth0"}}}).Handle()
			return err
		}, []string{"spec.handle", "spec.addresses[1]", "spec.addresses[2]"}},
		"pool": {func() error {
			_, err := (&IPPool{Spec: IPPoolSpec{CIDR: "10.0.0.0", Gateway: "last"}}).Pool()
			return err
		}, []string{"spec.cidr", "spec.gateway"}},
		"reservation": {func() error {
			_, err := (&IPReservation{Spec: IPReservationSpec{ReservedCIDRs: []string{"10.0.0.0/8", "x"}}}).Reservation()
			return err
		}, []string{"spec.reservedCIDRs[1]"}},
		"configuration": {func() error {
			_, err := (&IPAMConfiguration{Spec: IPAMConfigurationSpec{
				KubeVirtVMAddressPersistence: "Maybe", LeakGracePeriod: "soon", IPCooldownSeconds: math.MaxInt,
			}}).Config()
			return err
		}, []string{"spec.kubeVirtVMAddressPersistence", "spec.leakGracePeriod", "spec.ipCooldownSeconds"}},
		"block": {func() error {
			_, err := (&IPAMBlock{Spec: IPAMBlockSpec{CIDR: "10.0.0.0/8"}}).Block()
			return err
		}, []string{"spec.cidr"}},
		"block of other types": {func() error {
			return json.Unmarshal([]byte(`{"spec":{"slots":7}}`), &IPAMBlock{})
		}, []string{"spec.slots"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := parse(tt.err)
			for _, w := range tt.want {
				if err == nil || !strings.Contains(err.Error(), w+":") {
					t.Errorf("error %v; want it to name %s", err, w)
				}
			}
		})
	}
}

// Bounds and the rule across fields; the same table will hold for the CRD.
func TestConfigRules(t *testing.T) {
	yes, no := true, false
	for name, tt := range map[string]struct {
		spec IPAMConfigurationSpec
		want string // the field named, "" for valid
	}{
		"empty":                       {IPAMConfigurationSpec{}, ""},
		"strict without allocation":   {IPAMConfigurationSpec{StrictAffinity: true, AutoAllocateBlocks: &no}, ""},
		"loose without allocation":    {IPAMConfigurationSpec{AutoAllocateBlocks: &no}, "spec.autoAllocateBlocks"},
		"loose with allocation":       {IPAMConfigurationSpec{AutoAllocateBlocks: &yes, MaxBlocksPerHost: 1}, ""},
		"longest cooldown":            {IPAMConfigurationSpec{IPCooldownSeconds: 1200}, ""},
		"cooldown too long":           {IPAMConfigurationSpec{IPCooldownSeconds: 1201}, "spec.ipCooldownSeconds"},
		"cooldown negative":           {IPAMConfigurationSpec{IPCooldownSeconds: -1}, "spec.ipCooldownSeconds"},
		"cap negative":                {IPAMConfigurationSpec{MaxBlocksPerHost: -1}, "spec.maxBlocksPerHost"},
		"grace off":                   {IPAMConfigurationSpec{LeakGracePeriod: "0s"}, ""},
		"grace negative":              {IPAMConfigurationSpec{LeakGracePeriod: "-1s"}, "spec.leakGracePeriod"},
		"grace without a unit":        {IPAMConfigurationSpec{LeakGracePeriod: "15"}, "spec.leakGracePeriod"},
		"persistence of another case": {IPAMConfigurationSpec{KubeVirtVMAddressPersistence: "enabled"}, "spec.kubeVirtVMAddressPersistence"},
	} {
		t.Run(name, func(t *testing.T) {
			o := IPAMConfiguration{Spec: tt.spec}
			o.Name = datastore.DefaultConfig
			err := o.Validate()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want+":")) {
				t.Errorf("error %v; want one of %q", err, tt.want)
			}
		})
	}
	if err := (&IPAMConfiguration{}).Validate(); err == nil || !strings.Contains(err.Error(), "metadata.name") {
		t.Errorf("configuration of another name: %v", err)
	}
	if c := (datastore.Config{AutoAllocateBlocks: true, IPCooldown: time.Millisecond}); c.Validate() == nil {
		t.Error("a cooldown of a part of a second is accepted and would be lost")
	}
}

// A label of another writer survives, ours are replaced.
func TestAdopt(t *testing.T) {
	ours := map[string]string{LabelSpace: "full"}
	old := map[string]string{LabelSpace: "free", NodeLabel("gone"): "", "team": "a"}
	if d := diff(map[string]string{LabelSpace: "full", "team": "a"}, Adopt(ours, old)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := diff(map[string]string{LabelSpace: "full"}, ours); d != "" {
		t.Errorf("the argument changed (-want +got):\n%s", d)
	}
	if got := Adopt(nil, map[string]string{"team": "a"}); got["team"] != "a" {
		t.Errorf("Adopt(nil) = %v", got)
	}
}

func TestPrefixEachKeepsWrappers(t *testing.T) {
	inner := fmt.Errorf("spec.cidr: %w", errors.Join(errors.New("a"), errors.New("b")))
	var got []string
	for _, e := range prefixEach("document 1: ", errors.Join(inner, errors.New("c"))) {
		got = append(got, e.Error())
	}
	if want := []string{"document 1: spec.cidr: a\nb", "document 1: c"}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}
