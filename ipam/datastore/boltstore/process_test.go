// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/allod/allod/ipam/datastore/kv"
)

// TestProcesses: several processes write to one file, no update is lost.
func TestProcesses(t *testing.T) {
	path := newStore(t)
	_, before, err := dump(t.Context(), New(path, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	const n, each = 6, 25
	var ps []*process
	for i := range n {
		ps = append(ps, start(t, "write", path, fmt.Sprint(i)))
	}
	for _, p := range ps {
		if err := p.wait(); err != nil || p.done != each {
			t.Fatalf("%d writes, %v", p.done, err)
		}
	}
	got, rev, err := dump(t.Context(), New(path, Options{}), kv.Tables()...)
	if err != nil {
		t.Fatal(err)
	}
	if got[kv.Config]["counter"] != fmt.Sprint(n*each) || len(got[kv.Handles]) != n*each || rev != before+n*each {
		t.Fatalf("counter %s, %d keys, revision %d after %d", got[kv.Config]["counter"], len(got[kv.Handles]), rev, before)
	}
}

// TestKill: writers killed at any moment leave a valid file with every write they
// had reported, and at most one more each; the others go on.
func TestKill(t *testing.T) {
	path := newStore(t)
	reported, killed := 0, 0
	running := map[string]*process{}
	for i := range 4 {
		running[fmt.Sprint(i)] = start(t, "write-on", path, fmt.Sprint(i))
	}
	done := map[string]int{}
	for round := range 12 {
		for name, p := range running { // in any order
			p.read(1 + round%3)
			p.kill()
			killed++
			reported += p.done
			done[name] = p.done
			delete(running, name)
			next := fmt.Sprintf("%s.%d", strings.SplitN(name, ".", 2)[0], round)
			running[next] = start(t, "write-on", path, next)
			break
		}
		if _, _, err := dump(t.Context(), New(path, Options{}), kv.Tables()...); err != nil {
			t.Fatalf("after %d kills: %v", killed, err)
		}
	}
	for name, p := range running {
		p.kill()
		killed++
		reported += p.done
		done[name] = p.done
	}
	got, _, err := dump(t.Context(), New(path, Options{}), kv.Tables()...)
	if err != nil {
		t.Fatal(err)
	}
	count, _ := strconv.Atoi(got[kv.Config]["counter"])
	if count != len(got[kv.Handles]) || count < reported || count > reported+killed {
		t.Fatalf("%d writes counted, %d there, %d reported by %d killed writers", count, len(got[kv.Handles]), reported, killed)
	}
	for name, n := range done {
		for i := range n {
			if _, ok := got[kv.Handles][fmt.Sprintf("%s-%d", name, i)]; !ok {
				t.Fatalf("write %d of %s was reported and is lost", i, name)
			}
		}
	}
	put(t, New(path, Options{}), kv.Pools, "after", "1")
}

// TestCreateAtOnce: of processes that create one store at once, one does.
func TestCreateAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "ipam.db")
	var ps []*process
	for i := range 6 {
		ps = append(ps, start(t, "create", path, fmt.Sprint(i)))
	}
	created := 0
	for _, p := range ps {
		if err := p.wait(); err != nil {
			t.Error(err)
		}
		created += p.done
	}
	if created != 1 {
		t.Fatalf("%d created it", created)
	}
}

// TestCreateKilled: a creator killed at any moment leaves a whole store or none,
// and nothing that hinders the next.
func TestCreateKilled(t *testing.T) {
	for round := range 6 {
		dir := t.TempDir()
		p := start(t, "create-on", dir, "")
		p.read(1 + round)
		p.kill()
		for i := range p.done + 3 {
			path := filepath.Join(dir, fmt.Sprint(i))
			if err := Create(t.Context(), path); i < p.done && !errors.Is(err, ErrExists) || err != nil && !errors.Is(err, ErrExists) {
				t.Fatalf("store %d of %d: %v", i, p.done, err)
			}
			put(t, New(path, Options{}), kv.Pools, "p", "1")
			if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf(".%d.new", i))); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("temporary file of %d: %v", i, err)
			}
		}
	}
}
