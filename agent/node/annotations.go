// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/allod/allod/cni/agentapi"
	"github.com/allod/allod/ipam/pool"
)

// The annotations that ask for something other than the network's configuration.
// Each is a JSON list of strings. A pod's goes before its namespace's, and that
// before the configuration; given addresses are a pod's alone.
const (
	annotationPrefix = "ipam.allod.io/"
	IPv4PoolsKey     = annotationPrefix + "ipv4pools"
	IPv6PoolsKey     = annotationPrefix + "ipv6pools"
	FamiliesKey      = annotationPrefix + "ipFamilies"
	AddrsKey         = annotationPrefix + "ipAddrs"
)

// maxAnnotation and maxItems bound what is read of an annotation: it is written by
// whoever may create pods.
const (
	maxAnnotation = 8 << 10
	maxItems      = 64
)

var keys = []string{IPv4PoolsKey, IPv6PoolsKey, FamiliesKey, AddrsKey}

// annotated returns r as the annotations of namespace and pod change it. What an
// annotation says wrongly is an error that names it, and so is one of ours that does
// not exist, which is a slip of the pen: a pod must not silently get an address from
// another pool than it asked for.
func annotated(r agentapi.AddRequest, namespace, pod map[string]string) (agentapi.AddRequest, error) {
	err := errors.Join(unknownKeys("namespace", namespace), unknownKeys("pod", pod))
	if _, ok := namespace[AddrsKey]; ok {
		err = errors.Join(err, errors.New("namespace annotation "+AddrsKey+": addresses can be given to a pod only"))
	}
	pools4, err4 := poolList(IPv4PoolsKey, namespace, pod)
	pools6, err6 := poolList(IPv6PoolsKey, namespace, pod)
	families, errF := familyList(namespace, pod)
	addrs, errA := addrList(pod)
	if err := errors.Join(err, err4, err6, errF, errA); err != nil {
		return r, err
	}
	if addrs != nil { // naming an address is naming its pool: only the pod's own lists go with it
		r.Pools4, r.Pools6 = own(pools4, IPv4PoolsKey, pod), own(pools6, IPv6PoolsKey, pod)
	} else {
		r.Pools4, r.Pools6 = or(pools4, r.Pools4), or(pools6, r.Pools6)
	}
	switch {
	case addrs != nil && len(r.Addrs) > 0:
		return r, errors.New("pod annotation " + AddrsKey + " and static addresses of the runtime: use one of the two")
	case addrs != nil:
		r.Addrs = addrs
		r.Num4, r.Num6 = 0, 0
		for _, a := range addrs {
			if pool.FamilyOf(a) == pool.V4 {
				r.Num4++
			} else {
				r.Num6++
			}
		}
	case families != nil && len(r.Addrs) == 0:
		r.Num4, r.Num6 = 0, 0
		for _, f := range families {
			if f == pool.V4 {
				r.Num4 = 1
			} else {
				r.Num6 = 1
			}
		}
	}
	for key, n := range map[string]int{IPv4PoolsKey: r.Num4, IPv6PoolsKey: r.Num6} {
		if _, ok := pod[key]; ok && n == 0 {
			return r, fmt.Errorf("pod annotation %s: the pod gets no address of that family; ask for it with %s, or remove the annotation", key, FamiliesKey)
		}
	}
	return r, nil
}

// unknownKeys refuses keys of ours that mean nothing.
func unknownKeys(whose string, annotations map[string]string) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(strings.ToLower(key), annotationPrefix) && !slices.Contains(keys, key) {
			errs = append(errs, fmt.Errorf("%s annotation %s: unknown; known are %s", whose, key, strings.Join(keys, ", ")))
		}
	}
	return errors.Join(errs...)
}

func own(list []string, key string, pod map[string]string) []string {
	if _, ok := pod[key]; ok {
		return list
	}
	return nil
}

func or(list, fallback []string) []string {
	if list != nil {
		return list
	}
	return fallback
}

// asked says which annotations decided about the pools; "" for none.
func asked(namespace, pod map[string]string) string {
	var by []string
	for _, key := range []string{IPv4PoolsKey, IPv6PoolsKey, AddrsKey} {
		if _, whose, ok := effective(key, namespace, pod); ok {
			by = append(by, whose+" annotation "+key)
		}
	}
	return strings.Join(by, ", ")
}

// effective returns the annotation that holds, and whose it is.
func effective(key string, namespace, pod map[string]string) (value, whose string, ok bool) {
	if v, ok := pod[key]; ok {
		return v, "pod", true
	}
	v, ok := namespace[key]
	return v, "namespace", ok
}

// stringList reads a JSON list of distinct, non-empty strings.
func stringList(whose, key, value string) ([]string, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s annotation %s: "+format, append([]any{whose, key}, args...)...)
	}
	if len(value) > maxAnnotation {
		return nil, bad("longer than %d bytes", maxAnnotation)
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(value)))
	var list []string
	if err := dec.Decode(&list); err != nil || list == nil {
		return nil, bad(`want a JSON list of strings, for example ["a", "b"]`)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, bad("something follows the list")
	}
	if len(list) == 0 || len(list) > maxItems {
		return nil, bad("%d entries; want 1 to %d", len(list), maxItems)
	}
	for i, s := range list {
		if strings.TrimSpace(s) != s || s == "" {
			return nil, bad("entry %d is empty or has blanks around it", i)
		}
		if slices.Contains(list[:i], s) {
			return nil, bad("%q is there twice", s)
		}
	}
	return list, nil
}

func poolList(key string, namespace, pod map[string]string) ([]string, error) {
	v, whose, ok := effective(key, namespace, pod)
	if !ok {
		return nil, nil
	}
	return stringList(whose, key, v)
}

func familyList(namespace, pod map[string]string) ([]pool.Family, error) {
	v, whose, ok := effective(FamiliesKey, namespace, pod)
	if !ok {
		return nil, nil
	}
	list, err := stringList(whose, FamiliesKey, v)
	if err != nil {
		return nil, err
	}
	var families []pool.Family
	for _, s := range list {
		switch s {
		case pool.V4.String():
			families = append(families, pool.V4)
		case pool.V6.String():
			families = append(families, pool.V6)
		default:
			return nil, fmt.Errorf("%s annotation %s: %q is neither IPv4 nor IPv6", whose, FamiliesKey, s)
		}
	}
	return families, nil
}

func addrList(pod map[string]string) ([]netip.Addr, error) {
	v, ok := pod[AddrsKey]
	if !ok {
		return nil, nil
	}
	list, err := stringList("pod", AddrsKey, v)
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, s := range list {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return nil, fmt.Errorf("pod annotation %s: %q is no IPv4 or IPv6 address", AddrsKey, s)
		}
		if slices.Contains(addrs, a) {
			return nil, fmt.Errorf("pod annotation %s: %s is there twice", AddrsKey, a)
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}
