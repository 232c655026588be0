// SPDX-License-Identifier: Apache-2.0

package memstore_test

import (
	"testing"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/datastore/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) datastore.Store { return memstore.New(memstore.Options{}).Store() })
}

// A client for which nothing is planned is a store like any other.
func TestClientConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) datastore.Store {
		s, _ := memstore.New(memstore.Options{}).Client("a")
		return s
	})
}
