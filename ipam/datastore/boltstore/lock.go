// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"context"
	"errors"
	"syscall"

	"github.com/allod/allod/ipam/datastore/filelock"
)

// The lock files. They are never removed, see the package comment.
const (
	lockSuffix = ".lock"
	turnSuffix = ".turn"
)

// lockStore takes the lock of the store at path, exclusive or shared, and returns
// what releases it. Everyone waits for the lock while holding the turn, because
// the kernel lets readers pass a waiting writer: with eight of them reading all
// the time a write took a second, and with the turn it waits for those who read
// already.
func lockStore(ctx context.Context, path string, exclusive bool) (func(), error) {
	pass, err := filelock.Acquire(ctx, path+turnSuffix, true)
	if err == nil {
		defer pass()
		var release func()
		if release, err = filelock.Acquire(ctx, path+lockSuffix, exclusive); err == nil {
			return release, nil
		}
	}
	if errors.Is(err, syscall.EROFS) && !exclusive {
		return func() {}, nil // nobody can write here, nor has anybody who locked
	}
	return nil, err
}
