// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"net/netip"
	"strings"

	"github.com/allod/allod/ipam/datastore/memstore"
)

// once makes a hook act before the first call that it is for.
func once(is func(memstore.Op) bool, act func(ctx context.Context, op memstore.Op)) func(context.Context, memstore.Op) error {
	done := false
	return func(ctx context.Context, op memstore.Op) error {
		if !done && is(op) {
			done = true
			act(ctx, op)
		}
		return nil
	}
}

// closePoolAfter disables every pool when the client first creates an object of table.
func closePoolAfter(w *world, table string) func(context.Context, memstore.Op) error {
	return once(func(op memstore.Op) bool { return op.Verb == memstore.Create && strings.EqualFold(op.Table, table) },
		func(ctx context.Context, _ memstore.Op) {
			e, err := w.mem.Store().Pools.Get(ctx, "v4")
			if err == nil {
				e.Value.Spec.Disabled = true
				_, err = w.mem.Store().Pools.Update(ctx, e)
			}
			if err != nil {
				w.t.Error(err)
			}
		})
}

// stealBlock has node create the block that the client is about to create.
func stealBlock(w *world, node string, stolen *netip.Prefix) func(context.Context, memstore.Op) error {
	return once(func(op memstore.Op) bool { return op.Verb == memstore.Create && strings.EqualFold(op.Table, "blocks") },
		func(_ context.Context, op memstore.Op) {
			*stolen = netip.MustParsePrefix(op.Key)
			o := pod(node, "thief", "thief")
			r := with(request(o, 0, 0), stolen.Addr().String())
			if _, err := w.attach(w.c, r); err != nil {
				w.t.Errorf("steal %s: %v", op.Key, err)
			}
		})
}

// takeAddress has node take an address when the client is about to change a block.
func takeAddress(w *world, node string) func(context.Context, memstore.Op) error {
	return once(func(op memstore.Op) bool { return op.Verb == memstore.Update && strings.EqualFold(op.Table, "blocks") },
		func(context.Context, memstore.Op) { w.mustAttach(pod(node, "quick", "quick"), 1, 0) })
}
