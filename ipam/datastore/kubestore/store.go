// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/codec"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// Options are the settings of a Store. The zero value is good for use.
type Options struct {
	// UserAgent is what the API server logs. "" means the config's, or client-go's.
	UserAgent string
	// QPS and Burst limit the rate of calls. 0 means no limit: the API server's own
	// priority and fairness knows better.
	QPS   float32
	Burst int
	// PageSize is how many objects a LIST asks for at once. 0 means 500.
	PageSize int
	// Log gets objects that cannot be read. nil discards.
	Log *slog.Logger
}

// Store is the tables on one API server, and its clock. Methods are safe for
// concurrent use.
type Store struct {
	tables datastore.Store
	base   base
	clock  serverClock
	http   *http.Client
}

var _ clock.PassiveClock = (*Store)(nil)

// New returns the store on the API server of cfg. It makes no call: what is wrong
// is told by the first one. A Timeout in cfg is ignored, because it would cut
// watches: every method is bounded by its context.
func New(cfg *rest.Config, o Options) (*Store, error) {
	s := &Store{clock: serverClock{start: time.Now()}}
	c := rest.CopyConfig(cfg)
	c.APIPath, c.GroupVersion = "/apis", &v1alpha1.GroupVersion
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.NegotiatedSerializer = statusCodecs()
	c.UserAgent = cmp.Or(o.UserAgent, c.UserAgent, rest.DefaultKubernetesUserAgent())
	c.Timeout = 0
	if c.QPS, c.Burst = o.QPS, o.Burst; c.QPS == 0 {
		c.QPS = -1
	}
	c.Wrap(s.clock.watch)
	var err error
	if s.http, err = rest.HTTPClientFor(c); err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	api, err := rest.RESTClientForConfigAndClient(c, s.http)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	b := base{api: api, page: cmp.Or(o.PageSize, defaultPage), log: o.Log}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	s.base, s.tables = b, tables(b)
	pools := newTable(b, codec.Pools(), false, reflect.TypeFor[v1alpha1.IPPoolSpec]())
	s.tables.Pools, s.tables.PoolStatus = pools, poolStatus{pools, s}.store
	return s, nil
}

// statusCodecs decode the one type that client-go itself looks at: the status of a
// call that failed.
func statusCodecs() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	metav1.AddToGroupVersion(scheme, v1alpha1.GroupVersion)
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}

func tables(b base) datastore.Store {
	return datastore.Store{
		Blocks:       newTable(b, codec.Blocks(), true, nil), // a block's spec keeps unknown fields itself
		Affinities:   newTable(b, codec.Affinities(), true, reflect.TypeFor[v1alpha1.BlockAffinitySpec]()),
		Handles:      newTable(b, codec.Handles(), true, reflect.TypeFor[v1alpha1.IPAMHandleSpec]()),
		Reservations: newTable(b, codec.Reservations(), false, reflect.TypeFor[v1alpha1.IPReservationSpec]()),
		Config:       newTable(b, codec.Config(), false, reflect.TypeFor[v1alpha1.IPAMConfigurationSpec]()),
	}
}

// These are only here to name the types of the tables once.
var (
	_ datastore.Table[netip.Prefix, block.Block] = (*table[netip.Prefix, block.Block])(nil)
	_ datastore.Table[string, pool.Pool]         = (*table[string, pool.Pool])(nil)
)

// Store returns the tables.
func (s *Store) Store() datastore.Store { return s.tables }

// Now returns the API server's time: the Date of its answers, carried on by this
// machine's monotonic clock. It is late by up to a second and the way of the answer,
// plus the skew between API servers, and may step back by as much. Before the first
// answer it is this machine's.
func (s *Store) Now() time.Time { return s.clock.Now() }

// Since returns Now minus t.
func (s *Store) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// Close ends connections that no call is using.
func (s *Store) Close() { s.http.CloseIdleConnections() }
