// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"context"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kv"
)

// OpenStore returns the store in the file at path. The file is verified before
// OpenStore returns; it is not created (see [Create]). The errors are those of
// this package.
func OpenStore(ctx context.Context, path string, o Options, engine kv.Options) (datastore.Store, error) {
	db := New(path, o)
	if err := db.View(ctx, func(kv.Tx) error { return nil }); err != nil {
		return datastore.Store{}, err
	}
	return kv.New(db, engine), nil
}
