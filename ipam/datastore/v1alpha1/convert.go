// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

// FromBlock returns the stored form of b, with the labels it is found by.
func FromBlock(b block.Block) *IPAMBlock {
	return &IPAMBlock{
		TypeMeta: meta(KindBlock),
		ObjectMeta: metav1.ObjectMeta{
			Name:        BlockName(b.CIDR),
			Labels:      blockLabels(b.Labels()),
			Annotations: poolAnnotations(b.Pool),
		},
		Spec: IPAMBlockSpec(block.Encode(b)),
	}
}

// Block returns the value of o. Only a CIDR that is no block is an error, see
// [block.Decode]. Without a space label the block counts as it would with
// nothing reserved.
func (o *IPAMBlock) Block() (block.Block, error) {
	b, err := block.Decode(block.Wire(o.Spec))
	if err != nil {
		return block.Block{}, fmt.Errorf("%s %s: spec.cidr: %w", KindBlock, o.Name, err)
	}
	b.Deleting = o.DeletionTimestamp != nil
	name := poolName(o.Labels, o.Annotations)
	switch space := block.Space(o.Labels[LabelSpace]); space {
	case block.SpaceFree, block.SpaceCooling, block.SpaceFull:
		b.Pool, b.Space = name, space
		return b, nil
	default:
		return b.Relabel(name, nil), nil
	}
}

// FromAffinity returns the stored form of a claim.
func FromAffinity(k datastore.AffinityKey, a datastore.Affinity) *BlockAffinity {
	t := k.Owner.Type
	if t == "" {
		t = block.HostAffinity
	}
	labels := map[string]string{LabelOwner: OwnerLabel(k.Owner)}
	if a.Pool != "" {
		labels[LabelPool] = PoolLabel(a.Pool)
	}
	o := &BlockAffinity{
		TypeMeta:   meta(KindAffinity),
		ObjectMeta: metav1.ObjectMeta{Name: AffinityName(k), Labels: labels},
		Spec: BlockAffinitySpec{
			State: string(a.State), Type: t, Name: k.Owner.Name, CIDR: k.CIDR.String(),
			Pool: a.Pool, BlockSequence: strconv.FormatUint(a.BlockSeq, 10),
		},
	}
	if !a.PendingSince.IsZero() {
		o.Spec.PendingSince = a.PendingSince.UTC().Format(time.RFC3339Nano)
	}
	return o
}

// Affinity returns key and value of o. An empty type reads as host, an empty
// state as pending, an absent sequence as 0. An unknown state is kept: only
// confirmed counts (INV-6).
func (o *BlockAffinity) Affinity() (datastore.AffinityKey, datastore.Affinity, error) {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s %s: "+format, append([]any{KindAffinity, o.Name}, args...)...))
	}
	k := datastore.AffinityKey{Owner: block.Affinity{Type: o.Spec.Type, Name: o.Spec.Name}}
	a := datastore.Affinity{State: datastore.AffinityState(o.Spec.State), Pool: o.Spec.Pool}
	if a.State == "" {
		a.State = datastore.Pending
	}
	switch k.Owner.Type {
	case block.HostAffinity, block.VirtualAffinity:
	case "":
		k.Owner.Type = block.HostAffinity
	default:
		fail("spec.type: %q is neither host nor virtual", o.Spec.Type)
	}
	if o.Spec.Name == "" {
		fail("spec.name: missing")
	}
	var err error
	if k.CIDR, err = netip.ParsePrefix(o.Spec.CIDR); err != nil {
		fail("spec.cidr: %q is no CIDR", o.Spec.CIDR)
	}
	if s := o.Spec.BlockSequence; s != "" {
		if a.BlockSeq, err = strconv.ParseUint(s, 10, 64); err != nil {
			fail("spec.blockSequence: %q is no number of 64 bits", s)
		}
	}
	if since, err := time.Parse(time.RFC3339Nano, o.Spec.PendingSince); err == nil {
		a.PendingSince = since.UTC()
	}
	if errs != nil {
		return datastore.AffinityKey{}, datastore.Affinity{}, errors.Join(errs...)
	}
	return k, a, nil
}

// FromHandle returns the stored form of a handle record.
func FromHandle(id block.HandleID, h datastore.Handle) *IPAMHandle {
	o := &IPAMHandle{
		TypeMeta:   meta(KindHandle),
		ObjectMeta: metav1.ObjectMeta{Name: HandleName(id)},
		Spec:       IPAMHandleSpec{Handle: string(id), Releasing: h.Releasing},
	}
	for _, a := range h.Addrs {
		o.Spec.Addresses = append(o.Spec.Addresses, a.String())
	}
	return o
}

// Handle returns key and value of o.
func (o *IPAMHandle) Handle() (block.HandleID, datastore.Handle, error) {
	var errs []error
	if o.Spec.Handle == "" {
		errs = append(errs, fmt.Errorf("%s %s: spec.handle: missing", KindHandle, o.Name))
	}
	h := datastore.Handle{Releasing: o.Spec.Releasing}
	for i, s := range o.Spec.Addresses {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			errs = append(errs, fmt.Errorf("%s %s: spec.addresses[%d]: %q is no address", KindHandle, o.Name, i, s))
			continue
		}
		h.Addrs = append(h.Addrs, a)
	}
	if errs != nil {
		return "", datastore.Handle{}, errors.Join(errs...)
	}
	return block.HandleID(o.Spec.Handle), h, nil
}
