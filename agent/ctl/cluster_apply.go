// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kv"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// maxTries is how often an object is read and written again when another writer was
// first.
const maxTries = 5

// apply implements store. First everything is judged and nothing written: by the rules
// that span objects, then by the API server, object by object. Then the objects are
// written in their order, and last what follows from them.
func (c *cluster) apply(ctx context.Context, objects []v1alpha1.Object, p *progress) ([]applied, error) {
	before, err := c.snapshot(ctx, p)
	p.done()
	if err != nil {
		return nil, nothingChanged(err)
	}
	if err := errors.Join(refusals(before, objects), c.rehearse(ctx, objects)); err != nil {
		return nil, nothingChanged(err)
	}
	done, err := c.writeAll(ctx, objects)
	if err != nil {
		return done, err
	}
	if err := c.follow(ctx, before, objects, done, p); err != nil {
		return done, fmt.Errorf("every object is stored, but not all that follows from it: %w; apply the same manifests again", err)
	}
	return done, nil
}

// refusals returns what the objects would break in a store that is as before.
func refusals(before Snapshot, objects []v1alpha1.Object) error {
	pools := slices.Clone(before.Pools)
	resized := map[string]int{}
	var errs []error
	for _, o := range objects {
		next, err := poolOf(o)
		if err != nil || next == nil {
			continue // a pool that cannot be read is refused where it is written
		}
		i := slices.IndexFunc(pools, func(p pool.Pool) bool { return p.Name == next.Name })
		if i < 0 {
			next.Created, i = before.At, len(pools)
			pools = append(pools, pool.Pool{})
		} else {
			old := pools[i]
			next.UID, next.Created, next.Generation, next.Deleting, next.Status = old.UID, old.Created, old.Generation, old.Deleting, old.Status
			if old.Deleting {
				errs = append(errs, fmt.Errorf("%[1]s: it is being deleted; wait until it is gone (\"allod-agent delete %[1]s\" says what holds it), then apply it", refOf(o)))
			}
			if old.Spec.BlockSize != next.Spec.BlockSize {
				resized[next.Name] = old.Spec.BlockSize
			}
			if old.Spec.Gateway == next.Spec.Gateway {
				pools[i] = *next
				continue
			}
		}
		pools[i] = *next
		if err := kv.GatewayFree(*next, before.blocks()); err != nil && next.HasGateway() {
			errs = append(errs, fmt.Errorf("%s: %w", refOf(o), err))
		}
	}
	return errors.Join(append(errs, resizeRefusals(pool.Admit(pools, before.cidrs()), resized))...)
}

// poolOf returns the pool that o is, nil for another kind.
func poolOf(o v1alpha1.Object) (*pool.Pool, error) {
	if o, ok := o.(*v1alpha1.IPPool); ok {
		p, err := o.Pool()
		return &p, err
	}
	return nil, nil
}

func (s Snapshot) blocks() []block.Block {
	out := make([]block.Block, len(s.Blocks))
	for i, b := range s.Blocks {
		out[i] = b.Block
	}
	return out
}

// cidrs returns every CIDR with a block or a claim.
func (s Snapshot) cidrs() []netip.Prefix {
	out := make([]netip.Prefix, 0, len(s.Blocks)+len(s.Affinities))
	for _, b := range s.Blocks {
		out = append(out, b.CIDR)
	}
	for _, f := range s.Affinities {
		out = append(out, f.Key.CIDR)
	}
	return out
}

// rehearse has the API server judge every write.
func (c *cluster) rehearse(ctx context.Context, objects []v1alpha1.Object) error {
	var errs []error
	for _, o := range objects {
		if _, err := c.write(ctx, c.dry.Store(), o); err != nil {
			errs = append(errs, prefixed(refOf(o).String(), err))
		}
	}
	return errors.Join(errs...)
}

// write is applyOne, again when another writer was first.
func (c *cluster) write(ctx context.Context, s datastore.Store, o v1alpha1.Object) (verb string, err error) {
	for range maxTries {
		verb, err = applyOne(ctx, s, o, map[string]int{})
		rival := errors.Is(err, datastore.ErrConflict) || errors.Is(err, datastore.ErrExists) || errors.Is(err, datastore.ErrNotFound)
		if !rival {
			break
		}
	}
	return verb, c.failed(err)
}

// writeAll stops at the first object that cannot be written, and then says how far it
// came.
func (c *cluster) writeAll(ctx context.Context, objects []v1alpha1.Object) ([]applied, error) {
	var done []applied
	for i, o := range objects {
		verb, err := c.write(ctx, c.store.Store(), o)
		if err == nil {
			done = append(done, applied{ref: refOf(o), verb: verb})
			continue
		}
		outcome := "was not written"
		if !errors.Is(err, datastore.ErrRefused) {
			outcome = "may have been written or not"
		}
		text := fmt.Sprintf("%d of %d objects are written, %s %s", i, len(objects), refOf(o), outcome)
		if rest := objects[i+1:]; len(rest) > 0 {
			text += ", " + list(rest) + " not tried"
		}
		return done, fmt.Errorf("%s: %w; which pools hand out is not decided anew; to apply the same manifests again is safe", text, err)
	}
	return done, nil
}

func list(objects []v1alpha1.Object) string {
	names := make([]string, len(objects))
	for i, o := range objects {
		names[i] = refOf(o).String()
	}
	return strings.Join(names, ", ")
}

// follow does what follows from the objects: admission and labels. Labels are computed
// for every object that the manifests name, changed or not: an apply cut short may have
// stored it and come no further.
func (c *cluster) follow(ctx context.Context, before Snapshot, objects []v1alpha1.Object, done []applied, p *progress) error {
	p.count("deciding which pools hand out")
	pools, err := c.client.ReconcilePools(ctx)
	p.count("labelling blocks")
	_, rerr := c.client.RelabelBlocks(ctx, concerned(before, objects))
	p.done()
	noteAdmitted(done, before.Pools, pools)
	warnPools(done, pools)
	if err := errors.Join(err, rerr); err != nil {
		return c.failed(err)
	}
	return c.warnGateways(ctx, before, done, pools)
}

// noteAdmitted says of the pools that were stored already that they hand out from now on.
func noteAdmitted(done []applied, before, now []pool.Pool) {
	was := standings(before)
	for name, is := range standings(now) {
		if a := ofPool(done, name); a != nil && a.verb == unchanged && is.serves() && !was[name].serves() {
			a.verb = admitted
		}
	}
}

// concerned returns the CIDRs in which what may be handed out may be another than
// before.
func concerned(before Snapshot, objects []v1alpha1.Object) []netip.Prefix {
	var out []netip.Prefix
	for _, o := range objects {
		switch o := o.(type) {
		case *v1alpha1.IPPool:
			if p, err := o.Pool(); err == nil {
				out = append(out, p.Spec.CIDR)
			}
		case *v1alpha1.IPReservation:
			if r, err := o.Reservation(); err == nil {
				out = append(out, r.CIDRs...)
			}
			for _, r := range before.Reservations {
				if r.Name == o.Name {
					out = append(out, r.CIDRs...)
				}
			}
		}
	}
	return out
}

// warnGateways looks whether somebody got an address between the moment it was seen to
// be free and the moment it became a gateway.
func (c *cluster) warnGateways(ctx context.Context, before Snapshot, done []applied, pools []pool.Pool) error {
	for _, p := range pools {
		a := ofPool(done, p.Name)
		old, there := before.pool(p.Name)
		if a == nil || !p.HasGateway() || there && reflect.DeepEqual(old.Spec.Gateway, p.Spec.Gateway) {
			continue
		}
		entries, err := c.store.Store().Blocks.List(ctx, datastore.Query{Pool: p.Name, Strict: true})
		if err != nil {
			return c.failed(err)
		}
		var blocks []block.Block
		for _, e := range entries {
			blocks = append(blocks, e.Value)
		}
		if err := kv.GatewayFree(p, blocks); err != nil {
			a.warning = "was stored while a pod got the address: " + err.Error()
		}
	}
	return nil
}
