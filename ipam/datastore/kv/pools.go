// SPDX-License-Identifier: Apache-2.0

package kv

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// poolSet is every pool as it stands in a transaction.
type poolSet struct {
	objects map[string]*v1alpha1.IPPool
	pools   []pool.Pool // by name
}

func loadPools(tx Tx) (poolSet, error) {
	s := poolSet{objects: map[string]*v1alpha1.IPPool{}}
	for name, raw := range tx.All(Pools) {
		o, p, err := decodePool(raw)
		if err != nil {
			return poolSet{}, fmt.Errorf("%s %s: stored object: %w", v1alpha1.KindPool, name, err)
		}
		s.objects[name] = o
		s.pools = append(s.pools, p)
	}
	return s, nil
}

// changePool decides what an operator does not set: the generation, and the
// status, which stays until admission runs. It refuses what would orphan blocks.
func (e *engine) changePool(tx Tx, o metav1.Object, old, changed *pool.Pool) error {
	if changed == nil {
		return e.poolUnused(tx, *old)
	}
	n := o.(*v1alpha1.IPPool) // the object is the one that poolKind encoded
	n.Finalizers, n.Status = nil, v1alpha1.IPPoolStatus{}
	if old == nil || old.Spec.Gateway != changed.Spec.Gateway {
		if err := gatewayFree(tx, *changed); err != nil {
			return err
		}
	}
	if old == nil {
		return nil
	}
	if err := changed.ValidateChange(*old); err != nil {
		return err
	}
	raw, _ := tx.Get(Pools, old.Name)
	was, _, err := decodePool(raw)
	if err != nil {
		return err
	}
	n.Finalizers, n.Status = was.Finalizers, was.Status
	if !reflect.DeepEqual(old.Spec, changed.Spec) {
		n.Generation = was.Generation + 1
	}
	return nil
}

// poolUnused returns ErrPoolInUse while a block or a claim, pending ones too, is
// of this pool.
func (e *engine) poolUnused(tx Tx, p pool.Pool) error {
	s, err := loadPools(tx)
	if err != nil {
		return err
	}
	var blocks, claims int
	var first string
	for name, raw := range tx.All(Blocks) {
		b, err := decodeBlock(name, raw)
		if err != nil {
			return err
		}
		if s.ofPool(b.Pool, b.CIDR, p) {
			blocks++
			first = orFirst(first, v1alpha1.KindBlock+" "+name)
		}
	}
	for name, raw := range tx.All(Affinities) {
		k, a, _, err := affinityKind(e).Decode(raw)
		if err != nil {
			return err
		}
		if s.ofPool(a.Pool, k.CIDR, p) {
			claims++
			first = orFirst(first, v1alpha1.KindAffinity+" "+name)
		}
	}
	if first == "" {
		return nil
	}
	return fmt.Errorf("%w: %d blocks and %d claims, the first is %s; set spec.disabled, wait until they are released, then delete",
		ErrPoolInUse, blocks, claims, first)
}

func orFirst(first, s string) string {
	if first == "" {
		return s
	}
	return first
}

// ofPool reports whether a block or a claim is of p. One that names no pool that is there
// belongs to the pool around it.
func (s poolSet) ofPool(name string, cidr netip.Prefix, p pool.Pool) bool {
	if s.objects[name] != nil {
		return name == p.Name
	}
	return within(cidr, p.Spec.CIDR)
}

func within(inner, outer netip.Prefix) bool {
	return inner.Bits() >= outer.Bits() && outer.Contains(inner.Addr())
}

// afterPool runs admission over all pools, then labels the blocks of the changed
// one anew if what may be handed out of them is another now.
func (e *engine) afterPool(tx Tx, _ string, old, changed *pool.Pool) error {
	if err := e.readmit(tx); err != nil {
		return err
	}
	if changed == nil || old != nil && old.Spec.Gateway == changed.Spec.Gateway {
		return nil
	}
	return e.relabel(tx, func(cidr netip.Prefix) bool { return within(cidr, changed.Spec.CIDR) }, changed.Name)
}

// readmitFor runs admission when a block or claim came or went that decides about
// a pool: it stands in the way of one of another block size, or did.
func (e *engine) readmitFor(tx Tx, cidr netip.Prefix) error {
	s, err := loadPools(tx)
	if err != nil {
		return err
	}
	for _, p := range s.pools {
		if p.Spec.BlockSize != cidr.Bits() && p.Spec.CIDR.Overlaps(cidr) {
			return e.readmit(tx)
		}
	}
	return nil
}

// readmit decides the status of every pool and stores those that changed.
func (e *engine) readmit(tx Tx) error {
	s, err := loadPools(tx)
	if err != nil {
		return err
	}
	var cidrs []netip.Prefix
	for _, table := range []string{Blocks, Affinities} {
		for name, raw := range tx.All(table) {
			c, err := cidrOf(raw)
			if err != nil {
				return fmt.Errorf("%s %s: stored object: %w", table, name, err)
			}
			cidrs = append(cidrs, c)
		}
	}
	slices.SortFunc(cidrs, netip.Prefix.Compare)
	was := map[string]pool.Status{}
	for _, p := range s.pools {
		was[p.Name] = p.Status
	}
	for _, p := range pool.Admit(s.pools, slices.Compact(cidrs)) {
		if p.Status == was[p.Name] {
			continue
		}
		if err := put(tx, Pools, p.Name, e.decided(s.objects[p.Name], p)); err != nil {
			return err
		}
	}
	return nil
}

// decided returns o with the status of p; the condition's time moves only when
// its status does.
func (e *engine) decided(o *v1alpha1.IPPool, p pool.Pool) *v1alpha1.IPPool {
	n := v1alpha1.FromPool(p)
	o.Finalizers = slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == v1alpha1.PoolFinalizer })
	o.Finalizers = append(o.Finalizers, n.Finalizers...)
	for _, c := range n.Status.Conditions {
		c.LastTransitionTime = e.now()
		i := slices.IndexFunc(o.Status.Conditions, func(w metav1.Condition) bool { return w.Type == c.Type })
		if i < 0 {
			o.Status.Conditions = append(o.Status.Conditions, c)
			continue
		}
		if was := o.Status.Conditions[i]; was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		o.Status.Conditions[i] = c
	}
	return o
}

// relabel computes the labels of the blocks that concerned selects by CIDR and
// writes those that changed (INV-13, INV-16). only, when set, names the one pool
// whose blocks count. A block of a newer format is left to the version that
// wrote it.
func (e *engine) relabel(tx Tx, concerned func(netip.Prefix) bool, only string) error {
	blocks, err := blocksWhere(tx, concerned)
	if err != nil || len(blocks) == 0 {
		return err // most changes concern no block: nothing else is read for them
	}
	s, err := loadPools(tx)
	if err != nil {
		return err
	}
	reservations, err := loadReservations(tx)
	if err != nil {
		return err
	}
	for _, b := range blocks {
		i := slices.IndexFunc(s.pools, func(p pool.Pool) bool { return s.ofPool(b.Pool, b.CIDR, p) })
		if i < 0 || b.Writable() != nil || only != "" && s.pools[i].Name != only {
			continue
		}
		u := pool.NewUnassignable(s.pools[i], reservations)
		n := b.Relabel(s.pools[i].Name, func(a netip.Addr) bool { return !u.Contains(a) })
		if n.Pool == b.Pool && n.Space == b.Space {
			continue
		}
		if err := rewrite(tx, n); err != nil {
			return err
		}
	}
	return nil
}

// settle judges a block that is about to be written by the pools and reservations
// of this transaction: its writer may have gone by those of a moment ago. It
// corrects the labels of o, which b became, and refuses an allocation of what is a
// gateway by now: ErrConflict.
func (e *engine) settle(tx Tx, o metav1.Object, old *block.Block, b block.Block) error {
	s, err := loadPools(tx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(s.pools, func(p pool.Pool) bool { return s.ofPool(b.Pool, b.CIDR, p) })
	if i < 0 {
		return nil
	}
	gateway := s.pools[i].GatewayOf(b.CIDR)
	if allocated(&b, gateway) && !allocated(old, gateway) {
		return fmt.Errorf("%s is the gateway of pool %s by now: %w", gateway, s.pools[i].Name, datastore.ErrConflict)
	}
	reservations, err := loadReservations(tx)
	if err != nil {
		return err
	}
	u := pool.NewUnassignable(s.pools[i], reservations)
	n := b.Relabel(s.pools[i].Name, func(a netip.Addr) bool { return !u.Contains(a) })
	o.SetLabels(v1alpha1.Adopt(v1alpha1.FromBlock(n).Labels, o.GetLabels()))
	return nil
}

func allocated(b *block.Block, a netip.Addr) bool {
	if b == nil || !a.IsValid() {
		return false
	}
	s, ok := b.Slot(a)
	return ok && s.State == block.Allocated
}

// gatewayFree refuses a gateway that somebody has: it would be on two interfaces.
func gatewayFree(tx Tx, p pool.Pool) error {
	if !p.HasGateway() {
		return nil
	}
	blocks, err := blocksWhere(tx, func(cidr netip.Prefix) bool { return within(cidr, p.Spec.CIDR) })
	if err != nil {
		return err
	}
	return GatewayFree(p, blocks)
}

// GatewayFree refuses a gateway of p that somebody has in one of the blocks.
func GatewayFree(p pool.Pool, blocks []block.Block) error {
	for _, b := range blocks {
		gateway := p.GatewayOf(b.CIDR)
		if within(b.CIDR, p.Spec.CIDR) && allocated(&b, gateway) {
			s, _ := b.Slot(gateway)
			who := fmt.Sprintf("container %q", s.Active.ContainerID)
			if s.Active.Pod != "" {
				who = fmt.Sprintf("pod %s/%s", s.Active.Namespace, s.Active.Pod)
			}
			return fmt.Errorf("spec.gateway: %s is in use by %s on node %s; end it or choose another gateway", gateway, who, s.Active.Node)
		}
	}
	return nil
}

// blocksWhere returns the blocks that where selects by CIDR.
func blocksWhere(tx Tx, where func(netip.Prefix) bool) ([]block.Block, error) {
	var out []block.Block
	for name, raw := range tx.All(Blocks) {
		cidr, err := cidrOf(raw)
		if err != nil {
			return nil, fmt.Errorf("%s %s: stored object: %w", v1alpha1.KindBlock, name, err)
		}
		if !where(cidr) {
			continue
		}
		b, err := decodeBlock(name, raw)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

func unmarshalBlock(name string, raw []byte) (*v1alpha1.IPAMBlock, error) {
	var o v1alpha1.IPAMBlock
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("%s %s: stored object: %w", v1alpha1.KindBlock, name, err)
	}
	return &o, nil
}

func decodeBlock(name string, raw []byte) (block.Block, error) {
	o, err := unmarshalBlock(name, raw)
	if err != nil {
		return block.Block{}, err
	}
	return o.Block()
}

func rewrite(tx Tx, b block.Block) error {
	o := v1alpha1.FromBlock(b)
	raw, _ := tx.Get(Blocks, o.Name)
	was, err := unmarshalBlock(o.Name, raw)
	if err != nil {
		return err
	}
	inherit(o, was)
	return put(tx, Blocks, o.Name, o)
}

func loadReservations(tx Tx) ([]pool.Reservation, error) {
	var rs []pool.Reservation
	for name, raw := range tx.All(Reservations) {
		_, r, err := decodeReservation(raw)
		if err != nil {
			return nil, fmt.Errorf("%s %s: stored object: %w", v1alpha1.KindReservation, name, err)
		}
		rs = append(rs, r)
	}
	return rs, nil
}
