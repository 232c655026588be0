// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"testing"
)

// Every holder raises the generation, whatever the file holds.
func TestHostLockRaisesTheGeneration(t *testing.T) {
	for name, before := range map[string]string{"new": "", "garbled": "not a number\n", "torn": "0000000"} {
		t.Run(name, func(t *testing.T) {
			l := hostLock{path: filepath.Join(t.TempDir(), "run", "host.lock")}
			if before != "" {
				if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(l.path, []byte(before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			last := uint64(0)
			for range 3 {
				release, err := l.exclusive(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				now, err := l.generation()
				if err != nil || now <= last {
					t.Errorf("generation %d after %d, %v", now, last, err)
				}
				last = now
				release()
			}
		})
	}
}
