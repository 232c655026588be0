// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/allod/allod/agent/config"
	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

func deleteCommand() *cobra.Command {
	var ds config.Datastore
	var o removeOptions
	cmd := &cobra.Command{
		Use:   "delete KIND/NAME...",
		Short: "Delete pools, reservations or the configuration",
		Long: `Delete objects by the names that apply prints: ippool/NAME, ipreservation/NAME or
ipamconfiguration/default (whose defaults then hold). The kind may also be written
as kubectl takes it: ippools or ipp, ipreservations or ipr, ipamconfigurations or
ipamconfig.

A pool goes with its blocks, and only when no address of it is allocated or
cooling. To retire one that is in use, apply it with "disabled: true", wait until
its pods are gone, then delete it. To change a pool's cidr or blockSize, delete it
and apply the new one.

With bolt all objects are deleted in one transaction: when any of them is refused,
nothing has changed. On Kubernetes all are judged before the first is deleted, then
one goes after the other. There a pool is first marked as deleted, which stops it
from handing out, and goes when its claims and blocks are gone; delete waits for
that, and says what holds the pool when the time is up. To delete a pool that is
marked already completes what was cut short.`,
		Example: `  allod-agent delete ippool/default-v4
  allod-agent delete ipreservation/routers ipamconfiguration/default`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return runDelete(cmd, ds, o, args) }
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "kubernetes: how long to wait for what holds a pool")
	withDatastore(cmd, &ds)
	return cmd
}

func runDelete(cmd *cobra.Command, ds config.Datastore, o removeOptions, args []string) error {
	var refs []ref
	for _, arg := range args {
		r, err := parseRef(arg)
		switch {
		case err != nil:
			return UsageError{Err: err}
		case !slices.Contains(refs, r):
			refs = append(refs, r)
		}
	}
	st, err := open(ds, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	announce(cmd.ErrOrStderr(), st)
	gone, err := st.remove(cmd.Context(), refs, o, progressOf(cmd))
	for _, r := range gone {
		if _, werr := fmt.Fprintf(cmd.OutOrStdout(), "%s deleted\n", r); werr != nil {
			return errors.Join(fmt.Errorf("write output (what was deleted is gone): %w", werr), err)
		}
	}
	return err
}

func deleteAll(ctx context.Context, s datastore.Store, refs []ref) error {
	var errs []error
	for _, r := range refs {
		var err error
		switch r.kind {
		case kindPool:
			err = deletePool(ctx, s, r.name)
		case kindReservation:
			err = deleteKey(ctx, s.Reservations, r.name)
		default:
			err = deleteKey(ctx, s.Config, r.name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r, err))
		}
	}
	return errors.Join(errs...)
}

func deleteKey[V any](ctx context.Context, t datastore.Table[string, V], name string) error {
	e, err := t.Get(ctx, name)
	if err != nil && !replaceable(e, err) {
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
	cfg, err := ipam.New(s, ipam.Options{}).Config(ctx)
	if err != nil {
		return err
	}
	blocks, err := s.Blocks.List(ctx, datastore.Query{Pool: name})
	if err != nil {
		return err
	}
	var values []block.Block
	for _, e := range blocks {
		values = append(values, e.Value)
	}
	if err := poolUnused(values, time.Now(), cfg.IPCooldown); err != nil {
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
	if blocks, err = s.Blocks.List(ctx, datastore.Query{Pool: name}); err != nil {
		return err
	}
	for _, e := range blocks { // those that had no owner
		if err := s.Blocks.Delete(ctx, e); err != nil {
			return err
		}
	}
	return deleteKey(ctx, s.Pools, name)
}

// poolUnused says how many addresses of a pool, whose blocks these are, stand in the
// way of its deletion.
func poolUnused(blocks []block.Block, now time.Time, cooldown time.Duration) error {
	allocated, cooling, err := inUseOf(blocks, now, cooldown)
	if err == nil && allocated+cooling > 0 {
		return fmt.Errorf("%d of its addresses %s allocated and %d cooling (see \"allod-agent show --addresses\"): "+
			"apply it with disabled: true, wait until its pods are gone, then delete it", allocated, are(allocated), cooling)
	}
	return err
}

// inUseOf counts the addresses of blocks that are not free.
func inUseOf(blocks []block.Block, now time.Time, cooldown time.Duration) (allocated, cooling int, err error) {
	for _, b := range blocks {
		b, _ = b.Collect(now, cooldown)
		allocated, cooling = allocated+b.Counts().Allocated, cooling+b.Counts().Cooling
		if !b.Empty() && b.Counts().Allocated+b.Counts().Cooling == 0 {
			return 0, 0, fmt.Errorf("block %s has lines that cannot be read: see \"allod-agent check\"", b.CIDR)
		}
	}
	return allocated, cooling, nil
}
