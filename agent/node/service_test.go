// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/allod/allod/cni/agentapi"
	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/datastore/memstore"
	"github.com/allod/allod/ipam/pool"
)

func service(t *testing.T) (*Service, *memstore.Store, *memstore.Faults) {
	t.Helper()
	mem := memstore.New(memstore.Options{})
	s := pool.Spec{CIDR: netip.MustParsePrefix("10.0.0.0/28"), Gateway: pool.Gateway{First: true}, BlockSize: 30}
	if _, err := mem.Store().Pools.Create(t.Context(), "v4", pool.Pool{Name: "v4", Spec: s.WithDefaults()}); err != nil {
		t.Fatal(err)
	}
	store, faults := mem.Client("service")
	return &Service{IPAM: ipam.New(store, ipam.Options{}), Node: pool.Node{Name: "node-a"}}, mem, faults
}

func attachment(id string) agentapi.Attachment {
	return agentapi.Attachment{Network: "net", ContainerID: id, IfName: "eth0"}
}

func add(t *testing.T, s *Service, id string) agentapi.Address {
	t.Helper()
	got, err := s.Add(t.Context(), agentapi.AddRequest{Attachment: attachment(id), Num4: 1})
	if err != nil || len(got.Addresses) != 1 {
		t.Fatalf("ADD %s: %v, %v", id, got, err)
	}
	return got.Addresses[0]
}

func TestAddReply(t *testing.T) {
	s, _, _ := service(t)
	a := add(t, s, "c1")
	if a.Pool != netip.MustParsePrefix("10.0.0.0/28") || !a.Block.Contains(a.Addr) || a.Gateway != a.Block.Addr() {
		t.Errorf("got %+v; want pool, block and the block's first address as gateway", a)
	}
}

// CHECK fails for each way in which store and sandbox can disagree, says who has
// the address, and writes nothing (INV-12, case R11).
func TestCheck(t *testing.T) {
	s, _, faults := service(t)
	mine, foreign := add(t, s, "c1").Addr, add(t, s, "c2").Addr
	released := add(t, s, "c3").Addr
	if err := s.Del(t.Context(), agentapi.DelRequest{Attachment: attachment("c3")}); err != nil {
		t.Fatal(err)
	}
	free := netip.MustParseAddr("10.0.0.15")
	for free == mine || free == foreign || free == released {
		free = free.Prev()
	}
	other := attachment("c1")
	other.IfName = "net1"
	tests := []struct {
		name string
		key  agentapi.Attachment
		has  []netip.Addr
		says string
	}{
		{"agrees", attachment("c1"), []netip.Addr{mine}, ""},
		{"foreign owner", attachment("c1"), []netip.Addr{mine, foreign}, "container c2"},
		{"released", attachment("c3"), []netip.Addr{released}, "released"},
		{"never assigned", attachment("c1"), []netip.Addr{mine, free}, "is free"},
		{"outside every pool", attachment("c1"), []netip.Addr{mine, netip.MustParseAddr("192.0.2.1")}, "not in an IP pool"},
		{"not in prevResult", attachment("c1"), nil, "not in prevResult"},
		{"wrong ifname", other, []netip.Addr{mine}, "eth0 of container c1"},
	}
	writes := faults.Writes()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := s.Check(t.Context(), agentapi.CheckRequest{Attachment: tt.key, Addrs: tt.has})
			if tt.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			e, ok := errors.AsType[*agentapi.Error](err)
			if !ok || e.Code != agentapi.CodeMismatch || !strings.Contains(e.Error(), tt.says) {
				t.Errorf("got %v; want code %d that says %q", err, agentapi.CodeMismatch, tt.says)
			}
		})
	}
	if faults.Writes() != writes {
		t.Error("CHECK wrote")
	}
}

func TestCodes(t *testing.T) {
	for want, errs := range map[uint][]error{
		agentapi.CodeBadConfig: {
			ipam.ErrNoPool, ipam.ErrNotInPool, ipam.ErrReserved, ipam.ErrInvalid, ipam.ErrBlockLimit, ipam.ErrStrictAffinity,
		},
		agentapi.CodeTryAgain: {
			ipam.ErrExhausted, errors.Join(ipam.ErrExhausted, ipam.ErrBlockLimit), ipam.ErrAddressInUse, ipam.ErrAddressCooling,
			ipam.ErrContention, ipam.ErrUnknownOutcome, memstore.ErrUnreachable, context.DeadlineExceeded,
		},
	} {
		for _, err := range errs {
			if got := agentapi.AsError(coded(fmt.Errorf("wrapped: %w", err))); got.Code != want {
				t.Errorf("%v has code %d, want %d", err, got.Code, want)
			}
		}
	}
}

// A DEL that cannot reach the store is code 11 and swallows nothing (INV-10, R13).
func TestUnreachableStore(t *testing.T) {
	s, _, faults := service(t)
	add(t, s, "c1")
	faults.DeadFrom(len(faults.Ops()) + 1)
	for name, err := range map[string]error{
		"DEL": s.Del(t.Context(), agentapi.DelRequest{Attachment: attachment("c1")}),
		"GC":  s.GC(t.Context(), agentapi.GCRequest{Network: "net", Valid: []agentapi.Attachment{}}),
	} {
		if got := agentapi.AsError(err); err == nil || got.Code != agentapi.CodeTryAgain {
			t.Errorf("%s: %v, want code 11", name, err)
		}
	}
	if got := agentapi.AsError(s.Status(t.Context(), agentapi.StatusRequest{})); got == nil || got.Code != agentapi.CodeNotAvailable {
		t.Errorf("STATUS: %v, want code 50", got)
	}
}

// GC without a list is refused: read as empty it would release every pod.
func TestGC(t *testing.T) {
	s, mem, _ := service(t)
	add(t, s, "keep")
	add(t, s, "gone")
	if err := s.GC(t.Context(), agentapi.GCRequest{Network: "net"}); agentapi.AsError(err) == nil {
		t.Error("a GC without a list was served")
	}
	if err := s.GC(t.Context(), agentapi.GCRequest{Network: "net", Valid: []agentapi.Attachment{attachment("keep")}}); err != nil {
		t.Fatal(err)
	}
	c := ipam.New(mem.Store(), ipam.Options{})
	for handle, want := range map[string]int{"keep": 1, "gone": 0} {
		if got, err := c.IPsByHandle(t.Context(), ipam.SandboxHandle("net", handle), ""); err != nil || len(got) != want {
			t.Errorf("%s holds %v, %v; want %d", handle, got, err, want)
		}
	}
}

// STATUS judges what the network asks for: its families and its pools.
func TestStatus(t *testing.T) {
	s, mem, _ := service(t) // one IPv4 pool
	off := pool.Spec{CIDR: netip.MustParsePrefix("10.9.0.0/28"), Disabled: true}
	if _, err := mem.Store().Pools.Create(t.Context(), "off", pool.Pool{Name: "off", Spec: off.WithDefaults()}); err != nil {
		t.Fatal(err)
	}
	empty := &Service{IPAM: ipam.New(memstore.New(memstore.Options{}).Store(), ipam.Options{}), Node: pool.Node{Name: "n"}}
	tests := []struct {
		name string
		s    *Service
		r    agentapi.StatusRequest
		says string
	}{
		{"IPv4", s, agentapi.StatusRequest{Num4: 1, NeedGateway: true}, ""},
		{"an older plugin", s, agentapi.StatusRequest{}, ""},
		{"IPv6", s, agentapi.StatusRequest{Num6: 1}, "there is no IPv6 pool"},
		{"dual stack", s, agentapi.StatusRequest{Num4: 1, Num6: 1}, "there is no IPv6 pool"},
		{"a pool that is missing", s, agentapi.StatusRequest{Num4: 1, Pools4: []string{"nope"}}, "nope"},
		{"a pool that is disabled", s, agentapi.StatusRequest{Num4: 1, Pools4: []string{"off"}}, "disabled"},
		{"no pool at all", empty, agentapi.StatusRequest{}, "create an IPPool"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.s.Status(t.Context(), tt.r)
			if tt.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if got := agentapi.AsError(err); got == nil || got.Code != agentapi.CodeNotAvailable || !strings.Contains(got.Error(), tt.says) {
				t.Errorf("got %v, want code 50 that says %q", err, tt.says)
			}
		})
	}
}

// Case R8: the time spent waiting for the host lock is not the request's own.
func TestLockThenClock(t *testing.T) {
	s, _, faults := service(t)
	d := &direct{lock: hostLock{path: t.TempDir() + "/host.lock"}, Service: *s}
	release, err := d.lock.exclusive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var deadline time.Time
	faults.Hook(func(ctx context.Context, _ memstore.Op) error {
		if deadline.IsZero() {
			deadline, _ = ctx.Deadline()
		}
		return nil
	})
	started, done := make(chan struct{}), make(chan error)
	go func() {
		close(started)
		done <- d.Del(t.Context(), agentapi.DelRequest{Attachment: attachment("c1")})
	}()
	<-started
	released := time.Now()
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if deadline.Before(released.Add(requestTimeout)) {
		t.Errorf("the request's deadline was set %v before its turn came", released.Add(requestTimeout).Sub(deadline))
	}
}
