// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"iter"
	"net"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/allod/allod/ipam/datastore"
)

// stream pulls the changes of one watch. It gives up after a time in which every
// change shows.
type stream[K comparable, V any] struct {
	next func() (datastore.Change[K, V], error, bool)
}

func pull[K comparable, V any](t *testing.T, table datastore.Table[K, V]) stream[K, V] {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	next, stop := iter.Pull2(table.Watch(ctx))
	t.Cleanup(func() { cancel(); stop() })
	return stream[K, V]{next}
}

func (s stream[K, V]) want(t *testing.T, kind datastore.ChangeKind, key K) {
	t.Helper()
	c, err, ok := s.next()
	if !ok || err != nil || c.Kind != kind || c.Entry.Key != key {
		t.Fatalf("watch yields %v of %v, %v, %v; want %v of %v", c.Kind, c.Entry.Key, err, ok, kind, key)
	}
}

// cuttable lets a test break the connections of a client.
func cuttable(cfg *rest.Config) (*rest.Config, func()) {
	var (
		mu    sync.Mutex
		conns []net.Conn
		d     net.Dialer
	)
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			conns = append(conns, c)
		}
		return c, err
	}
	return cfg, func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			_ = c.Close() // that is the point
		}
	}
}
