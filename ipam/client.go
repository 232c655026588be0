// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"time"

	"k8s.io/utils/clock"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// Options are what a Client depends on besides its store. Zero fields get a
// default.
type Options struct {
	Clock clock.PassiveClock // default: the machine's
	Rand  *rand.Rand         // jitter of back-offs; default: seeded at random
	Log   *slog.Logger       // default: discards
	// CleanupTimeout bounds what is undone after a failed request. It runs on its
	// own deadline, because the request's may be what failed (case R8).
	// Default 10 s.
	CleanupTimeout time.Duration
	// SoleHost says that no other host uses the store: what a node holds is then
	// looked for in every block, and a host whose name has changed finds its own.
	SoleHost bool
}

// Client assigns and releases addresses in one store. It holds no state of its
// own; methods are safe for concurrent use.
type Client struct {
	store   datastore.Store
	clock   clock.PassiveClock
	log     *slog.Logger
	backoff backoff
	cleanup time.Duration
	sole    bool
}

// New returns a Client on s.
func New(s datastore.Store, o Options) *Client {
	c := &Client{store: s, clock: o.Clock, log: o.Log, cleanup: cmp.Or(o.CleanupTimeout, 10*time.Second), sole: o.SoleHost}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.backoff = newBackoff(o.Rand)
	return c
}

// of selects the blocks that node has to do with; "" selects all.
func (c *Client) of(node string) datastore.Query {
	if c.sole {
		node = ""
	}
	return datastore.Query{Node: node}
}

// Assignment is one address together with where it is from. Callers that route
// need the block; only the plugin narrows the address to a mask.
type Assignment struct {
	Addr     netip.Addr
	Block    netip.Prefix
	BlockUID string
	Seq      uint64
	Pool     pool.Pool
}

// Assigned are the addresses of one request.
type Assigned struct{ V4, V6 []Assignment }

// All returns the assignments of both families, IPv4 first.
func (a Assigned) All() []Assignment {
	return append(append([]Assignment(nil), a.V4...), a.V6...)
}

type (
	blockEntry    = datastore.Entry[netip.Prefix, block.Block]
	affinityEntry = datastore.Entry[datastore.AffinityKey, datastore.Affinity]
)
