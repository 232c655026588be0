// SPDX-License-Identifier: Apache-2.0

package kv

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

func blockKind(e *engine) kind[netip.Prefix, block.Block] {
	return kind[netip.Prefix, block.Block]{
		table: Blocks, name: v1alpha1.KindBlock,
		object: v1alpha1.BlockName, compare: netip.Prefix.Compare,
		accept: func(k netip.Prefix, b block.Block) (netip.Prefix, block.Block, error) {
			if b.CIDR != k {
				return k, b, fmt.Errorf("block %v: the value is for %v", k, b.CIDR)
			}
			return k, b, b.Writable()
		},
		encode: func(_ netip.Prefix, b block.Block) metav1.Object { return v1alpha1.FromBlock(b) },
		decode: func(raw []byte) (netip.Prefix, block.Block, metav1.Object, error) {
			var o v1alpha1.IPAMBlock
			if err := json.Unmarshal(raw, &o); err != nil {
				return netip.Prefix{}, block.Block{}, nil, err
			}
			b, err := o.Block()
			return b.CIDR, b, &o, err
		},
		change: func(tx Tx, o metav1.Object, old, changed *block.Block) error {
			if old != nil && old.Writable() != nil {
				return old.Writable()
			}
			if changed == nil {
				return nil
			}
			return e.settle(tx, o, old, *changed)
		},
		after: func(tx Tx, k netip.Prefix, old, changed *block.Block) error {
			if old != nil && changed != nil {
				return nil
			}
			return e.readmitFor(tx, k)
		},
	}
}

func affinityKind(e *engine) kind[datastore.AffinityKey, datastore.Affinity] {
	return kind[datastore.AffinityKey, datastore.Affinity]{
		table: Affinities, name: v1alpha1.KindAffinity,
		object: v1alpha1.AffinityName,
		compare: func(a, b datastore.AffinityKey) int {
			return cmp.Or(strings.Compare(a.Owner.String(), b.Owner.String()), a.CIDR.Compare(b.CIDR))
		},
		accept: func(k datastore.AffinityKey, a datastore.Affinity) (datastore.AffinityKey, datastore.Affinity, error) {
			// What reading fills in is filled in before writing.
			k, a, err := v1alpha1.FromAffinity(k, a).Affinity()
			if err == nil && k.CIDR != k.CIDR.Masked() {
				err = fmt.Errorf("affinity of %v: %v has host bits set", k.Owner, k.CIDR)
			}
			return k, a, err
		},
		encode: func(k datastore.AffinityKey, a datastore.Affinity) metav1.Object { return v1alpha1.FromAffinity(k, a) },
		decode: func(raw []byte) (datastore.AffinityKey, datastore.Affinity, metav1.Object, error) {
			var o v1alpha1.BlockAffinity
			if err := json.Unmarshal(raw, &o); err != nil {
				return datastore.AffinityKey{}, datastore.Affinity{}, nil, err
			}
			k, a, err := o.Affinity()
			return k, a, &o, err
		},
		after: func(tx Tx, k datastore.AffinityKey, old, changed *datastore.Affinity) error {
			if old != nil && changed != nil {
				return nil
			}
			return e.readmitFor(tx, k.CIDR)
		},
	}
}

func handleKind() kind[block.HandleID, datastore.Handle] {
	return kind[block.HandleID, datastore.Handle]{
		table: Handles, name: v1alpha1.KindHandle,
		object: v1alpha1.HandleName, compare: cmp.Compare[block.HandleID],
		accept: func(id block.HandleID, h datastore.Handle) (block.HandleID, datastore.Handle, error) {
			return v1alpha1.FromHandle(id, h).Handle()
		},
		encode: func(id block.HandleID, h datastore.Handle) metav1.Object { return v1alpha1.FromHandle(id, h) },
		decode: func(raw []byte) (block.HandleID, datastore.Handle, metav1.Object, error) {
			var o v1alpha1.IPAMHandle
			if err := json.Unmarshal(raw, &o); err != nil {
				return "", datastore.Handle{}, nil, err
			}
			id, h, err := o.Handle()
			return id, h, &o, err
		},
	}
}

func poolKind(e *engine) kind[string, pool.Pool] {
	return kind[string, pool.Pool]{
		table: Pools, name: v1alpha1.KindPool,
		object: func(name string) string { return name }, compare: strings.Compare,
		accept: func(name string, p pool.Pool) (string, pool.Pool, error) {
			p.Spec = p.Spec.WithDefaults()
			p.Name = cmp.Or(p.Name, name)
			return name, p, errors.Join(sameName(v1alpha1.KindPool, name, p.Name), v1alpha1.ValidateName(name), p.Validate())
		},
		encode: func(_ string, p pool.Pool) metav1.Object { return v1alpha1.FromPool(p) },
		decode: func(raw []byte) (string, pool.Pool, metav1.Object, error) {
			o, p, err := decodePool(raw)
			return p.Name, p, o, err
		},
		change: e.changePool,
		after:  e.afterPool,
	}
}

func reservationKind(e *engine) kind[string, pool.Reservation] {
	return kind[string, pool.Reservation]{
		table: Reservations, name: v1alpha1.KindReservation,
		object: func(name string) string { return name }, compare: strings.Compare,
		accept: func(name string, r pool.Reservation) (string, pool.Reservation, error) {
			r.Name = cmp.Or(r.Name, name)
			return name, r, errors.Join(sameName(v1alpha1.KindReservation, name, r.Name), v1alpha1.ValidateName(name), r.Validate())
		},
		encode: func(_ string, r pool.Reservation) metav1.Object { return v1alpha1.FromReservation(r) },
		decode: func(raw []byte) (string, pool.Reservation, metav1.Object, error) {
			o, r, err := decodeReservation(raw)
			return r.Name, r, o, err
		},
		after: func(tx Tx, _ string, old, changed *pool.Reservation) error {
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
	return kind[string, datastore.Config]{
		table: Config, name: v1alpha1.KindConfiguration,
		object: func(name string) string { return name }, compare: strings.Compare,
		accept: func(name string, c datastore.Config) (string, datastore.Config, error) {
			return name, c, errors.Join(sameName(v1alpha1.KindConfiguration, datastore.DefaultConfig, name), c.Validate())
		},
		encode: func(_ string, c datastore.Config) metav1.Object { return v1alpha1.FromConfig(c) },
		decode: func(raw []byte) (string, datastore.Config, metav1.Object, error) {
			var o v1alpha1.IPAMConfiguration
			if err := json.Unmarshal(raw, &o); err != nil {
				return "", datastore.Config{}, nil, err
			}
			c, err := o.Config()
			return o.Name, c, &o, err
		},
	}
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

func sameName(kind, want, got string) error {
	if want == got {
		return nil
	}
	return fmt.Errorf("%s: metadata.name: %q; it must be %q here", kind, got, want)
}
