// SPDX-License-Identifier: Apache-2.0

package boltstore_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/boltstore"
	"github.com/allod/allod/ipam/datastore/kv"
	"github.com/allod/allod/ipam/datastore/storetest"
)

// TestConformance runs the suite of every store (INV-7, INV-12).
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) datastore.Store {
		path := filepath.Join(t.TempDir(), "ipam.db")
		if err := boltstore.Create(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		s, err := boltstore.OpenStore(t.Context(), path, boltstore.Options{Poll: 5 * time.Millisecond}, kv.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// TestOpenStore: opening looks at the file, and creates none.
func TestOpenStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ipam.db")
	for range 2 {
		_, err := boltstore.OpenStore(t.Context(), path, boltstore.Options{}, kv.Options{})
		if !errors.Is(err, boltstore.ErrNoStore) || !strings.Contains(err.Error(), "allod-agent apply -f") {
			t.Fatal(err)
		}
	}
}
