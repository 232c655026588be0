// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

type poolEntry = datastore.Entry[string, pool.Pool]

// maxJudgements is how often ReconcilePools looks again because pools have changed since
// it looked.
const maxJudgements = 16

// statusTable is the pools of a store as admission writes them.
type statusTable struct {
	datastore.Table[string, pool.Pool]
	store func(context.Context, poolEntry) (poolEntry, error)
}

// Update implements datastore.Table.
func (t statusTable) Update(ctx context.Context, e poolEntry) (poolEntry, error) {
	return t.store(ctx, e)
}

// ReconcilePools decides the admission of every pool (pool.Admit) and stores what has
// changed, for stores that do not do it with each write. A pool being deleted loses
// its finalizer, and so goes, once no block and no claim, pending ones too, is of it.
//
// Everything is read consistently, pools first: a claim is written before its pool is
// read live, so one that these lists miss finds the pool deleting or not admitted and
// gives up. A pool's status is only written at the revision that was judged; after the
// writes the pools are read again, for what was created meanwhile. All pools are tried;
// the error joins what failed (case R14). It returns the pools as they are left; several
// callers at once do no harm.
func (c *Client) ReconcilePools(ctx context.Context) ([]pool.Pool, error) {
	for round := range maxJudgements {
		r, err := c.readAdmission(ctx)
		if err != nil {
			return nil, err
		}
		if c.store.PoolStatus == nil {
			return r.pools(), nil
		}
		wrote, again, err := c.storeAdmission(ctx, r)
		if err != nil {
			return r.pools(), err
		}
		if !wrote && !again {
			return r.pools(), nil
		}
		if !again {
			now, err := c.store.Pools.List(ctx, datastore.Query{})
			if err != nil {
				return r.pools(), fmt.Errorf("list IP pools: %w", err)
			}
			if r.become(now) {
				return r.pools(), nil
			}
		}
		if err := c.backoff.pause(ctx, round); err != nil {
			return r.pools(), err
		}
	}
	return nil, fmt.Errorf("admission of IP pools: they changed %d times while it was decided: %w", maxJudgements, ErrContention)
}

// admission is what the decision about pools depends on.
type admission struct {
	entries []poolEntry
	cidrs   []netip.Prefix // of blocks and claims
	used    map[string]bool
}

func (r *admission) pools() []pool.Pool {
	out := make([]pool.Pool, len(r.entries))
	for i, e := range r.entries {
		out[i] = e.Value
	}
	return out
}

// become takes the pools as they are after the writes. It reports whether they are
// those that were judged, each with the status that was decided: then the decision
// stands, and claims made since go by it.
func (r *admission) become(now []poolEntry) (stands bool) {
	decided := r.decide()
	stands = len(now) == len(r.entries)
	for i := range now {
		stands = stands && now[i].Key == r.entries[i].Key && sameJudged(now[i], r.entries[i]) && now[i].Value.Status == decided[i]
	}
	r.entries = now
	return stands
}

// use notes a block or a claim; one that names no pool that is there is of those around
// it.
func (r *admission) use(name string, cidr netip.Prefix) {
	r.cidrs = append(r.cidrs, cidr)
	if slices.ContainsFunc(r.entries, func(e poolEntry) bool { return e.Key == name }) {
		r.used[name] = true
		return
	}
	for _, e := range r.entries {
		if e.Value.Spec.CIDR.Overlaps(cidr) {
			r.used[e.Key] = true
		}
	}
}

// readAdmission lists pools, claims and blocks, in this order. One that cannot be read may
// be what stands in the way: it fails the list.
func (c *Client) readAdmission(ctx context.Context) (*admission, error) {
	r := &admission{used: map[string]bool{}}
	var err error
	if r.entries, err = c.store.Pools.List(ctx, datastore.Query{Strict: true}); err != nil {
		return nil, fmt.Errorf("list IP pools: %w", err)
	}
	claims, err := c.store.Affinities.List(ctx, datastore.Query{Strict: true})
	if err != nil {
		return nil, fmt.Errorf("list affinities: %w", err)
	}
	for _, e := range claims {
		r.use(e.Value.Pool, e.Key.CIDR)
	}
	blocks, err := c.store.Blocks.List(ctx, datastore.Query{Strict: true})
	if err != nil {
		return nil, fmt.Errorf("list blocks: %w", err)
	}
	for _, e := range blocks {
		r.use(e.Value.Pool, e.Key)
	}
	slices.SortFunc(r.cidrs, netip.Prefix.Compare)
	r.cidrs = slices.Compact(r.cidrs)
	return r, nil
}

// decide returns the status that each pool of r should have.
func (r *admission) decide() []pool.Status {
	out := make([]pool.Status, len(r.entries))
	for i, p := range pool.Admit(r.pools(), r.cidrs) {
		out[i] = p.Status
		if p.Deleting && !r.used[p.Name] {
			out[i].Finalizer = false
		}
	}
	return out
}

// storeAdmission writes what is not as decided, each pool as it was judged or not at
// all. again: a pool is no longer what was judged, so the decision is void.
//
// Of two callers who would give overlapping pools the same range, one sees the other's
// pool. Before it grants its own it writes that one, changed or not, at the revision that
// it judged: if the other's grant was first, that fails; if it comes later, it finds
// another revision and fails. So what refuses goes first, and no grant is written when
// that failed.
func (c *Client) storeAdmission(ctx context.Context, r *admission) (wrote, again bool, err error) {
	refuse, grant := r.plan()
	failed := map[string]bool{}
	var errs []error
	for _, w := range slices.Concat(refuse, grant) {
		seen := r.entries[w.of]
		if ctx.Err() != nil {
			return wrote, false, errors.Join(append(errs, context.Cause(ctx))...)
		}
		if slices.ContainsFunc(w.after, func(name string) bool { return failed[name] }) {
			continue // the error says why
		}
		err := c.storeStatus(ctx, seen, w.want)
		switch {
		case err == nil:
			wrote = true
		case errors.Is(err, datastore.ErrNotFound), errors.Is(err, ErrStale):
			return wrote, true, errors.Join(errs...)
		default:
			failed[seen.Key] = true
			errs = append(errs, fmt.Errorf("admission of IP pool %s (%s): %w", seen.Key, cmp.Or(w.want.Reason, "none"), err))
		}
	}
	return wrote, false, errors.Join(errs...)
}

// statusWrite is the status of one pool to store, if the pools in after could be.
type statusWrite struct {
	of    int // of the entries
	want  pool.Status
	after []string
}

// plan returns the writes of a decision: first those that take away or refuse, and
// those of what a pool that is granted its range overlaps, which say that it was seen.
func (r *admission) plan() (refuse, grant []statusWrite) {
	decided := r.decide()
	fence := map[int]bool{}
	for i, want := range decided {
		seen := r.entries[i].Value
		if !want.Allocatable || want == seen.Status {
			continue
		}
		w := statusWrite{of: i, want: want}
		for j, other := range r.entries {
			if i != j && seen.Spec.CIDR.Overlaps(other.Value.Spec.CIDR) {
				w.after = append(w.after, other.Key)
				fence[j] = true
			}
		}
		grant = append(grant, w)
	}
	for i, want := range decided {
		if !want.Allocatable && (want != r.entries[i].Value.Status || fence[i]) {
			refuse = append(refuse, statusWrite{of: i, want: want})
		}
	}
	return refuse, grant
}

// storeStatus stores the status of a pool that is still at the revision that was judged,
// or has that status already. ErrStale: it is another by now.
func (c *Client) storeStatus(ctx context.Context, seen poolEntry, want pool.Status) error {
	table := statusTable{c.store.Pools, c.store.PoolStatus}
	_, err := update(ctx, c.backoff, table, seen.Key, &seen, func(e poolEntry) (pool.Pool, bool, error) {
		switch {
		case e.UID == seen.UID && e.Rev == seen.Rev:
			next := e.Value
			next.Status = want
			return next, true, nil
		case sameJudged(e, seen) && e.Value.Status == want && want != seen.Value.Status:
			return e.Value, false, nil // a reply was lost, or somebody else decided the same
		}
		return e.Value, false, ErrStale
	})
	return err
}

// sameJudged reports whether two readings of a pool are alike in what admission goes by,
// apart from what was decided before.
func sameJudged(a, b poolEntry) bool {
	return a.UID == b.UID && a.Value.Generation == b.Value.Generation && a.Value.Deleting == b.Value.Deleting
}

// RelabelBlocks computes the labels of the blocks that share an address with one of
// the CIDRs anew, for stores that do not do it when a reservation, a gateway or a pool
// changes: what may be handed out of such a block is another now (INV-13). Only what
// differs is written. A block that is labelled with a pool that is gone, or that does not
// contain it, becomes one of the pool around it. A block of a newer format is left to
// the version that wrote it. All are tried; the error joins what failed (case R14). It
// returns the blocks it wrote.
func (c *Client) RelabelBlocks(ctx context.Context, within []netip.Prefix) ([]netip.Prefix, error) {
	if len(within) == 0 {
		return nil, nil
	}
	v, err := c.viewOf(ctx, datastore.Query{})
	if err != nil {
		return nil, err
	}
	concerned := func(cidr netip.Prefix) bool { return slices.ContainsFunc(within, cidr.Overlaps) }
	if !slices.ContainsFunc(v.pools, func(p pool.Pool) bool { return concerned(p.Spec.CIDR) }) {
		return nil, nil
	}
	blocks, err := c.store.Blocks.List(ctx, datastore.Query{}) // a label may be of a pool that is gone
	if err != nil {
		return nil, fmt.Errorf("list blocks: %w", err)
	}
	var wrote []netip.Prefix
	var errs []error
	for _, e := range blocks {
		if !concerned(e.Key) {
			continue
		}
		if ctx.Err() != nil {
			return wrote, errors.Join(append(errs, context.Cause(ctx))...)
		}
		done, err := c.relabelBlock(ctx, v, e)
		if err != nil {
			errs = append(errs, fmt.Errorf("label block %s: %w", e.Key, err))
		} else if done {
			wrote = append(wrote, e.Key)
		}
	}
	return wrote, errors.Join(errs...)
}

// relabelBlock reports whether the labels of a block had to be written.
func (c *Client) relabelBlock(ctx context.Context, v *view, seen blockEntry) (wrote bool, err error) {
	_, err = update(ctx, c.backoff, c.store.Blocks, seen.Key, &seen, func(e blockEntry) (block.Block, bool, error) {
		p, in := v.poolOfBlock(e.Value)
		if wrote = false; !in || e.Value.Writable() != nil {
			return e.Value, false, nil
		}
		next := v.label(e.Value, p)
		wrote = next.Pool != e.Value.Pool || next.Space != e.Value.Space
		return next, wrote, nil
	})
	if errors.Is(err, datastore.ErrNotFound) {
		return false, nil
	}
	return wrote && err == nil, err
}
