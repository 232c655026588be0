// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/allod/allod/agent/config"
	"github.com/allod/allod/ipam/datastore/boltstore"
	"github.com/allod/allod/ipam/datastore/kv"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// store is what the verbs work on.
type store interface {
	// String names the store, for people.
	String() string
	// snapshot reads everything and changes nothing (INV-12).
	snapshot(ctx context.Context, p *progress) (Snapshot, error)
	// apply writes the objects and returns what happened to those that were written,
	// also beside an error.
	apply(ctx context.Context, objects []v1alpha1.Object, p *progress) ([]applied, error)
	// remove deletes objects and returns those that are gone, also beside an error.
	remove(ctx context.Context, refs []ref, o removeOptions, p *progress) ([]ref, error)
}

// removeOptions are the settings of delete.
type removeOptions struct {
	timeout time.Duration // how long to wait for what holds a pool
}

// open returns the store of ds. What is wrong with the store itself is told by its
// first use. What the store has to say beside its answers is logged to log.
func open(ds config.Datastore, log io.Writer) (store, error) {
	if ds.Type == config.Kubernetes {
		return openCluster(ds, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	}
	return bolt{path: ds.Path}, nil
}

// progressOf reports on the standard error of cmd.
func progressOf(cmd *cobra.Command) *progress { return newProgress(cmd.ErrOrStderr()) }

// bolt is the embedded store.
type bolt struct{ path string }

func (b bolt) String() string { return config.Bolt + " " + b.path }

func (b bolt) db() kv.DB { return boltstore.New(b.path, boltstore.Options{}) }

// snapshot reads one transaction: all of it is of one moment.
func (b bolt) snapshot(ctx context.Context, _ *progress) (Snapshot, error) {
	var s Snapshot
	err := b.db().View(ctx, func(tx kv.Tx) error {
		s = decodeSnapshot(tx)
		return ctx.Err()
	})
	s.At, s.Embedded = time.Now(), true
	return s, err
}

// apply creates the file when there is none, and writes all objects in one
// transaction.
func (b bolt) apply(ctx context.Context, objects []v1alpha1.Object, p *progress) ([]applied, error) {
	err := boltstore.Create(ctx, b.path)
	switch {
	case err == nil:
		p.say("created the datastore %s", b.path)
	case !errors.Is(err, boltstore.ErrExists):
		return nil, err
	}
	var done []applied
	var refused error
	err = b.db().Update(ctx, func(tx kv.Tx) error {
		done, refused = applyAll(ctx, tx, objects)
		return refused
	})
	switch {
	case refused != nil:
		return nil, nothingChanged(refused)
	case err != nil:
		return nil, fmt.Errorf("%w (to apply the same manifests again is safe)", err)
	}
	return done, nil
}

// remove deletes all objects in one transaction.
func (b bolt) remove(ctx context.Context, refs []ref, _ removeOptions, _ *progress) ([]ref, error) {
	var refused error
	err := b.db().Update(ctx, func(tx kv.Tx) error {
		refused = deleteAll(ctx, kv.New(inTx{tx}, kv.Options{}), refs)
		return refused
	})
	switch {
	case refused != nil:
		return nil, nothingChanged(refused)
	case err != nil:
		return nil, err
	}
	return refs, nil
}

// announce says which store is about to be changed.
func announce(w io.Writer, s store) { fmt.Fprintf(w, "datastore: %s\n", s) }
