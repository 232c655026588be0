// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"errors"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allod/allod/ipam/datastore/kv"
)

// content is a transaction over given tables that refuses to write.
type content map[string]map[string]string

func (c content) Rev() uint64 { return 1 }

func (c content) Get(table, key string) ([]byte, bool) {
	v, ok := c[table][key]
	return []byte(v), ok
}

func (c content) All(table string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, k := range slices.Sorted(maps.Keys(c[table])) {
			if !yield(k, []byte(c[table][k])) {
				return
			}
		}
	}
}

var errWrite = errors.New("a read wrote (INV-12)")

func (c content) Put(string, string, []byte) error { return errWrite }
func (c content) Delete(string, string) error      { return errWrite }

func TestDecodeSnapshot(t *testing.T) {
	s := decodeSnapshot(content{
		kv.Blocks: {
			"10-64-0-0-30": `{"metadata":{"name":"10-64-0-0-30"},"spec":{"cidr":"10.64.0.0/30","sequence":"1","queue":"0-3"}}`,
			"10-64-0-4-30": `{"spec":{"cidr":"10.64.0.8/30","sequence":"1","queue":"0-3"}}`,
			"10-9-0-0-30":  `{"spec":{"cidr":"10.9.0.0/30","sequence":"1","queue":"0-3"}}`,
			"bad":          `{"spec":{"cidr":"10.9.0.0"}}`,
			"cut":          `{"spec":`,
		},
		kv.Affinities: {"x": `{"spec":{"type":"ghost","name":"a","cidr":"10.64.0.0/30"}}`},
		kv.Pools:      {"p": `{"metadata":{"name":"p"},"spec":{"cidr":"10.64.0.0/16"}}`, "q": `{"metadata":{"name":"p"},"spec":{"cidr":"10.64.0.0/16"}}`},
		kv.Handles:    {"h": `{"spec":{}}`},
		kv.Config:     {"default": `{"spec":{"leakGracePeriod":"soon"}}`},
	})
	var blocks, unreadable []string
	for _, b := range s.Blocks {
		blocks = append(blocks, b.CIDR.String())
	}
	for _, u := range s.Unreadable {
		unreadable = append(unreadable, u.Object)
	}
	if diff := cmp.Diff([]string{"10.9.0.0/30", "10.64.0.0/30"}, blocks); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	want := []string{"pool q", "configuration default", "affinity x", "block 10-64-0-4-30", "block bad", "block cut", "handle h"}
	if diff := cmp.Diff(want, unreadable); diff != "" {
		t.Errorf("unreadable (-want +got):\n%s", diff)
	}
	if len(s.Pools) != 1 || s.Config != nil {
		t.Errorf("pools %v, config %v", s.Pools, s.Config)
	}
}

// Whatever is stored: no panic, every object is either read or reported, and
// show lists as many addresses as check counts.
func FuzzSnapshot(f *testing.F) {
	f.Add("10-64-0-64-29", `{"metadata":{"name":"10-64-0-64-29","labels":{"ipam.allod.io/pool":"p"}},"spec":{"format":1,"cidr":"10.64.0.64/29","affinity":"host:a","sequence":"1020","queue":"0,2-3,5-7","slots":["`+lineWeb0+`","`+lineCold+`"]}}`,
		`{"metadata":{"name":"p"},"spec":{"cidr":"10.64.0.0/16","blockSize":29,"gateway":"first"}}`,
		`{"spec":{"state":"confirmed","name":"a","cidr":"10.64.0.64/29","pool":"p","blockSequence":"7"}}`)
	f.Add("fd00--7e-127", `{"spec":{"cidr":"fd00::7e/127","queue":"0","slots":["1 x"]}}`, `{"spec":{"cidr":"::/0"}}`, `{}`)
	f.Add("b", `null`, `[]`, `{"spec":{"cidr":"10.64.0.64/33"}}`)
	f.Fuzz(func(t *testing.T, key, b, p, a string) {
		s := decodeSnapshot(content{kv.Blocks: {key: b}, kv.Pools: {"p": p}, kv.Affinities: {"a.10-64-0-64-29": a}})
		if n := len(s.Blocks) + len(s.Pools) + len(s.Affinities) + len(s.Unreadable); n != 3 {
			t.Fatalf("%d of 3 objects accounted for", n)
		}
		r := Audit(s)
		if rows := s.addressRows(); len(rows) != r.Summary.Allocated+r.Summary.Cooling {
			t.Fatalf("show lists %d addresses, check counts %d + %d", len(rows), r.Summary.Allocated, r.Summary.Cooling)
		}
		s.poolRows()
		s.blockRows()
		s.poolless()
		for _, row := range s.addressRows() {
			addr, err := netip.ParseAddr(row.Address)
			if err != nil || len(s.addressInfo(addr)) == 0 {
				t.Fatalf("row %+v: %v", row, err)
			}
		}
	})
}
