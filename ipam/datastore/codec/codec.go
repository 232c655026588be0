// SPDX-License-Identifier: Apache-2.0

// Package codec has, for each kind of record, how a store turns key and value into
// an object and back, and what it refuses to store. Stores share it, so that they
// agree on names, defaults and refusals. It does no I/O and must not know stores.
package codec

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// Codec is one kind of record.
type Codec[K comparable, V any] struct {
	Kind    string         // of the custom resource
	Name    func(K) string // of the object
	Compare func(K, K) int // the order of lists
	// Accept returns key and value as they are stored, or why they cannot be: a
	// refusal (datastore.ErrRefused).
	Accept func(K, V) (K, V, error)
	Encode func(K, V) metav1.Object
	// Decode reads an object. One that cannot be read is an error.
	Decode func(raw []byte) (K, V, metav1.Object, error)
	// Writable says why a stored object with this value must not be written or
	// deleted: a refusal. nil for kinds without such objects.
	Writable func(V) error
	// Grows is a number that goes up whenever a value gives something away: what is
	// written over an object that is being deleted must not raise it. nil for kinds
	// that give nothing away.
	Grows func(V) uint64
}

// Blocks is the codec of blocks. A block of a newer format is read, never written.
func Blocks() Codec[netip.Prefix, block.Block] {
	return Codec[netip.Prefix, block.Block]{
		Kind: v1alpha1.KindBlock, Name: v1alpha1.BlockName, Compare: netip.Prefix.Compare,
		Accept: func(k netip.Prefix, b block.Block) (netip.Prefix, block.Block, error) {
			if b.CIDR != k {
				return k, b, datastore.Refused(fmt.Errorf("block %v: the value is for %v", k, b.CIDR))
			}
			return k, b, datastore.Refused(b.Writable())
		},
		Encode: func(_ netip.Prefix, b block.Block) metav1.Object { return v1alpha1.FromBlock(b) },
		Decode: func(raw []byte) (netip.Prefix, block.Block, metav1.Object, error) {
			var o v1alpha1.IPAMBlock
			if err := json.Unmarshal(raw, &o); err != nil {
				return netip.Prefix{}, block.Block{}, nil, err
			}
			b, err := o.Block()
			return b.CIDR, b, &o, err
		},
		Writable: func(b block.Block) error { return datastore.Refused(b.Writable()) },
		Grows:    func(b block.Block) uint64 { return b.Seq }, // INV-15
	}
}

// Affinities is the codec of claims.
func Affinities() Codec[datastore.AffinityKey, datastore.Affinity] {
	return Codec[datastore.AffinityKey, datastore.Affinity]{
		Kind: v1alpha1.KindAffinity, Name: v1alpha1.AffinityName,
		Compare: func(a, b datastore.AffinityKey) int {
			return cmp.Or(strings.Compare(a.Owner.String(), b.Owner.String()), a.CIDR.Compare(b.CIDR))
		},
		Accept: func(k datastore.AffinityKey, a datastore.Affinity) (datastore.AffinityKey, datastore.Affinity, error) {
			// What reading fills in is filled in before writing.
			k, a, err := v1alpha1.FromAffinity(k, a).Affinity()
			if err == nil && k.CIDR != k.CIDR.Masked() {
				err = fmt.Errorf("affinity of %v: %v has host bits set", k.Owner, k.CIDR)
			}
			return k, a, datastore.Refused(err)
		},
		Encode: func(k datastore.AffinityKey, a datastore.Affinity) metav1.Object { return v1alpha1.FromAffinity(k, a) },
		Decode: func(raw []byte) (datastore.AffinityKey, datastore.Affinity, metav1.Object, error) {
			var o v1alpha1.BlockAffinity
			if err := json.Unmarshal(raw, &o); err != nil {
				return datastore.AffinityKey{}, datastore.Affinity{}, nil, err
			}
			k, a, err := o.Affinity()
			return k, a, &o, err
		},
	}
}

// Handles is the codec of handle records.
func Handles() Codec[block.HandleID, datastore.Handle] {
	return Codec[block.HandleID, datastore.Handle]{
		Kind: v1alpha1.KindHandle, Name: v1alpha1.HandleName, Compare: cmp.Compare[block.HandleID],
		Accept: func(id block.HandleID, h datastore.Handle) (block.HandleID, datastore.Handle, error) {
			id, h, err := v1alpha1.FromHandle(id, h).Handle()
			return id, h, datastore.Refused(err)
		},
		Encode: func(id block.HandleID, h datastore.Handle) metav1.Object { return v1alpha1.FromHandle(id, h) },
		Decode: func(raw []byte) (block.HandleID, datastore.Handle, metav1.Object, error) {
			var o v1alpha1.IPAMHandle
			if err := json.Unmarshal(raw, &o); err != nil {
				return "", datastore.Handle{}, nil, err
			}
			id, h, err := o.Handle()
			return id, h, &o, err
		},
	}
}

// Pools is the codec of pools. UID, generation, time of creation and status of a
// value that is written are the store's.
func Pools() Codec[string, pool.Pool] {
	return Codec[string, pool.Pool]{
		Kind: v1alpha1.KindPool, Name: itself, Compare: strings.Compare,
		Accept: func(name string, p pool.Pool) (string, pool.Pool, error) {
			p.Spec = p.Spec.WithDefaults()
			p.Name = cmp.Or(p.Name, name)
			err := errors.Join(sameName(v1alpha1.KindPool, name, p.Name), v1alpha1.ValidateName(name), p.Validate())
			return name, p, datastore.Refused(err)
		},
		Encode: func(_ string, p pool.Pool) metav1.Object { return v1alpha1.FromPool(p) },
		Decode: func(raw []byte) (string, pool.Pool, metav1.Object, error) {
			var o v1alpha1.IPPool
			if err := json.Unmarshal(raw, &o); err != nil {
				return "", pool.Pool{}, nil, err
			}
			p, err := o.Pool()
			return p.Name, p, &o, err
		},
	}
}

// Reservations is the codec of reservations.
func Reservations() Codec[string, pool.Reservation] {
	return Codec[string, pool.Reservation]{
		Kind: v1alpha1.KindReservation, Name: itself, Compare: strings.Compare,
		Accept: func(name string, r pool.Reservation) (string, pool.Reservation, error) {
			r.Name = cmp.Or(r.Name, name)
			err := errors.Join(sameName(v1alpha1.KindReservation, name, r.Name), v1alpha1.ValidateName(name), r.Validate())
			return name, r, datastore.Refused(err)
		},
		Encode: func(_ string, r pool.Reservation) metav1.Object { return v1alpha1.FromReservation(r) },
		Decode: func(raw []byte) (string, pool.Reservation, metav1.Object, error) {
			var o v1alpha1.IPReservation
			if err := json.Unmarshal(raw, &o); err != nil {
				return "", pool.Reservation{}, nil, err
			}
			r, err := o.Reservation()
			return r.Name, r, &o, err
		},
	}
}

// Config is the codec of the configuration.
func Config() Codec[string, datastore.Config] {
	return Codec[string, datastore.Config]{
		Kind: v1alpha1.KindConfiguration, Name: itself, Compare: strings.Compare,
		Accept: func(name string, c datastore.Config) (string, datastore.Config, error) {
			err := errors.Join(sameName(v1alpha1.KindConfiguration, datastore.DefaultConfig, name), c.Validate())
			return name, c, datastore.Refused(err)
		},
		Encode: func(_ string, c datastore.Config) metav1.Object { return v1alpha1.FromConfig(c) },
		Decode: func(raw []byte) (string, datastore.Config, metav1.Object, error) {
			var o v1alpha1.IPAMConfiguration
			if err := json.Unmarshal(raw, &o); err != nil {
				return "", datastore.Config{}, nil, err
			}
			c, err := o.Config()
			return o.Name, c, &o, err
		},
	}
}

func itself(name string) string { return name }

func sameName(kind, want, got string) error {
	if want == got {
		return nil
	}
	return fmt.Errorf("%s: metadata.name: %q; it must be %q here", kind, got, want)
}
