// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"errors"

	"github.com/allod/allod/agent/config"
	"github.com/allod/allod/ipam/datastore/boltstore"
	"github.com/allod/allod/ipam/datastore/kv"
)

// openDB returns the database of ds. What is wrong with it is told by the first
// transaction.
func openDB(ds config.Datastore) kv.DB {
	return boltstore.New(ds.Path, boltstore.Options{})
}

// ensureDB creates the database of ds when there is none, and opens it.
func ensureDB(ctx context.Context, ds config.Datastore) (kv.DB, error) {
	if err := boltstore.Create(ctx, ds.Path); err != nil && !errors.Is(err, boltstore.ErrExists) {
		return nil, err
	}
	return openDB(ds), nil
}
