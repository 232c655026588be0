// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kubestore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// askAgain is how often delete looks whether a pool can go.
const askAgain = 500 * time.Millisecond

// remove implements store. First everything is judged and nothing written, then one
// object goes after the other.
func (c *cluster) remove(ctx context.Context, refs []ref, o removeOptions, p *progress) ([]ref, error) {
	before, err := c.snapshot(ctx, p)
	p.done()
	if err != nil {
		return nil, nothingChanged(err)
	}
	var errs []error
	for _, r := range refs {
		if err := errors.Join(before.removable(r), c.rehearseDelete(ctx, before, r)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r, c.failed(err)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nothingChanged(err)
	}
	var gone []ref
	for i, r := range refs {
		if err := c.removeOne(ctx, before, r, o, p); err != nil {
			if rest := refs[i+1:]; len(rest) > 0 {
				err = fmt.Errorf("%w; not tried: %s", err, join(rest))
			}
			return gone, fmt.Errorf("%s: %w", r, c.failed(err))
		}
		gone = append(gone, r)
	}
	return gone, nil
}

func join(refs []ref) string {
	names := make([]string, len(refs))
	for i, r := range refs {
		names[i] = r.String()
	}
	return strings.Join(names, ", ")
}

// removable says what stands in the way of a deletion.
func (s Snapshot) removable(r ref) error {
	if r.kind != kindPool {
		return nil
	}
	p, ok := s.pool(r.name)
	if !ok {
		return nil // the API server says so
	}
	for _, u := range s.Unreadable {
		if strings.HasPrefix(u.Object, "block ") || strings.HasPrefix(u.Object, "affinity ") {
			return fmt.Errorf("%s cannot be read, and may be of this pool: %w (see \"allod-agent check\")", u.Object, u.Err)
		}
	}
	cfg := datastore.ConfigDefaults()
	if s.Config != nil {
		cfg = *s.Config
	}
	var blocks []block.Block
	for _, b := range s.Blocks {
		if ofPoolOrInside(b.Pool, b.CIDR, p) {
			blocks = append(blocks, b.Block)
		}
	}
	if !p.Deleting {
		return poolUnused(blocks, s.At, cfg.IPCooldown)
	}
	allocated, cooling, err := inUseOf(blocks, s.At, cfg.IPCooldown)
	if err == nil && allocated+cooling > 0 {
		return fmt.Errorf("it is marked as deleted and hands out nothing, but %d of its addresses %s allocated and %d cooling "+
			"(see \"allod-agent show --addresses\"): wait until its pods are gone, then delete it again", allocated, are(allocated), cooling)
	}
	return err
}

// ofPoolOrInside reports whether a block or claim is of p: it names p, or no pool and
// lies in p.
func ofPoolOrInside(name string, cidr netip.Prefix, p pool.Pool) bool {
	return name == p.Name || name == "" && p.Spec.CIDR.Overlaps(cidr)
}

// rehearseDelete has the API server judge the deletion. That of an object which is
// marked already is asked no more.
func (c *cluster) rehearseDelete(ctx context.Context, before Snapshot, r ref) error {
	s := c.dry.Store()
	switch r.kind {
	case kindPool:
		if e, ok := unreadable(ctx, s, r.name); ok {
			return markUnreadable(ctx, s, e)
		}
		p, _ := before.pool(r.name)
		_, err := c.markDeleted(ctx, s, r.name, p.UID)
		return err
	case kindReservation:
		return repeated(func() error { return deleteKey(ctx, s.Reservations, r.name) })
	}
	return repeated(func() error { return deleteKey(ctx, s.Config, r.name) })
}

// repeated deletes, again when another writer was first.
func repeated(del func() error) (err error) {
	for range maxTries {
		if err = del(); !errors.Is(err, datastore.ErrConflict) {
			break
		}
	}
	return err
}

func (c *cluster) removeOne(ctx context.Context, before Snapshot, r ref, o removeOptions, p *progress) error {
	s := c.store.Store()
	switch r.kind {
	case kindPool:
		if e, ok := unreadable(ctx, s, r.name); ok {
			return c.removeUnreadable(ctx, e)
		}
		judged, _ := before.pool(r.name)
		return c.removePool(ctx, r.name, judged.UID, o.timeout, p)
	case kindReservation:
		if err := repeated(func() error { return deleteKey(ctx, s.Reservations, r.name) }); err != nil {
			return err
		}
		var cidrs []netip.Prefix
		for _, old := range before.Reservations {
			if old.Name == r.name {
				cidrs = old.CIDRs
			}
		}
		if _, err := c.client.RelabelBlocks(ctx, cidrs); err != nil {
			return fmt.Errorf("it is deleted, but not all blocks are labelled anew: %w; to apply the pools around it does that", err)
		}
		return nil
	}
	return repeated(func() error { return deleteKey(ctx, s.Config, r.name) })
}

// markDeleted asks for the deletion of a pool unless that is done, and returns its UID.
// A pool that lost its finalizer, or never had one, could vanish with its blocks still
// there: it gets the finalizer first. judged is the UID of the pool that was found to be
// unused, "" if there was none: another one stays.
func (c *cluster) markDeleted(ctx context.Context, s datastore.Store, name, judged string) (uid string, err error) {
	for try := 1; ; try++ {
		e, err := s.Pools.Get(ctx, name)
		if err != nil {
			return "", err
		}
		if e.UID != judged {
			return "", errors.New("another pool of this name has been created meanwhile; it stays: delete it again if it is meant")
		}
		if e.Value.Deleting {
			return e.UID, nil
		}
		uid := e.UID
		if !e.Value.Status.Finalizer {
			e.Value.Status.Finalizer = true
			e, err = s.PoolStatus(ctx, e)
		}
		if err == nil {
			err = s.Pools.Delete(ctx, e)
		}
		if errors.Is(err, datastore.ErrConflict) && try < maxTries {
			continue
		}
		if _, held := errors.AsType[*kubestore.HeldError](err); held {
			return uid, nil // it is marked, and goes when they let it
		}
		return uid, err
	}
}

// removePool marks a pool as deleted, so that nobody claims a block of it any more,
// then gives up its claims and deletes its blocks, and waits until it is gone. All of
// that is by its name: before each step it is looked at whether the name is still that
// of the pool that was marked.
func (c *cluster) removePool(ctx context.Context, name, judged string, timeout time.Duration, p *progress) error {
	uid, err := c.markDeleted(ctx, c.store.Store(), name, judged)
	if err != nil {
		return err
	}
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for said := ""; ; {
		now, err := c.marked(ctx, name, uid)
		if now != nil {
			if err = c.client.ReleasePoolAffinities(ctx, name); err == nil || errors.Is(err, ipam.ErrNoPool) {
				_, err = c.client.ReconcilePools(ctx)
			}
		}
		if err != nil {
			return fmt.Errorf("it is marked as deleted, but not gone: %w; delete it again to complete that", err)
		}
		if now, err = c.marked(ctx, name, uid); now == nil {
			return err
		}
		held, err := c.held(ctx, *now)
		if err != nil {
			return err
		}
		if held != said {
			p.say("ippool/%s is marked as deleted; waiting: %s", name, held)
			said = held
		}
		select {
		case <-again.C:
		case <-deadline.C:
			return fmt.Errorf("it is marked as deleted, hands out nothing and is still there after %v: %s; delete it again to complete that", timeout, held)
		case <-ctx.Done():
			return fmt.Errorf("it is marked as deleted and not gone: %w; delete it again to complete that", context.Cause(ctx))
		}
	}
}

// marked returns the pool of that name if it is the one that was marked as deleted, nil
// if that one is gone: what has its name now is another's.
func (c *cluster) marked(ctx context.Context, name, uid string) (*pool.Pool, error) {
	e, err := c.store.Store().Pools.Get(ctx, name)
	switch {
	case errors.Is(err, datastore.ErrNotFound), err == nil && (e.UID != uid || !e.Value.Deleting):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &e.Value, nil
}

// held says what keeps a deleted pool.
func (c *cluster) held(ctx context.Context, p pool.Pool) (string, error) {
	s := c.store.Store()
	blocks, err := s.Blocks.List(ctx, datastore.Query{Strict: true})
	if err != nil {
		return "", err
	}
	claims, err := s.Affinities.List(ctx, datastore.Query{Strict: true})
	if err != nil {
		return "", err
	}
	blocks = slices.DeleteFunc(blocks, func(e datastore.Entry[netip.Prefix, block.Block]) bool {
		return !ofPoolOrInside(e.Value.Pool, e.Key, p)
	})
	claims = slices.DeleteFunc(claims, func(e datastore.Entry[datastore.AffinityKey, datastore.Affinity]) bool {
		return !ofPoolOrInside(e.Value.Pool, e.Key.CIDR, p)
	})
	allocated, cooling := 0, 0
	for _, e := range blocks {
		allocated, cooling = allocated+e.Value.Counts().Allocated, cooling+e.Value.Counts().Cooling
	}
	if len(blocks)+len(claims) > 0 {
		return fmt.Sprintf("%s and %s are of it, %s %s allocated and %d cooling", count(len(blocks), "block"),
			count(len(claims), "claim"), count2(allocated, "address", "addresses"), are(allocated), cooling), nil
	}
	holders, err := c.finalizers(ctx, p.Name)
	return "finalizers that others have to remove: " + strings.Join(holders, ", "), err
}

// finalizers returns those of a pool that are not ours.
func (c *cluster) finalizers(ctx context.Context, name string) ([]string, error) {
	pools, err := c.store.Raw(ctx, v1alpha1.KindPool, nil)
	if err != nil {
		return nil, err
	}
	for _, raw := range pools {
		var o struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		}
		if err := json.Unmarshal(raw, &o); err == nil && o.Metadata.Name == name {
			return slices.DeleteFunc(o.Metadata.Finalizers, func(f string) bool { return f == v1alpha1.PoolFinalizer }), nil
		}
	}
	return nil, nil // gone by now
}
