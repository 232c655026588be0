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

// ensureDB creates the database of ds when there is none, and opens it. created
// says that there was none.
func ensureDB(ctx context.Context, ds config.Datastore) (db kv.DB, created bool, err error) {
	err = boltstore.Create(ctx, ds.Path)
	if err != nil && !errors.Is(err, boltstore.ErrExists) {
		return nil, false, err
	}
	return openDB(ds), err == nil, nil
}
