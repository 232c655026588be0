// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

// lostUpdate: writers that add to one number, reading again after each conflict.
func lostUpdate(t *testing.T, open Open) {
	const writers, each = 6, 15
	table := open(t).Affinities
	k := datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: cidr("10.0.0.0/30")}
	create(t, table, k, datastore.Affinity{State: datastore.Pending})
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < each; {
				e, err := table.Get(t.Context(), k)
				if err != nil {
					t.Errorf("get: %v", err)
					return
				}
				e.Value.BlockSeq++
				switch _, err := table.Update(t.Context(), e); {
				case err == nil:
					done++
				case !errors.Is(err, datastore.ErrConflict):
					t.Errorf("update: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := get(t, table, k).Value.BlockSeq; n != writers*each {
		t.Errorf("%d additions, the sum is %d: updates were lost (INV-7)", writers*each, n)
	}
}

func oneCreatorWins(t *testing.T, open Open) {
	table := open(t).Handles
	var won, lost atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			switch _, err := table.Create(t.Context(), "h", datastore.Handle{}); {
			case err == nil:
				won.Add(1)
			case errors.Is(err, datastore.ErrExists):
				lost.Add(1)
			default:
				t.Errorf("create: %v", err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || lost.Load() != 7 {
		t.Errorf("%d created and %d were told it exists; want 1 and 7", won.Load(), lost.Load())
	}
}
