// SPDX-License-Identifier: Apache-2.0

package kv

import (
	"encoding/json"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/codec"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

func blockKind(e *engine) kind[netip.Prefix, block.Block] {
	return kind[netip.Prefix, block.Block]{
		table: Blocks, Codec: codec.Blocks(),
		change: func(tx Tx, o metav1.Object, old, changed *block.Block) error {
			if old != nil && old.Writable() != nil {
				return old.Writable()
			}
			if changed == nil || e.later {
				return nil
			}
			return e.settle(tx, o, old, *changed)
		},
		after: func(tx Tx, k netip.Prefix, old, changed *block.Block) error {
			if old != nil && changed != nil || e.later {
				return nil
			}
			return e.readmitFor(tx, k)
		},
	}
}

func affinityKind(e *engine) kind[datastore.AffinityKey, datastore.Affinity] {
	return kind[datastore.AffinityKey, datastore.Affinity]{
		table: Affinities, Codec: codec.Affinities(),
		after: func(tx Tx, k datastore.AffinityKey, old, changed *datastore.Affinity) error {
			if old != nil && changed != nil || e.later {
				return nil
			}
			return e.readmitFor(tx, k.CIDR)
		},
	}
}

func handleKind() kind[block.HandleID, datastore.Handle] {
	return kind[block.HandleID, datastore.Handle]{table: Handles, Codec: codec.Handles()}
}

func poolKind(e *engine) kind[string, pool.Pool] {
	if e.later {
		return kind[string, pool.Pool]{table: Pools, Codec: codec.Pools(), change: e.changeLater}
	}
	return kind[string, pool.Pool]{table: Pools, Codec: codec.Pools(), change: e.changePool, after: e.afterPool}
}

func reservationKind(e *engine) kind[string, pool.Reservation] {
	return kind[string, pool.Reservation]{
		table: Reservations, Codec: codec.Reservations(),
		after: func(tx Tx, _ string, old, changed *pool.Reservation) error {
			if e.later {
				return nil
			}
			var cidrs []netip.Prefix
			for _, r := range []*pool.Reservation{old, changed} {
				if r != nil {
					cidrs = append(cidrs, r.CIDRs...)
				}
			}
			return e.relabel(tx, func(b netip.Prefix) bool { return slices.ContainsFunc(cidrs, b.Overlaps) }, "")
		},
	}
}

func configKind() kind[string, datastore.Config] {
	return kind[string, datastore.Config]{table: Config, Codec: codec.Config()}
}

func decodePool(raw []byte) (*v1alpha1.IPPool, pool.Pool, error) {
	var o v1alpha1.IPPool
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, pool.Pool{}, err
	}
	p, err := o.Pool()
	return &o, p, err
}

func decodeReservation(raw []byte) (*v1alpha1.IPReservation, pool.Reservation, error) {
	var o v1alpha1.IPReservation
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, pool.Reservation{}, err
	}
	r, err := o.Reservation()
	return &o, r, err
}
