// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kv"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// Snapshot is what a datastore holds, as it is stored: what cannot be read is in it
// as well. Of an embedded store all is of one moment, on Kubernetes each kind is.
type Snapshot struct {
	Pools        []pool.Pool // by name
	Reservations []pool.Reservation
	Config       *datastore.Config // nil: none is stored, the defaults hold
	Blocks       []StoredBlock     // by address
	Affinities   []StoredAffinity
	Unreadable   []Unreadable
	At           time.Time // by the clock that stamps the store
	Embedded     bool      // of an embedded store
}

// StoredBlock is a block with the labels it is stored with.
type StoredBlock struct {
	block.Block
	Labels map[string]string
}

// StoredAffinity is a claim with its key.
type StoredAffinity struct {
	Key datastore.AffinityKey
	datastore.Affinity
}

// Unreadable is an object that does not decode.
type Unreadable struct {
	Object string
	Err    error
}

// decodeSnapshot reads a transaction.
func decodeSnapshot(tx kv.Tx) Snapshot {
	var s Snapshot
	for _, kind := range snapshotKinds {
		for name, raw := range tx.All(kind.table) {
			kind.add(&s, name, raw)
		}
	}
	s.sort()
	return s
}

// snapshotKind is how the objects of a kind get into a snapshot.
type snapshotKind struct {
	kind, table string // of the custom resource, of an embedded store
	add         func(s *Snapshot, name string, raw []byte)
}

// snapshotKinds are all kinds, in the order to read them where each is of another
// moment: a pool before what is cut from it, so that no block lacks a pool but one
// that is just being made.
var snapshotKinds = []snapshotKind{
	{v1alpha1.KindPool, kv.Pools, adder("pool", func(s *Snapshot, o *v1alpha1.IPPool) (string, func(), error) {
		p, err := o.Pool()
		return p.Name, func() { s.Pools = append(s.Pools, p) }, err
	})},
	{v1alpha1.KindReservation, kv.Reservations, adder("reservation", func(s *Snapshot, o *v1alpha1.IPReservation) (string, func(), error) {
		r, err := o.Reservation()
		return r.Name, func() { s.Reservations = append(s.Reservations, r) }, err
	})},
	{v1alpha1.KindConfiguration, kv.Config, adder("configuration", func(s *Snapshot, o *v1alpha1.IPAMConfiguration) (string, func(), error) {
		c, err := o.Config()
		return datastore.DefaultConfig, func() { s.Config = &c }, err
	})},
	{v1alpha1.KindAffinity, kv.Affinities, adder("affinity", func(s *Snapshot, o *v1alpha1.BlockAffinity) (string, func(), error) {
		k, a, err := o.Affinity()
		return v1alpha1.AffinityName(k), func() { s.Affinities = append(s.Affinities, StoredAffinity{k, a}) }, err
	})},
	{v1alpha1.KindBlock, kv.Blocks, adder("block", func(s *Snapshot, o *v1alpha1.IPAMBlock) (string, func(), error) {
		b, err := o.Block()
		return v1alpha1.BlockName(b.CIDR), func() { s.Blocks = append(s.Blocks, StoredBlock{b, o.Labels}) }, err
	})},
	{v1alpha1.KindHandle, kv.Handles, adder("handle", func(_ *Snapshot, o *v1alpha1.IPAMHandle) (string, func(), error) {
		id, _, err := o.Handle()
		return v1alpha1.HandleName(id), func() {}, err
	})},
}

// adder returns what reads an object of type T. value returns the name an object of
// its content has, and what adds it to the snapshot. An object that cannot be read, or
// has another's name, is noted; it does not stop the others.
func adder[T any](what string, value func(*Snapshot, *T) (name string, add func(), err error)) func(*Snapshot, string, []byte) {
	return func(s *Snapshot, key string, raw []byte) {
		err := func() error {
			o := new(T)
			if err := json.Unmarshal(raw, o); err != nil {
				return fmt.Errorf("not the JSON of its kind: %w", err)
			}
			name, add, err := value(s, o)
			switch {
			case err != nil:
				return err
			case name != key:
				return fmt.Errorf("its content belongs to the name %s", name)
			}
			add()
			return nil
		}()
		if err != nil {
			s.Unreadable = append(s.Unreadable, Unreadable{Object: what + " " + key, Err: err})
		}
	}
}

func (s *Snapshot) sort() {
	slices.SortStableFunc(s.Blocks, func(a, b StoredBlock) int { return a.CIDR.Compare(b.CIDR) })
}
