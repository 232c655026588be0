// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"unicode/utf8"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// AutoAssignRequest asks for addresses wherever there are some.
type AutoAssignRequest struct {
	Num4, Num6 int // how many of each family: all of both, or nothing (INV-11)
	Handle     block.HandleID
	Type       block.Type
	Owner      block.Owner
	Host       pool.Node // where they are used; its name must not be empty
	Namespace  pool.Namespace
	Use        pool.Use
	// HostLabels and NamespaceLabels, unless nil, look up the labels that Host and
	// Namespace do not carry. Each is called at most once for a request, and only if a
	// pool that could otherwise serve it has a selector. An error fails the request.
	HostLabels, NamespaceLabels func(context.Context) (map[string]string, error)
	// Pools4 and Pools6 name the pools to use, by name or CIDR; empty means every
	// automatic pool. Selectors apply all the same.
	Pools4, Pools6 []string
	// MaxBlocksPerHost lowers the configured cap for this request; 0 leaves it.
	MaxBlocksPerHost int
	NeedGateway      bool // only pools with a gateway will do
	BlockMask        bool // only pools whose gateway is inside each block will do
	// Reserved4 and Reserved6 are the ordinals that the host keeps for itself in each
	// of its blocks (Windows). They force strictAffinity; pools whose blocks are too
	// small are skipped.
	Reserved4, Reserved6 block.HostReserved
}

func (r AutoAssignRequest) validate() error {
	switch {
	case r.Num4 < 0 || r.Num6 < 0 || r.Num4+r.Num6 == 0:
		return fmt.Errorf("%w: %d IPv4 and %d IPv6 addresses asked for", ErrInvalid, r.Num4, r.Num6)
	case r.Handle == "":
		return fmt.Errorf("%w: no handle", ErrInvalid)
	case r.Type == "":
		return fmt.Errorf("%w: no allocation type", ErrInvalid)
	case r.Host.Name == "":
		return fmt.Errorf("%w: no node name", ErrInvalid)
	}
	return errors.Join(legible(r.Owner, r.Host.Name), r.validateReserved())
}

// maxName bounds every name that is recorded with an allocation: the longest that
// Kubernetes allows. A block has one size; its slots must not.
const maxName = 253

// legible refuses names that could not be written down and found again.
func legible(o block.Owner, node string) error {
	for what, s := range map[string]string{
		"network": o.Network, "namespace": o.Namespace, "pod": o.Pod, "pod UID": o.PodUID, "container ID": o.ContainerID,
		"interface": o.IfName, "VM": o.VM, "VMI UID": o.VMIUID, "node UID": o.NodeUID, "node": node,
	} {
		if len(s) > maxName {
			return fmt.Errorf("%w: the name of the %s has %d bytes, at most %d are recorded", ErrInvalid, what, len(s), maxName)
		}
		if !utf8.ValidString(s) {
			return fmt.Errorf("%w: the name of the %s is not UTF-8: %q", ErrInvalid, what, s)
		}
	}
	return nil
}

func (r AutoAssignRequest) wants() []want {
	return []want{{pool.V4, r.Num4, r.Pools4}, {pool.V6, r.Num6, r.Pools6}}
}

// wantOf returns what is wanted of the family of addr.
func (r AutoAssignRequest) wantOf(addr netip.Addr) want {
	if pool.FamilyOf(addr) == pool.V4 {
		return r.wants()[0]
	}
	return r.wants()[1]
}

type want struct {
	family pool.Family
	n      int
	pools  []string
}

// AutoAssign takes addresses from the pools that may serve r, in this order:
// blocks the host has, a block nobody has, an empty block another host has held
// for a minute, and (unless strictAffinity) somebody else's block. It returns all
// that was asked for or, having undone what it took, an error that says what was
// considered. Every call takes anew: a caller that does not know how an earlier one
// ended (it crashed) releases its handle first.
func (c *Client) AutoAssign(ctx context.Context, r AutoAssignRequest) (Assigned, error) {
	if err := r.validate(); err != nil {
		return Assigned{}, err
	}
	a, err := c.newAssigner(ctx, r, (*assigner).roomFor)
	if err != nil {
		return Assigned{}, err
	}
	if err := a.repair(ctx); err != nil {
		return Assigned{}, err
	}
	for _, w := range r.wants() {
		if err := a.assign(ctx, w); err != nil {
			return Assigned{}, a.fail(ctx, err)
		}
	}
	a.collectStrays(ctx)
	return a.assigned(), nil
}

// assign takes w.n addresses of one family, from one stage after the other.
func (a *assigner) assign(ctx context.Context, w want) error {
	if w.n == 0 {
		return nil
	}
	sel, err := a.selection(ctx, w)
	if err != nil {
		return err
	}
	if len(sel.Pools) == 0 && !a.v.live {
		if err := a.refresh(ctx); err != nil {
			return err
		}
		if sel, err = a.selection(ctx, w); err != nil {
			return err
		}
	}
	s := &search{assigner: a, want: w, sel: sel, need: w.n, closed: make(map[string]bool)}
	if len(s.sel.Pools) == 0 {
		return s.noPool()
	}
	for range maxRounds {
		for _, stage := range []func(context.Context) error{s.affine, s.claim, s.others} {
			if err := stage(ctx); err != nil {
				return fmt.Errorf("assign %s: %w", w.family, err)
			}
			if s.need == 0 {
				return nil
			}
		}
		report := s.exhausted()
		again, err := s.lookAgain(ctx)
		if err != nil {
			return err
		}
		if !again {
			return s.conclude(ctx, report)
		}
	}
	return s.conclude(ctx, s.exhausted())
}

// conclude says that the search is exhausted once the last that there may be is tried.
func (s *search) conclude(ctx context.Context, report error) error {
	if err := s.mislabelled(ctx); err != nil {
		return fmt.Errorf("assign %s: %w", s.want.family, err)
	}
	if s.need == 0 {
		return nil
	}
	return report
}

// maxRounds bounds how often a search starts again because things changed.
const maxRounds = 4

// search is the part of a request that concerns one family.
type search struct {
	*assigner
	want want
	sel  pool.Selection
	need int
	// What was found on the way; it explains an exhausted search.
	atCap  int             // the cap that kept the host from claiming, 0 if none
	seen   []blockEntry    // what the last resort looked at
	closed map[string]bool // pools that were closed meanwhile, by name

	occupied []netip.Prefix // of others' affinities; nil: not read yet
	tried    []netip.Prefix // claimed or tried to in this search
	stale    bool           // something was found to be not as it was read
	looked   bool           // lookAgain has been asked
}

// poolOf returns the selected pool that cidr is a block of. Nothing is given out of a
// block of another size: others may overlap it (INV-1).
func (s *search) poolOf(cidr netip.Prefix) (pool.Pool, bool) {
	for _, p := range s.sel.Pools {
		if p.Cuts(cidr) {
			return p, true
		}
	}
	return pool.Pool{}, false
}

// affine takes from the blocks this host has a claim on, in pool order, and
// completes claims whose block is missing.
func (s *search) affine(ctx context.Context) error {
	for _, p := range s.sel.Pools {
		for _, e := range slices.Clone(s.host.blocks) {
			if s.need == 0 {
				return nil
			}
			if e.Value.Affinity != s.host.affinity() || !p.Cuts(e.Key) {
				continue
			}
			if err := s.from(ctx, p, e, s.ours); err != nil {
				return err
			}
			if i := s.host.block(e.Key); i >= 0 && s.host.blocks[i].Value.Affinity != s.host.affinity() {
				if err := s.disown(ctx, s.host.blocks[i], nil); err != nil { // another host has taken it
					return err
				}
			}
		}
		for _, claim := range slices.Clone(s.host.affinities) {
			if s.need == 0 {
				return nil
			}
			if s.host.block(claim.Key.CIDR) >= 0 || !p.Cuts(claim.Key.CIDR) {
				continue
			}
			if err := s.claimBlock(ctx, p, claim.Key.CIDR); err != nil {
				return err
			}
		}
	}
	return nil
}

// ours allows a block that this host still has.
func (s *search) ours(b block.Block) (block.Block, bool) {
	return b, b.Affinity == s.host.affinity() && (s.ensured == nil || s.canReserve(b))
}

// from takes what one existing block can give. prepare may refuse the block as it
// is now or change it before addresses are taken; it is pure. A block that has
// gone or gives nothing is no error.
func (s *search) from(ctx context.Context, p pool.Pool, e blockEntry, prepare func(block.Block) (block.Block, bool)) error {
	t := s.taking(p, e.Key, s.take(p))
	t.prepare = prepare
	written, err := update(ctx, s.c.backoff, s.c.store.Blocks, e.Key, &e, t.change)
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		s.host.forget(e.Key)
		return nil
	case err != nil:
		return s.record(t, written, fmt.Errorf("block %s: %w", e.Key, err))
	}
	return s.took(t, written, nil)
}

// took records what became of t and what is still needed.
func (s *search) took(t *taking, e blockEntry, err error) error {
	if err := s.record(t, e, err); err != nil {
		return err
	}
	s.need -= len(t.planned)
	if t.bare && t.has(e.Value) {
		s.need, s.ensured[s.want.family] = 0, e.Key
	}
	return nil
}

// record keeps what t took, or what has to be fenced because nobody knows.
func (a *assigner) record(t *taking, e blockEntry, err error) error {
	if err != nil {
		if errors.Is(err, ErrUnknownOutcome) && len(t.tried) > 0 { // else it was of the affinity
			a.unsure = append(a.unsure, t)
		}
		return err
	}
	a.host.saw(e)
	a.keep(t, e)
	return nil
}

// keep enters what t took from e, if anything.
func (a *assigner) keep(t *taking, e blockEntry) {
	if len(t.planned) > 0 {
		t.uid = e.UID
		a.done = append(a.done, t)
		a.got = append(a.got, t.assignments(e)...)
	}
}

// take is what an automatic assignment wants from a block.
func (s *search) take(p pool.Pool) takeFunc {
	u := s.v.unassignableIn(p)
	return func(b block.Block) (block.Block, []block.Allocation, error) {
		if s.ensured != nil {
			return b, nil, nil
		}
		next, got := b.Allocate(s.r.request(s.need, s.c, func(a netip.Addr) bool { return !u.Contains(a) }))
		return next, got, nil
	}
}

func (r AutoAssignRequest) request(n int, c *Client, usable func(netip.Addr) bool) block.Request {
	return block.Request{
		N: n, Handle: r.Handle, Type: r.Type, Owner: r.Owner, Now: c.clock.Now(), Usable: usable,
	}
}

// cap is how many blocks this host may have for the request, and used how many of
// the selected pools it has besides but.
func (s *search) cap(but netip.Prefix) (limit, used int) {
	limit = s.limit()
	held := make(map[netip.Prefix]bool)
	for _, e := range s.host.blocks {
		if _, ok := s.poolOf(e.Key); ok && e.Value.Affinity == s.host.affinity() {
			held[e.Key] = true
		}
	}
	for _, e := range s.host.affinities {
		if _, ok := s.poolOf(e.Key.CIDR); ok {
			held[e.Key.CIDR] = true
		}
	}
	delete(held, but)
	return limit, len(held)
}

func (a *assigner) limit() int {
	limit := cmp.Or(a.v.config.MaxBlocksPerHost, datastore.DefaultMaxBlocksPerHost)
	if a.r.MaxBlocksPerHost > 0 {
		limit = min(limit, a.r.MaxBlocksPerHost)
	}
	return limit
}
