// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/kubestore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// Each operation is one call, whatever its outcome.
func TestCallsOfOperations(t *testing.T) {
	s, c := open(t)
	table, ctx := s.Store().Blocks, t.Context()
	const path = "ipamblocks/10-64-0-8-29"
	made := func(what string, err, want error, paths ...string) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: error %v; want %v", what, err, want)
		}
		if d := cmp.Diff(paths, c.take()); d != "" {
			t.Errorf("%s: calls (-want +got):\n%s", what, d)
		}
	}
	_, err := table.Get(ctx, cidr)
	made("get of nothing", err, datastore.ErrNotFound, "GET "+path)
	first, err := table.Create(ctx, cidr, newBlock(t, "node-a"))
	made("create", err, nil, "POST ipamblocks")
	_, err = table.Create(ctx, cidr, newBlock(t, "node-a"))
	made("create again", err, datastore.ErrExists, "POST ipamblocks")
	next := first
	next.Value = first.Value.Fence(epoch)
	next, err = table.Update(ctx, next)
	made("update", err, nil, "PUT "+path)
	_, err = table.Update(ctx, first)
	made("stale update", err, datastore.ErrConflict, "PUT "+path)
	made("stale delete", table.Delete(ctx, first), datastore.ErrConflict, "DELETE "+path)
	next, err = table.Update(ctx, next)
	made("update that changes nothing", err, nil, "PUT "+path, "PUT "+path)
	q := datastore.Query{Node: "node-a", Pool: "v4", Space: []block.Space{block.SpaceFree, block.SpaceCooling}, Empty: true}
	_, err = table.List(ctx, q)
	selector := "labelSelector=" + url.QueryEscape("ipam.allod.io/empty=true,ipam.allod.io/pool=v4,"+
		v1alpha1.NodeLabel("node-a")+"=,ipam.allod.io/space in (free,cooling)")
	made("labelled list", err, nil, "GET ipamblocks?"+selector+"&limit=500")
	q.MayBeStale = true
	_, err = table.List(ctx, q)
	made("stale list", err, nil, "GET ipamblocks?"+selector+"&resourceVersion=0")
	made("delete", table.Delete(ctx, next), nil, "DELETE "+path)
	_, err = table.Update(ctx, next)
	made("update of nothing", err, datastore.ErrNotFound, "PUT "+path)
	made("delete of nothing", table.Delete(ctx, next), datastore.ErrNotFound, "DELETE "+path)
	next.Origin = nil
	_, err = table.Update(ctx, next)
	made("update without what was read", err, datastore.ErrRefused)
}

func TestListPages(t *testing.T) {
	empty(t)
	s, c := client(t, server.Config(), kubestore.Options{PageSize: 2})
	for _, h := range []block.HandleID{"a", "b", "c", "d", "e"} {
		create(t, s.Store().Handles, h, datastore.Handle{})
	}
	for calls, stale := range map[int]bool{3: false, 1: true} {
		c.take()
		es, err := s.Store().Handles.List(t.Context(), datastore.Query{MayBeStale: stale})
		if made := c.take(); err != nil || len(es) != 5 || len(made) != calls {
			t.Errorf("list of 5 in pages of 2, stale %v: %d entries, %v, calls %q; want %d", stale, len(es), err, made, calls)
		}
	}
}

// A refusal says what is missing, is certain, and is never taken for absence (INV-2,
// INV-10).
func TestRefusalsAreCertain(t *testing.T) {
	empty(t)
	nobody := server.Config()
	nobody.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	elsewhere := server.Config()
	elsewhere.Host += "/elsewhere"
	for name, tt := range map[string]struct {
		cfg          *rest.Config
		reads, write []string
	}{
		"forbidden": {nobody, []string{`"nobody"`, "RBAC is missing", "ipamhandles in group ipam.allod.io"}, []string{"needs the verb create"}},
		"unknown":   {server.ConfigFor("wrong"), []string{"renew the token"}, nil},
		"no store":  {elsewhere, []string{"manifests/crds"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := client(t, tt.cfg, kubestore.Options{})
			table, ctx := s.Store().Handles, t.Context()
			e := datastore.Entry[block.HandleID, datastore.Handle]{Key: "h", Rev: "1", UID: "u"}
			_, get := table.Get(ctx, "h")
			_, list := table.List(ctx, datastore.Query{})
			_, created := table.Create(ctx, "h", datastore.Handle{})
			var watch error
			for _, err := range table.Watch(ctx) {
				watch = err
			}
			for verb, err := range map[string]error{"get": get, "list": list, "create": created, "delete": table.Delete(ctx, e), "watch": watch} {
				want, writes := slices.Clone(tt.reads), verb == "create" || verb == "delete"
				if verb == "create" {
					want = append(want, tt.write...)
				}
				if err == nil || errors.Is(err, datastore.ErrRefused) != writes {
					t.Errorf("%s: %v; want an error, marked as refused: %v", verb, err, writes)
					continue
				}
				for _, sentinel := range []error{datastore.ErrNotFound, datastore.ErrExists, datastore.ErrConflict} {
					if errors.Is(err, sentinel) {
						t.Errorf("%s: %v is %v", verb, err, sentinel)
					}
				}
				for _, text := range append([]string{"IPAMHandle"}, want...) {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%s: %v does not say %q", verb, err, text)
					}
				}
			}
		})
	}
}

// What the CRD refuses is not written, and the rule is in the error.
func TestInvalidIsRefused(t *testing.T) {
	s, c := open(t)
	e := create(t, s.Store().Blocks, cidr, newBlock(t, "node-a"))
	older, err := block.New(cidr, block.Host("node-a"), 3, epoch)
	if err != nil {
		t.Fatal(err)
	}
	e.Value = older
	c.take()
	_, err = s.Store().Blocks.Update(t.Context(), e)
	if !errors.Is(err, datastore.ErrRefused) || !strings.Contains(err.Error(), "a sequence only grows") || len(c.take()) != 1 {
		t.Errorf("a block with an older sequence: %v; want it refused by its rule in one call", err)
	}
}

// The clock is the API server's, which here runs on this machine.
func TestClockOfTheServer(t *testing.T) {
	s, _ := open(t)
	if _, err := s.Store().Config.Get(t.Context(), datastore.DefaultConfig); !errors.Is(err, datastore.ErrNotFound) {
		t.Fatal(err)
	}
	if d := time.Since(s.Now()); d < -time.Second || d > 10*time.Second {
		t.Errorf("the server's clock is %v behind this machine's, on this machine", d)
	}
}

// A connection that breaks below a watch costs no change.
func TestWatchSurvivesABrokenConnection(t *testing.T) {
	writer, _ := open(t)
	cfg, cut := cuttable(server.Config())
	s, c := client(t, cfg, kubestore.Options{})
	changes := pull(t, s.Store().Affinities)
	key := func(c string) datastore.AffinityKey {
		return datastore.AffinityKey{Owner: block.Host("node-a"), CIDR: netip.MustParsePrefix(c)}
	}
	changes.want(t, datastore.Synced, datastore.AffinityKey{})
	create(t, writer.Store().Affinities, key("10.0.0.0/30"), datastore.Affinity{})
	changes.want(t, datastore.Put, key("10.0.0.0/30"))
	cut()
	e := create(t, writer.Store().Affinities, key("10.0.0.4/30"), datastore.Affinity{})
	if err := writer.Store().Affinities.Delete(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	changes.want(t, datastore.Put, key("10.0.0.4/30"))
	changes.want(t, datastore.Deleted, key("10.0.0.4/30"))
	if lists, watches := made(c.take()); lists != 1 || watches != 2 || c.answered(http.StatusOK) != 3 {
		t.Errorf("%d lists and %d watches; want 1 and 2: the second goes on where the first broke", lists, watches)
	}
}

func made(calls []string) (lists, watches int) {
	for _, c := range calls {
		if strings.Contains(c, "watch=true") {
			watches++
		} else {
			lists++
		}
	}
	return lists, watches
}
