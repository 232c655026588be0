// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/allod/allod/agent/config"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kv"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// Snapshot is what a datastore holds at one moment, as it is stored: what cannot
// be read is in it as well.
type Snapshot struct {
	Pools        []pool.Pool // by name
	Reservations []pool.Reservation
	Config       *datastore.Config // nil: none is stored, the defaults hold
	Blocks       []StoredBlock     // by address
	Affinities   []StoredAffinity
	Unreadable   []Unreadable
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

// readSnapshot reads the datastore in one transaction that cannot write (INV-12).
func readSnapshot(ctx context.Context, ds config.Datastore) (Snapshot, error) {
	var s Snapshot
	err := openDB(ds).View(ctx, func(tx kv.Tx) error {
		s = decodeSnapshot(tx)
		return ctx.Err()
	})
	return s, err
}

func decodeSnapshot(tx kv.Tx) Snapshot {
	var s Snapshot
	decode(&s, tx, kv.Pools, "pool", func(o *v1alpha1.IPPool) (string, func(), error) {
		p, err := o.Pool()
		return p.Name, func() { s.Pools = append(s.Pools, p) }, err
	})
	decode(&s, tx, kv.Reservations, "reservation", func(o *v1alpha1.IPReservation) (string, func(), error) {
		r, err := o.Reservation()
		return r.Name, func() { s.Reservations = append(s.Reservations, r) }, err
	})
	decode(&s, tx, kv.Config, "configuration", func(o *v1alpha1.IPAMConfiguration) (string, func(), error) {
		c, err := o.Config()
		return datastore.DefaultConfig, func() { s.Config = &c }, err
	})
	decode(&s, tx, kv.Blocks, "block", func(o *v1alpha1.IPAMBlock) (string, func(), error) {
		b, err := o.Block()
		return v1alpha1.BlockName(b.CIDR), func() { s.Blocks = append(s.Blocks, StoredBlock{b, o.Labels}) }, err
	})
	decode(&s, tx, kv.Affinities, "affinity", func(o *v1alpha1.BlockAffinity) (string, func(), error) {
		k, a, err := o.Affinity()
		return v1alpha1.AffinityName(k), func() { s.Affinities = append(s.Affinities, StoredAffinity{k, a}) }, err
	})
	decode(&s, tx, kv.Handles, "handle", func(o *v1alpha1.IPAMHandle) (string, func(), error) {
		id, _, err := o.Handle()
		return v1alpha1.HandleName(id), func() {}, err
	})
	slices.SortStableFunc(s.Blocks, func(a, b StoredBlock) int { return a.CIDR.Compare(b.CIDR) })
	return s
}

// decode reads every object of a table. value returns the name an object of its
// content has, and what adds it to the snapshot. An object that cannot be read,
// or has another's name, is noted; it does not stop the others.
func decode[T any](s *Snapshot, tx kv.Tx, table, kind string, value func(*T) (name string, add func(), err error)) {
	for key, val := range tx.All(table) {
		err := func() error {
			o := new(T)
			if err := json.Unmarshal(val, o); err != nil {
				return fmt.Errorf("not the JSON of its kind: %w", err)
			}
			name, add, err := value(o)
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
			s.Unreadable = append(s.Unreadable, Unreadable{Object: kind + " " + key, Err: err})
		}
	}
}
