// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"testing"
)

func TestMain(m *testing.M) {
	m.Run()
}
