// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

var errMayNot = errors.New("may not write blocks")

// refusing is a table whose writer has no leave to write; lose is how many writes
// before that have an unknown outcome.
type refusing struct {
	datastore.Table[netip.Prefix, block.Block]
	writes, lose int
}

func (r *refusing) refuse() (blockEntry, error) {
	if r.writes++; r.writes <= r.lose {
		return blockEntry{}, errors.New("connection lost")
	}
	return blockEntry{}, datastore.Refused(errMayNot)
}

func (r *refusing) Create(context.Context, netip.Prefix, block.Block) (blockEntry, error) {
	return r.refuse()
}

func (r *refusing) Update(context.Context, blockEntry) (blockEntry, error) { return r.refuse() }

// INV-7: a refused write was certainly not applied: it is neither repeated nor taken
// for one of unknown outcome, unless an earlier one is, and its reason is what the
// caller hears. What was claimed for it is given back.
func TestRefusedWriteIsDefinite(t *testing.T) {
	for name, tt := range map[string]struct {
		warm    bool // the host has a block
		lose    int
		unknown bool
	}{
		"update":                  {warm: true},
		"create":                  {},
		"update after a lost one": {warm: true, lose: 1, unknown: true},
		"create after a lost one": {lose: 1, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("v4", "10.0.0.0/30", size(30))
			if tt.warm {
				w.mustAttach(pod("node-a", "u0", "c0"), 1, 0)
			}
			s := w.mem.Store()
			blocks := &refusing{Table: s.Blocks, lose: tt.lose}
			s.Blocks = blocks
			_, err := New(s, Options{Clock: w.clock}).Attach(t.Context(), request(pod("node-a", "u1", "c1"), 1, 0))
			if !errors.Is(err, errMayNot) || errors.Is(err, ErrUnknownOutcome) != tt.unknown {
				t.Errorf("attach: %v; want %v, unknown outcome: %v", err, errMayNot, tt.unknown)
			}
			// After an unknown outcome: the lost one, the refused one, and the fence's.
			if want := 1 + 2*tt.lose; blocks.writes != want {
				t.Errorf("%d writes, want %d: a refused one is not repeated", blocks.writes, want)
			}
			if _, claimed := w.affinity("node-a", "10.0.0.0/30"); claimed != (tt.warm || tt.unknown) {
				t.Errorf("the claim is there: %v", claimed)
			}
			w.verify()
		})
	}
}

// The same for objects that are made what they should be, there or not.
func TestRefusedEnsureIsDefinite(t *testing.T) {
	cidr := netip.MustParsePrefix("10.0.0.0/30")
	initial, err := block.New(cidr, block.Host("node-a"), 0, epoch)
	if err != nil {
		t.Fatal(err)
	}
	fence := func(e blockEntry) (block.Block, bool, error) { return e.Value.Fence(epoch), true, nil }
	for name, tt := range map[string]struct {
		there   bool
		lose    int
		unknown bool
		sends   int
	}{
		"created":                {sends: 1},
		"created after a lost":   {lose: 1, unknown: true, sends: 2},
		"updated":                {there: true, sends: 1},
		"updated after a lost":   {there: true, lose: 1, unknown: true, sends: 2},
		"updated after two lost": {there: true, lose: 2, unknown: true, sends: 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.mem.Store()
			var hint *blockEntry
			if tt.there {
				e, err := s.Blocks.Create(t.Context(), cidr, initial)
				if err != nil {
					t.Fatal(err)
				}
				hint = &e
			}
			blocks := &refusing{Table: s.Blocks, lose: tt.lose}
			_, err := ensure(t.Context(), newBackoff(nil), datastore.Table[netip.Prefix, block.Block](blocks), cidr, hint, initial, fence)
			if !errors.Is(err, errMayNot) || errors.Is(err, ErrUnknownOutcome) != tt.unknown {
				t.Errorf("got %v; want %v, unknown outcome: %v", err, errMayNot, tt.unknown)
			}
			if blocks.writes != tt.sends {
				t.Errorf("%d writes, want %d", blocks.writes, tt.sends)
			}
		})
	}
}
