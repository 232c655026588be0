// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// Audit looks for everything that is wrong with a store. It is a pure function
// of the snapshot; findings come in a fixed order.
func Audit(s Snapshot) Report {
	a := newAudit(s)
	for _, u := range s.Unreadable {
		a.add(UnreadableObject, u.Object, "%v", u.Err)
	}
	a.settings()
	for _, b := range s.Blocks {
		a.block(b)
	}
	a.overlaps()
	for _, f := range s.Affinities {
		a.affinity(f)
	}
	return a.report()
}

type audit struct {
	Snapshot
	byCIDR   map[netip.Prefix]block.Block
	byKey    map[datastore.AffinityKey]datastore.Affinity
	byPool   map[string]pool.Pool
	usable   map[string]pool.Unassignable
	problems []Problem
}

func newAudit(s Snapshot) *audit {
	a := &audit{
		Snapshot: s,
		byCIDR:   make(map[netip.Prefix]block.Block, len(s.Blocks)),
		byKey:    make(map[datastore.AffinityKey]datastore.Affinity, len(s.Affinities)),
		byPool:   make(map[string]pool.Pool, len(s.Pools)),
		usable:   make(map[string]pool.Unassignable, len(s.Pools)),
		problems: []Problem{},
	}
	for _, b := range s.Blocks {
		a.byCIDR[b.CIDR] = b.Block
	}
	for _, f := range s.Affinities {
		a.byKey[f.Key] = f.Affinity
	}
	for _, p := range s.Pools {
		a.byPool[p.Name] = p
		a.usable[p.Name] = pool.NewUnassignable(p, s.Reservations)
	}
	return a
}

func (a *audit) add(code Code, object, what string, args ...any) {
	k := kinds[code]
	action := k.action
	if e, ok := embedded[code]; ok && a.Embedded {
		action = e
	}
	if _, name, ok := strings.Cut(object, " "); ok {
		action = strings.ReplaceAll(action, placeholder, name)
	}
	a.problems = append(a.problems, Problem{
		Code: code, Severity: k.severity, Object: object,
		What: fmt.Sprintf(what, args...), Why: k.why, Action: action,
	})
}

// count counts the addresses of s.
func (m *Summary) count(s Snapshot) {
	m.Allocated, m.Cooling = 0, 0
	for _, b := range s.Blocks {
		c := b.Counts()
		m.Allocated += c.Allocated
		m.Cooling += c.Cooling
	}
}

func (a *audit) report() Report {
	r := Report{Problems: a.problems, Summary: Summary{
		Pools: len(a.Pools), Reservations: len(a.Reservations), Blocks: len(a.Blocks), Affinities: len(a.Affinities),
	}}
	r.Summary.count(a.Snapshot)
	r.Summary.tally(a.problems)
	return r
}

// tally counts problems and notices.
func (m *Summary) tally(ps []Problem) {
	m.Problems, m.Notices = 0, 0
	for _, p := range ps {
		if p.Severity == SeverityNotice {
			m.Notices++
		} else {
			m.Problems++
		}
	}
}

// settings checks what operators write: its own rules, and that the stored
// admission of pools is what pool.Admit decides now.
func (a *audit) settings() {
	cidrs := make([]netip.Prefix, 0, len(a.Blocks)+len(a.Affinities))
	for _, b := range a.Blocks {
		cidrs = append(cidrs, b.CIDR)
	}
	for _, f := range a.Affinities {
		cidrs = append(cidrs, f.Key.CIDR)
	}
	now := make(map[string]pool.Status, len(a.Pools))
	for _, p := range pool.Admit(a.Pools, cidrs) {
		now[p.Name] = p.Status
	}
	is := standings(a.Pools)
	for _, p := range a.Pools {
		a.admission(p, now[p.Name], is[p.Name])
	}
	for _, r := range a.Reservations {
		if err := r.Validate(); err != nil {
			a.add(ReservationInvalid, "reservation "+r.Name, "%s", oneLine(err))
		}
	}
	if a.Config == nil {
		return
	}
	if err := a.Config.Validate(); err != nil {
		a.add(ConfigurationFaulty, "configuration "+datastore.DefaultConfig, "%s", oneLine(err))
	}
}

// admission checks a pool whose status should be want and which is what Select says.
func (a *audit) admission(p pool.Pool, want pool.Status, is standing) {
	object, have := "pool "+p.Name, p.Status
	if err := p.Validate(); err != nil {
		a.add(PoolInvalid, object, "%s", oneLine(err))
	}
	code := PoolStatusOutdated
	if p.Deleting {
		code = PoolTerminating
	}
	switch {
	case have.Reason == "":
		a.add(code, object, "%s; its status should be %s", undecided(have), want.Reason)
	case want.Allocatable != have.Allocatable || want.Reason != have.Reason || have.ObservedGeneration != p.Generation:
		a.add(code, object, "status is %s for generation %d; it should be %s for generation %d",
			have.Reason, have.ObservedGeneration, want.Reason, p.Generation)
	case want.Finalizer && !have.Finalizer:
		a.add(code, object, "its finalizer %s is missing", v1alpha1.PoolFinalizer)
	case !have.Finalizer && !a.Embedded && a.cutFrom(p):
		a.add(PoolUnprotected, object, "its finalizer %s is missing and blocks of it exist", v1alpha1.PoolFinalizer)
	}
	if !is.meant() && is.status != notAdmitted {
		a.add(PoolNotAllocatable, object, "%s: %s", is.status, is.message)
	}
}

// cutFrom reports whether a block or claim names p.
func (a *audit) cutFrom(p pool.Pool) bool {
	return slices.ContainsFunc(a.Blocks, func(b StoredBlock) bool { return b.Pool == p.Name }) ||
		slices.ContainsFunc(a.Affinities, func(f StoredAffinity) bool { return f.Pool == p.Name })
}

func (a *audit) block(b StoredBlock) {
	object := "block " + b.CIDR.String()
	for _, p := range b.Problems() {
		a.add(UnreadableLine, object, "%s", p)
	}
	if err := b.Check(); err != nil {
		a.add(BlockInvalid, object, "%s", oneLine(err))
	}
	if err := b.Writable(); err != nil {
		a.add(NewerFormat, object, "%s", oneLine(err))
	}
	for addr, s := range b.All() {
		// A slot that decoding made up has been reported with its line.
		if s.Unknown() && s.Raw == "" && s != (block.Slot{State: block.Allocated}) {
			a.add(UnknownOwner, object, "address %s is allocated without a handle", addr)
		}
	}
	a.blockPool(b, object)
	a.blockAffinity(b.Block, object)
}

func (a *audit) blockPool(b StoredBlock, object string) {
	p, ok := a.byPool[b.Pool]
	if !ok {
		a.add(PoolMissing, object, "its pool %q does not exist; %d of its addresses %s allocated", b.Pool, b.Counts().Allocated, are(b.Counts().Allocated))
		a.labels(b, object, b.Space)
		return
	}
	if want, in := p.BlockOf(b.CIDR.Addr()); !in || want != b.CIDR {
		a.add(BlockOutsidePool, object, "pool %s is %s in blocks of /%d", p.Name, p.Spec.CIDR, p.Spec.BlockSize)
	}
	gateway := p.GatewayOf(b.CIDR)
	if s, ok := b.Slot(gateway); gateway.IsValid() && ok && s.State == block.Allocated {
		a.add(GatewayInUse, "address "+gateway.String(), "it is the gateway of pool %s and allocated to pod %s/%s, handle %s",
			p.Name, s.Active.Namespace, s.Active.Pod, s.Handle)
	}
	u := a.usable[p.Name]
	usable := func(x netip.Addr) bool { return !u.Contains(x) }
	a.labels(b, object, b.Relabel(b.Pool, usable).Space)
}

// labels compares the stored labels with the ones the content calls for. A space
// label that promises more than there is only costs a read; releases write it so
// when they do not know the reservations.
func (a *audit) labels(b StoredBlock, object string, space block.Space) {
	want := b.Block
	if slices.Index(spaces, b.Space) < slices.Index(spaces, space) {
		want.Space = space
	}
	wanted := v1alpha1.FromBlock(want).Labels
	var diff []string
	for _, k := range slices.Sorted(maps.Keys(wanted)) {
		have, ok := b.Labels[k]
		switch {
		case !ok:
			diff = append(diff, fmt.Sprintf("%s is missing, want %q", k, wanted[k]))
		case have != wanted[k]:
			diff = append(diff, fmt.Sprintf("%s is %q, want %q", k, have, wanted[k]))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(b.Labels)) {
		if _, ok := wanted[k]; !ok && v1alpha1.Own(k) {
			diff = append(diff, fmt.Sprintf("%s is there without reason", k))
		}
	}
	if len(diff) > 0 {
		a.add(LabelsDisagree, object, "%s", strings.Join(diff, "; "))
	}
}

// spaces are the space labels, each promising more than the one before.
var spaces = []block.Space{block.SpaceFull, block.SpaceCooling, block.SpaceFree}

func (a *audit) blockAffinity(b block.Block, object string) {
	if b.Affinity.IsZero() {
		return
	}
	f, ok := a.byKey[datastore.AffinityKey{Owner: b.Affinity, CIDR: b.CIDR}]
	switch {
	case !ok:
		a.add(AffinityMissing, object, "it names %s, which has no affinity for it", b.Affinity)
	case f.State == datastore.PendingDeletion:
		a.add(AffinityReleasing, object, "it names %s, whose affinity is pendingDeletion", b.Affinity)
	}
}

// overlaps finds blocks that share addresses. In the order of the sweep a block
// can only overlap the blocks that are still open: those whose last address is
// not yet passed. CIDRs nest, so the open ones form a stack.
func (a *audit) overlaps() {
	blocks := slices.Clone(a.Blocks)
	slices.SortStableFunc(blocks, func(x, y StoredBlock) int {
		if c := x.CIDR.Addr().Compare(y.CIDR.Addr()); c != 0 {
			return c
		}
		return x.CIDR.Bits() - y.CIDR.Bits()
	})
	var open []StoredBlock
	for _, b := range blocks {
		for len(open) > 0 && !open[len(open)-1].CIDR.Contains(b.CIDR.Addr()) {
			open = open[:len(open)-1]
		}
		for _, outer := range open {
			a.overlap(outer, b)
		}
		open = append(open, b)
	}
}

func (a *audit) overlap(outer, inner StoredBlock) {
	object := "block " + inner.CIDR.String()
	a.add(OverlappingBlocks, object, "it lies in block %s of pool %s; its own pool is %s", outer.CIDR, outer.Pool, inner.Pool)
	for addr, s := range inner.All() {
		t, ok := outer.Slot(addr)
		if ok && s.State == block.Allocated && t.State == block.Allocated {
			a.add(DuplicateAddress, "address "+addr.String(), "allocated to %s in block %s and to %s in block %s",
				ownerText(t), outer.CIDR, ownerText(s), inner.CIDR)
		}
	}
}

func (a *audit) affinity(f StoredAffinity) {
	object := fmt.Sprintf("affinity %s of %s", f.Key.CIDR, f.Key.Owner)
	b, ok := a.byCIDR[f.Key.CIDR]
	if !ok {
		switch f.State {
		case datastore.Confirmed:
			a.add(BlockMissing, object, "it is confirmed and its block does not exist")
		case datastore.Pending:
			a.add(AffinityPending, object, "it is pending and its block does not exist yet")
		default:
			a.add(AffinityStale, object, "it is %s and its block is gone", f.State)
		}
		return
	}
	if f.BlockSeq > b.Seq {
		a.add(AffinityAhead, object, "it was claimed at sequence %d, the block is at %d", f.BlockSeq, b.Seq)
	}
	if f.Pool != b.Pool {
		a.add(AffinityPool, object, "it names pool %q, the block pool %q", f.Pool, b.Pool)
	}
	if b.Affinity == f.Key.Owner {
		if f.State == datastore.Pending {
			a.add(AffinityPending, object, "it is pending although its block names it")
		}
		return // any other disagreement is reported with the block
	}
	a.foreign(f, b, object)
}

// foreign checks the affinity of an owner that the block does not name.
func (a *audit) foreign(f StoredAffinity, b block.Block, object string) {
	holder := "nobody"
	if !b.Affinity.IsZero() {
		holder = b.Affinity.String()
	}
	current := a.byKey[datastore.AffinityKey{Owner: b.Affinity, CIDR: b.CIDR}]
	switch {
	case f.State == datastore.Pending:
		a.add(AffinityPending, object, "it is pending, the block names %s", holder)
	case f.State == datastore.Confirmed && current.State == datastore.Confirmed && f.BlockSeq >= current.BlockSeq:
		a.add(AffinityAmbiguous, object, "it is confirmed at sequence %d, the block names %s, confirmed at %d",
			f.BlockSeq, holder, current.BlockSeq)
	default:
		a.add(AffinityStale, object, "it is %s, the block names %s", f.State, holder)
	}
}

// ownerText names who holds an address, for people.
func ownerText(s block.Slot) string {
	switch o := s.Active; {
	case s.Unknown():
		return "an unknown owner"
	case o.Pod != "":
		return "pod " + o.Namespace + "/" + o.Pod
	default:
		return "handle " + string(s.Handle)
	}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
