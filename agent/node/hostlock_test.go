// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/allod/allod/cni/agentapi"
	"github.com/allod/allod/cni/plugin"
)

// Every holder raises the generation.
func TestHostLockRaisesTheGeneration(t *testing.T) {
	l := hostLock{path: filepath.Join(t.TempDir(), "run", "host.lock")}
	last := uint64(0)
	for range 3 {
		release, err := l.exclusive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(l.path)
		if err != nil {
			t.Fatal(err)
		}
		now, err := generation(f)
		if err != nil || now <= last {
			t.Errorf("generation %d after %d, %v", now, last, err)
		}
		last = now
		_ = f.Close()
		release()
	}
}

// A file that holds something else is left as it is, whatever names it.
func TestHostLockLeavesOtherFilesAlone(t *testing.T) {
	for name, content := range map[string]string{
		"a store": string(make([]byte, 4096)), "text": "not a number\n", "digits": "0000000", "as long": "0000000000000000000x\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := (hostLock{path: path}).exclusive(t.Context()); !errors.Is(err, errNotHostLock) {
				t.Errorf("got %v", err)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != content {
				t.Errorf("the file was changed: %q, %v", after, err)
			}
		})
	}
}

// The store's own files are no host lock: the process would wait for itself.
func TestDirectRefusesTheStoresFilesAsLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ipam.db")
	for _, suffix := range []string{"", ".lock", ".turn"} {
		c := plugin.Conf{LockFile: path + suffix, Datastore: plugin.Datastore{Type: plugin.StoreBolt, Path: path}}
		_, err := DirectMode{}.Backend(t.Context(), c)
		if e := agentapi.AsError(err); e == nil || e.Code != agentapi.CodeBadConfig {
			t.Errorf("%s: %v, want code 7", c.LockFile, err)
		}
	}
}
