// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/pool"
)

// cachedOwner is a host that has read what it holds and will commit from that: the
// node agent does not read again before it writes.
type cachedOwner struct {
	name   string
	setup  func(w *world) // before the owner reads
	commit func(a *assigner, ctx context.Context) error
	r      AutoAssignRequest
}

const cachedHandle = "net.cached"

func cachedOwners() []cachedOwner {
	r := auto("node-a", cachedHandle, 1, 0)
	windows := r
	windows.Reserved4 = block.HostReserved{StartOfBlock: 1, EndOfBlock: 1}
	take := func(n int) func(a *assigner, ctx context.Context) error {
		return func(a *assigner, ctx context.Context) error {
			return a.assign(ctx, want{family: pool.V4, n: n})
		}
	}
	inUse := func(w *world) { w.mustAttach(pod("node-a", "u1", "c1"), 1, 0) }
	empty := func(w *world) { leave(w, "node-a", 1) }
	return []cachedOwner{
		{"takes from a block in use", inUse, take(1), r},
		{"takes from an empty block", empty, take(1), r},
		{"takes the rest of a block and claims another", inUse, take(5), r},
		{"claims its first block", func(*world) {}, take(1), r},
		{"claims its first block and reserves ordinals of it", func(*world) {}, take(1), windows},
		{"ensures a block", func(*world) {}, func(a *assigner, ctx context.Context) error {
			a.ensured = make(map[pool.Family]netip.Prefix)
			return a.assign(ctx, want{family: pool.V4, n: 1})
		}, r},
		{"takes a given address of its block", inUse, func(a *assigner, ctx context.Context) error {
			for _, e := range a.host.blocks {
				for addr := range e.Value.Free() {
					return a.given(ctx, addr)
				}
			}
			return errors.New("nothing is free")
		}, r},
	}
}

// waysToRelease are the ways in which the owner's blocks are taken from it.
var waysToRelease = map[string]func(w *world, c *Client) error{
	"of the block": func(w *world, c *Client) error {
		var errs []error
		for _, e := range w.blocks() {
			if e.Value.Affinity == block.Host("node-a") {
				errs = append(errs, c.ReleaseAffinity(w.t.Context(), datastore.AffinityKey{Owner: e.Value.Affinity, CIDR: e.Key}, false))
			}
		}
		return errors.Join(errs...)
	},
	"of the host": func(w *world, c *Client) error { return c.ReleaseHostAffinities(w.t.Context(), "node-a", false) },
	"of the pool": func(w *world, c *Client) error { return c.ReleasePoolAffinities(w.t.Context(), "v4") },
	"of the host, if empty": func(w *world, c *Client) error {
		if err := c.ReleaseHostAffinities(w.t.Context(), "node-a", true); !errors.Is(err, ErrBlockNotEmpty) {
			return err
		}
		return nil
	},
	"by a host that reclaims": func(w *world, c *Client) error {
		w.pass(2 * time.Minute)
		o := pod("node-b", "u9", "c9")
		_, err := w.attach(c, request(o, 5, 0))
		if errors.Is(err, ErrExhausted) {
			return w.detach(c, o)
		}
		return err
	},
}

// prepare returns the commit of an owner that has read its state now, from a process
// of its own, and what it does about the result.
func (o cachedOwner) prepare(w *world) (faults *memstore.Faults, commit func()) {
	c, faults := w.process("owner")
	a, err := c.newAssigner(w.t.Context(), o.r, (*assigner).roomFor)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := a.repair(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return faults, func() {
		err := o.commit(a, w.t.Context())
		if err != nil {
			err = a.fail(w.t.Context(), err)
			if !errors.Is(err, ErrExhausted) && !errors.Is(err, ErrStrictAffinity) && !errors.Is(err, ErrContention) {
				w.t.Errorf("the owner is told %v", err)
			}
			return
		}
		w.ledger[block.Attachment{}] = append(w.ledger[block.Attachment{}], addrs(a.got)...)
	}
}

// rest lets the host make its next requests and then compares everything: no address
// is lost or held twice, every claim has its block, and what is given back leaves
// nothing behind.
func (w *world) rest() {
	w.t.Helper()
	w.verify()
	for i := range 2 { // whatever was left half done is completed by its host's requests
		o := pod("node-a", fmt.Sprint("next", i), fmt.Sprint("next", i))
		if _, err := w.attach(w.c, request(o, 1, 0)); err != nil && (!w.strict() || !errors.Is(err, ErrExhausted)) {
			w.t.Errorf("the host's next request: %v", err)
		}
	}
	w.verify()
	w.claims()
	w.stray()
	for key := range w.ledger {
		if key == (block.Attachment{}) {
			w.create(w.c.ReleaseByHandle(w.t.Context(), cachedHandle, ""))
		} else {
			w.create(w.c.Detach(w.t.Context(), DetachRequest{Attachment: key}))
		}
		delete(w.ledger, key)
	}
	w.verify()
	w.create(nil, w.c.ReleasePoolAffinities(w.t.Context(), "v4"))
	w.create(w.c.CollectBlocks(w.t.Context(), nil, 0))
	if n := len(w.blocks()); n != 0 {
		w.t.Errorf("%d blocks are left: %+v", n, w.blocks())
	}
	w.stray()
}

func eachCached(t *testing.T, do func(t *testing.T, strict bool, o cachedOwner, release func(*world, *Client) error)) {
	for _, o := range cachedOwners() {
		for name, release := range waysToRelease {
			for _, strict := range []bool{false, true} {
				t.Run(fmt.Sprintf("owner %s, release %s, strict %v", o.name, name, strict), func(t *testing.T) { do(t, strict, o, release) })
			}
		}
	}
}

func (w *world) strict() bool {
	w.t.Helper()
	c, err := w.c.Config(w.t.Context())
	w.create(nil, err)
	return c.StrictAffinity
}

func cachedWorld(t *testing.T, strict bool, o cachedOwner) *world {
	w := newWorld(t)
	w.pool("v4", "10.0.0.0/28", size(30))
	w.config(func(c *datastore.Config) { c.StrictAffinity = strict })
	o.setup(w)
	return w
}

// The releaser is stopped before its first write and after each; there the owner
// commits from what it had read before (design, section 5; INV-1, INV-6, INV-7). The
// releaser then goes on, or was killed and another completes its work.
func TestFaultReleaseAgainstCachedOwner(t *testing.T) {
	points := 0
	eachCached(t, func(t *testing.T, strict bool, o cachedOwner, release func(*world, *Client) error) {
		for k, stopped := 0, true; stopped; k++ {
			for _, killed := range []bool{false, true} {
				stopped = stopReleaser(t, cachedWorld(t, strict, o), o, release, k, killed)
				points++
				if t.Failed() {
					t.Fatalf("above: the releaser was stopped after write %d, killed %v", k, killed)
				}
			}
		}
	})
	t.Attr("figures", fmt.Sprintf("%d points at which the owner commits", points))
}

// stopReleaser returns false when the release has no more than k writes.
func stopReleaser(
	t *testing.T, w *world, o cachedOwner, release func(*world, *Client) error, k int, killed bool,
) (stopped bool) {
	_, commit := o.prepare(w)
	c, faults := w.process("releaser")
	faults.Hook(func(_ context.Context, op memstore.Op) error {
		if op.Write == k+1 && !stopped {
			stopped = true
			commit()
		}
		if stopped && killed {
			return memstore.ErrCrashed
		}
		return nil
	})
	err := release(w, c)
	switch {
	case !stopped:
		commit()
	case killed:
		err = release(w, w.c)
	}
	if err != nil {
		t.Errorf("release: %v", err)
	}
	w.claims()
	w.rest()
	return stopped
}

// The reverse: the owner is stopped before its first write and after each, and the
// release runs from beginning to end.
func TestFaultReleaseAgainstCachedOwnerReverse(t *testing.T) {
	points := 0
	eachCached(t, func(t *testing.T, strict bool, o cachedOwner, release func(*world, *Client) error) {
		for k := 0; ; k++ {
			w := cachedWorld(t, strict, o)
			faults, commit := o.prepare(w)
			first, stopped := faults.Writes(), false
			run := func() {
				c, _ := w.process("releaser")
				if err := release(w, c); err != nil {
					t.Errorf("stopped after write %d: %v", k, err)
				}
			}
			faults.Hook(func(_ context.Context, op memstore.Op) error {
				if op.Write == first+k+1 && !stopped {
					stopped = true
					run()
				}
				return nil
			})
			commit()
			if !stopped {
				run()
			}
			w.claims()
			w.rest()
			points++
			if t.Failed() {
				t.Fatalf("above: the owner was stopped after write %d", k)
			}
			if !stopped {
				return
			}
		}
	})
	t.Attr("figures", fmt.Sprintf("%d points at which the release runs", points))
}
