// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"math/big"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func addrs(ss ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range ss {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestUsageOf(t *testing.T) {
	for _, c := range []struct {
		name                                                string
		pool                                                Pool
		reserved                                            []Reservation
		within                                              string
		allocated, cooling                                  []netip.Addr
		capacity, inUse, cold, reservedCount, availableLeft string
	}{
		{"empty pool", small("10.0.0.0/24", 26, ""), nil, "10.0.0.0/24", nil, nil, "256", "0", "0", "0", "256"},
		{"one of each", small("10.0.0.0/24", 26, "first"), nil, "10.0.0.0/26", addrs("10.0.0.5"), addrs("10.0.0.6"), "64", "1", "1", "1", "61"},
		{
			"a reserved address in use counts once", small("10.0.0.0/24", 26, ""), reserve("10.0.0.0/30"), "10.0.0.0/24",
			addrs("10.0.0.1", "10.0.0.9"), addrs("10.0.0.2"), "256", "2", "1", "2", "251",
		},
		{
			"repeated, in both lists, outside", small("10.0.0.0/24", 26, ""), nil, "10.0.0.0/26",
			addrs("10.0.0.9", "10.0.0.9", "10.0.0.70"), addrs("10.0.0.9", "fd00::1"), "64", "1", "0", "0", "63",
		},
		{"case C3: /48", small("fd00::/48", 122, ""), nil, "fd00::/48", addrs("fd00::1"), nil, "1208925819614629174706176", "1", "0", "0", "1208925819614629174706175"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := UsageOf(cidr(c.within), NewUnassignable(c.pool, c.reserved), c.allocated, c.cooling)
			got := [5]string{u.Capacity.String(), u.Allocated.String(), u.Cooling.String(), u.Reserved.String(), u.Available.String()}
			if want := [5]string{c.capacity, c.inUse, c.cold, c.reservedCount, c.availableLeft}; got != want {
				t.Errorf("capacity, allocated, cooling, reserved, available = %v; want %v", got, want)
			}
		})
	}
	t.Run("no CIDR", func(t *testing.T) {
		if u := UsageOf(netip.Prefix{}, Unassignable{}, addrs("10.0.0.1"), nil); u.Capacity.Sign() != 0 || u.Available.Sign() != 0 {
			t.Errorf("usage of nothing: %+v", u)
		}
	})
}

// TestUsageAgainstMap counts each address of small pools by its one state
// (INV-13: the same arithmetic as allocation's).
func TestUsageAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPool(t)
		rs := drawReservations(t, p)
		all := addressesOf(p.Spec.CIDR)
		allocated, cooling := drawSome(t, all, "allocated"), drawSome(t, all, "cooling")
		within := rapid.SampledFrom(append(blocksOf(p), p.Spec.CIDR)).Draw(t, "within")

		state := map[netip.Addr]string{}
		for a, un := range unassignableOf(p, rs) {
			state[a] = "available"
			if un {
				state[a] = "reserved"
			}
		}
		for _, a := range cooling {
			state[a] = "cooling"
		}
		for _, a := range allocated {
			state[a] = "allocated"
		}
		want := map[string]int64{}
		for _, a := range addressesOf(within) {
			want[state[a]]++
			want["capacity"]++
		}

		u := UsageOf(within, NewUnassignable(p, rs), allocated, cooling)
		for name, got := range map[string]*big.Int{
			"capacity": u.Capacity, "allocated": u.Allocated, "cooling": u.Cooling, "reserved": u.Reserved, "available": u.Available,
		} {
			if got.Cmp(big.NewInt(want[name])) != 0 {
				t.Errorf("%s = %v; want %d", name, got, want[name])
			}
		}
		sum := new(big.Int).Add(u.Allocated, u.Cooling)
		if sum.Add(sum, u.Reserved).Add(sum, u.Available).Cmp(u.Capacity) != 0 {
			t.Errorf("%+v does not add up", u)
		}
	})
}
