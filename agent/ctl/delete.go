// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/allod/allod/agent/config"
	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kv"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

func deleteCommand() *cobra.Command {
	var ds config.Datastore
	cmd := &cobra.Command{
		Use:   "delete KIND/NAME...",
		Short: "Delete pools, reservations or the configuration",
		Long: `Delete objects by the names that apply prints: ippool/NAME, ipreservation/NAME or
ipamconfiguration/default (whose defaults then hold).

A pool goes with its blocks, and only when no address of it is allocated or
cooling. To retire one that is in use, apply it with "disabled: true", wait until
its pods are gone, then delete it. To change a pool's cidr or blockSize, delete it
and apply the new one.

All objects are deleted in one transaction: when any of them is refused, nothing
has changed.`,
		Example: `  allod-agent delete ippool/default-v4
  allod-agent delete ipreservation/routers ipamconfiguration/default`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return runDelete(cmd, ds, args) }
	withDatastore(cmd, &ds)
	return cmd
}

func runDelete(cmd *cobra.Command, ds config.Datastore, refs []string) error {
	for _, ref := range refs {
		if _, err := deleter(ref); err != nil {
			return UsageError{Err: err}
		}
	}
	ctx := cmd.Context()
	var refused error
	err := openDB(ds).Update(ctx, func(tx kv.Tx) error {
		refused = deleteAll(ctx, kv.New(inTx{tx}, kv.Options{}), refs)
		return refused
	})
	switch {
	case refused != nil:
		return nothingChanged(refused)
	case err != nil:
		return err
	}
	for _, ref := range refs {
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s deleted\n", ref); err != nil {
			return fmt.Errorf("write output (everything was deleted): %w", err)
		}
	}
	return nil
}

func deleteAll(ctx context.Context, s datastore.Store, refs []string) error {
	var errs []error
	for _, ref := range refs {
		del, err := deleter(ref)
		if err == nil {
			err = del(ctx, s)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ref, err))
		}
	}
	return errors.Join(errs...)
}

// deleter returns what deletes the object that ref names.
func deleter(ref string) (func(context.Context, datastore.Store) error, error) {
	kind, name, ok := strings.Cut(ref, "/")
	if !ok || name == "" {
		return nil, fmt.Errorf("%q: want KIND/NAME, for example ippool/default-v4", ref)
	}
	switch kind {
	case strings.ToLower(v1alpha1.KindPool):
		return func(ctx context.Context, s datastore.Store) error { return deletePool(ctx, s, name) }, nil
	case strings.ToLower(v1alpha1.KindReservation):
		return func(ctx context.Context, s datastore.Store) error { return deleteKey(ctx, s.Reservations, name) }, nil
	case strings.ToLower(v1alpha1.KindConfiguration):
		return func(ctx context.Context, s datastore.Store) error { return deleteKey(ctx, s.Config, name) }, nil
	}
	return nil, fmt.Errorf("%q: kind %q cannot be deleted; ippool, ipreservation and ipamconfiguration can", ref, kind)
}

func deleteKey[V any](ctx context.Context, t datastore.Table[string, V], name string) error {
	e, err := t.Get(ctx, name)
	if err != nil {
		return err
	}
	return t.Delete(ctx, e)
}

// deletePool deletes a pool that nothing uses, with its blocks and the claims on
// them.
func deletePool(ctx context.Context, s datastore.Store, name string) error {
	if _, err := s.Pools.Get(ctx, name); err != nil {
		return err
	}
	if err := poolUnused(ctx, s, name); err != nil {
		return err
	}
	c := ipam.New(s, ipam.Options{SoleHost: true})
	claims, err := s.Affinities.List(ctx, datastore.Query{Pool: name})
	if err != nil {
		return err
	}
	for _, e := range claims {
		if err := c.ReleaseAffinity(ctx, e.Key, true); err != nil {
			return err
		}
	}
	blocks, err := s.Blocks.List(ctx, datastore.Query{Pool: name})
	if err != nil {
		return err
	}
	for _, e := range blocks { // those that had no owner
		if err := s.Blocks.Delete(ctx, e); err != nil {
			return err
		}
	}
	return deleteKey(ctx, s.Pools, name)
}

// poolUnused says how many addresses of a pool stand in the way of its deletion.
func poolUnused(ctx context.Context, s datastore.Store, name string) error {
	cfg, err := ipam.New(s, ipam.Options{}).Config(ctx)
	if err != nil {
		return err
	}
	blocks, err := s.Blocks.List(ctx, datastore.Query{Pool: name})
	if err != nil {
		return err
	}
	allocated, cooling := 0, 0
	for _, e := range blocks {
		b, _ := e.Value.Collect(time.Now(), cfg.IPCooldown)
		allocated, cooling = allocated+b.Counts().Allocated, cooling+b.Counts().Cooling
		if !b.Empty() && b.Counts().Allocated+b.Counts().Cooling == 0 {
			return fmt.Errorf("block %s has lines that cannot be read: see \"allod-agent check\"", e.Key)
		}
	}
	if allocated+cooling > 0 {
		return fmt.Errorf("%d of its addresses are allocated and %d cooling (see \"allod-agent show --addresses\"): "+
			"apply it with disabled: true, wait until its pods are gone, then delete it", allocated, cooling)
	}
	return nil
}
