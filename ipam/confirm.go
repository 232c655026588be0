// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/allod/allod/ipam/datastore"
)

// confirm makes the host's claim on b count (INV-6). When the affinity is not what
// was seen, the claim may have been released meanwhile, which begins at the block:
// it is read again, and if it names the host no longer, or is not the block that was
// claimed, the affinity goes: errStaleAffinity.
func (a *assigner) confirm(ctx context.Context, b blockEntry, poolName string) error {
	if i := a.host.claim(b.Key); i >= 0 {
		seen := a.host.affinities[i].Value
		if seen.State == datastore.Confirmed && seen.BlockSeq >= b.Value.Seq {
			return nil
		}
	}
	e, surprised, err := a.confirmSeen(ctx, b, poolName)
	if err != nil {
		return fmt.Errorf("confirm affinity of %s: %w", b.Key, err)
	}
	if !surprised {
		return nil
	}
	a.moved = true
	now, err := a.c.store.Blocks.Get(ctx, b.Key)
	switch {
	case err == nil && now.Value.Affinity == a.host.affinity() && now.Value.Seq >= e.Value.BlockSeq:
		return nil // else it is another block: deleted, and what was lost before has landed (INV-15)
	case err != nil && !errors.Is(err, datastore.ErrNotFound):
		return fmt.Errorf("read block %s: %w", b.Key, err)
	}
	return a.drop(ctx, b.Key, errStaleAffinity)
}

// confirmSeen confirms the host's affinity for b and reports whether it was not what
// was seen of it. One that is not there begins as pending: a create that is lost can
// land when the affinity is gone again, and must count for nothing then (INV-7).
func (a *assigner) confirmSeen(ctx context.Context, b blockEntry, poolName string) (e affinityEntry, surprised bool, err error) {
	confirmed := datastore.Affinity{State: datastore.Confirmed, Pool: poolName, BlockSeq: b.Value.Seq}
	for range maxRounds {
		if a.host.claim(b.Key) < 0 {
			surprised = true
			if err := a.pend(ctx, poolName, b.Key); err != nil {
				return e, surprised, err
			}
		}
		seen := a.host.affinities[a.host.claim(b.Key)]
		e, err = update(ctx, a.c.backoff, a.c.store.Affinities, seen.Key, &seen,
			func(e affinityEntry) (datastore.Affinity, bool, error) {
				surprised = surprised || e.Rev != seen.Rev
				newer := e.Value.State == datastore.Confirmed && e.Value.BlockSeq >= b.Value.Seq
				return confirmed, !newer, nil
			})
		switch {
		case err == nil:
			a.host.sawClaim(e)
			return e, surprised, nil
		case !errors.Is(err, datastore.ErrNotFound):
			return e, surprised, err
		}
		a.host.dropClaim(b.Key)
	}
	a.moved = true
	return e, surprised, fmt.Errorf("it is created and deleted at the same time: %w", ErrContention)
}

// withdraw removes the host's pending affinity for a block it did not get, and
// returns why it did not. A confirmed one is another request's, or an earlier one's.
func (a *assigner) withdraw(ctx context.Context, cidr netip.Prefix, why error) error {
	if i := a.host.claim(cidr); i >= 0 && a.host.affinities[i].Value.State == datastore.Confirmed {
		a.moved = true
		return why
	}
	return a.drop(ctx, cidr, why)
}

// disown removes the host's affinity for b, which is not the host's, unless the
// claim is newer than what was seen of b.
func (a *assigner) disown(ctx context.Context, b blockEntry, why error) error {
	if i := a.host.claim(b.Key); i >= 0 && a.host.affinities[i].Value.BlockSeq > b.Value.Seq {
		a.moved = true
		return why
	}
	return a.drop(ctx, b.Key, why)
}

func (a *assigner) drop(ctx context.Context, cidr netip.Prefix, why error) error {
	i := a.host.claim(cidr)
	if i < 0 {
		a.moved = true
		return why
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.c.cleanup) // case R8
	defer cancel()
	err := a.c.store.Affinities.Delete(ctx, a.host.affinities[i])
	a.host.dropClaim(cidr)
	a.moved = a.moved || err != nil
	if err != nil && !definite(err) {
		return errors.Join(why, fmt.Errorf("withdraw affinity of %s: %w", cidr, err))
	}
	return why
}

// repair puts right what a crash between two writes left of this host: a block
// with its affinity is confirmed, an affinity whose block does not name it goes: the
// block became another owner's, or its affinity was released before the claim was
// confirmed. It writes nothing when nothing is wrong.
func (a *assigner) repair(ctx context.Context) error {
	for _, e := range a.host.blocks {
		i := a.host.claim(e.Key)
		switch ours := e.Value.Affinity == a.host.affinity(); {
		case ours && (i < 0 || a.host.affinities[i].Value.State != datastore.Confirmed):
			if ok, err := a.fits(ctx, e); err != nil || !ok {
				if err != nil {
					return err
				}
				continue
			}
			if err := a.confirm(ctx, e, e.Value.Pool); err != nil && !errors.Is(err, errStaleAffinity) {
				return err
			}
		case !ours && i >= 0:
			if err := a.disown(ctx, e, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// fits reports whether a block that names the host, and whose claim was not completed,
// may be the host's: it may have been created when its pool was gone and another, with
// blocks of another size, had its place (INV-1). While the block exists none other can
// get there. One that does not fit is given up when nothing is left in it.
func (a *assigner) fits(ctx context.Context, e blockEntry) (bool, error) {
	if !a.v.live {
		if err := a.refresh(ctx); err != nil {
			return false, err
		}
	}
	p, in := a.v.poolOf(e.Key)
	if !in || p.Cuts(e.Key) {
		return true, nil
	}
	err := a.c.ReleaseAffinity(ctx, a.host.key(e.Key), true)
	switch {
	case err == nil:
		a.host.forget(e.Key)
		a.host.dropClaim(e.Key)
	case !errors.Is(err, ErrBlockNotEmpty):
		a.c.log.WarnContext(ctx, "a block that does not fit its IP pool is left", "block", e.Key, "pool", p.Name, "error", err)
	}
	return false, nil
}
