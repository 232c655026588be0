// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) datastore.Store {
		s, _ := open(t)
		return s.Store()
	}, storetest.WithoutAdmission(), storetest.Reencoding())
}
