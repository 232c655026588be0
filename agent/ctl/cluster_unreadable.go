// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"errors"
	"fmt"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kubestore"
	"github.com/allod/allod/ipam/pool"
)

// unreadable returns the entry of a pool that is stored and cannot be read, and whether
// there is one. Admission cannot decide about it, nor about any other pool while it is
// there.
func unreadable(ctx context.Context, s datastore.Store, name string) (datastore.Entry[string, pool.Pool], bool) {
	e, err := s.Pools.Get(ctx, name)
	return e, replaceable(e, err)
}

// markUnreadable asks for the deletion of such a pool, with our finalizer on it.
func markUnreadable(ctx context.Context, s datastore.Store, e datastore.Entry[string, pool.Pool]) error {
	e, err := setFinalizer(ctx, s, e, true)
	if err == nil {
		err = s.Pools.Delete(ctx, e)
	}
	if _, held := errors.AsType[*kubestore.HeldError](err); held {
		return nil // it is marked
	}
	return err
}

// setFinalizer writes ours, or takes it away.
func setFinalizer(
	ctx context.Context, s datastore.Store, e datastore.Entry[string, pool.Pool], want bool,
) (datastore.Entry[string, pool.Pool], error) {
	e.Value.Status.Finalizer = want
	next, err := s.PoolStatus(ctx, e)
	if replaceable(next, err) {
		err = nil // it was written, and what came back still cannot be read
	}
	return next, err
}

// removeUnreadable deletes such a pool in the steps of a readable one: it is marked,
// which whoever can read it sees, and goes when no claim and no block names it. What
// lies in its CIDR without a name cannot be told.
func (c *cluster) removeUnreadable(ctx context.Context, e datastore.Entry[string, pool.Pool]) error {
	s, name := c.store.Store(), e.Key
	if err := markUnreadable(ctx, s, e); err != nil {
		return err
	}
	claims, err := s.Affinities.List(ctx, datastore.Query{Pool: name, Strict: true})
	if err != nil {
		return err
	}
	blocks, err := s.Blocks.List(ctx, datastore.Query{Pool: name, Strict: true})
	if err != nil {
		return err
	}
	if len(claims)+len(blocks) > 0 {
		return fmt.Errorf("it cannot be read, is marked as deleted, and %s and %s name it: correct it with kubectl edit, then delete it again",
			count(len(blocks), "block"), count(len(claims), "claim"))
	}
	marked, err := s.Pools.Get(ctx, name)
	switch {
	case errors.Is(err, datastore.ErrNotFound), marked.UID != "" && marked.UID != e.UID:
		return nil
	case !replaceable(marked, err):
		return errors.Join(errors.New("it has been changed meanwhile; delete it again"), err)
	}
	if _, err = setFinalizer(ctx, s, marked, false); err != nil && !errors.Is(err, datastore.ErrNotFound) {
		return err
	}
	holders, err := c.finalizers(ctx, name)
	if err == nil && len(holders) > 0 {
		err = fmt.Errorf("it is marked as deleted and stays until its finalizers are removed: %v", holders)
	}
	return err
}
