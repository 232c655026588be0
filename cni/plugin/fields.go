// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// Checks of single values: the JSON's shape in, the domain's value out. An error
// starts with the path below the field ("[0].gw: ", or ": " for the field itself).

// maxSocketPath is what the kernel's sockaddr_un holds, without the closing NUL.
const maxSocketPath = 107

const ipamName = "allod"

func ipamTypeOf(s string) (string, error) {
	if s != ipamName {
		return "", fmt.Errorf(": %s, want %q", short(s), ipamName)
	}
	return s, nil
}

func oneOf[T ~string](allowed ...T) func(string) (T, error) {
	return func(s string) (T, error) {
		if slices.Contains(allowed, T(s)) {
			return T(s), nil
		}
		var names []string
		for _, a := range allowed {
			names = append(names, string(a))
		}
		return "", fmt.Errorf(": %s, want one of %s", short(s), strings.Join(names, ", "))
	}
}

func families(names []string) ([]Family, error) {
	if len(names) == 0 {
		return nil, errors.New(": empty, want IPv4, IPv6 or both")
	}
	var fs []Family
	for i, n := range names {
		f, err := oneOf(IPv4, IPv6)(n)
		if err != nil {
			return nil, fmt.Errorf("[%d]%w", i, err)
		}
		if slices.Contains(fs, f) {
			return nil, fmt.Errorf("[%d]: %s twice", i, f)
		}
		fs = append(fs, f)
	}
	return fs, nil
}

func pools(f Family) func([]string) ([]string, error) {
	return func(names []string) ([]string, error) {
		var ps []string
		for i, n := range names {
			p, err := poolName(n, f)
			if err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			ps = append(ps, p)
		}
		return ps, nil
	}
}

// poolName accepts an object name, or a CIDR of family f, which it canonicalises.
func poolName(s string, f Family) (string, error) {
	if !strings.Contains(s, "/") {
		if _, err := netip.ParseAddr(s); err == nil || !isName(s) {
			return "", fmt.Errorf("%s is neither a pool's name nor a CIDR", short(s))
		}
		return s, nil
	}
	p, err := cidr(s)
	if err != nil {
		return "", err
	}
	if familyOf(p.Addr()) != f {
		return "", fmt.Errorf("%s is %s", p, familyOf(p.Addr()))
	}
	return p.String(), nil
}

// jsonRoute is a route as it is written in the configuration.
type jsonRoute struct {
	Dst string `json:"dst"`
	GW  string `json:"gw"`
}

// routes never returns nil: an empty list in the configuration means no route,
// not the default ones.
func routes(rs []jsonRoute) ([]Route, error) {
	out := make([]Route, 0, len(rs))
	for i, r := range rs {
		dst, err := cidr(r.Dst)
		if err != nil {
			return nil, fmt.Errorf("[%d].dst: %w", i, err)
		}
		route := Route{Dst: dst}
		if r.GW != "" {
			gw, err := address(r.GW)
			if err != nil {
				return nil, fmt.Errorf("[%d].gw: %w", i, err)
			}
			if familyOf(gw) != familyOf(dst.Addr()) {
				return nil, fmt.Errorf("[%d].gw: %s is %s, dst is not", i, gw, familyOf(gw))
			}
			route.Gateway = gw
		}
		out = append(out, route)
	}
	return out, nil
}

func nameservers(list []string) ([]string, error) {
	for i, s := range list {
		// A nameserver may be link-local, with a zone, as in resolv.conf.
		if _, err := netip.ParseAddr(s); err != nil {
			return nil, fmt.Errorf("[%d]: %s is not an address", i, short(s))
		}
	}
	return list, nil
}

func word(s string) (string, error) {
	if err := checkWord(s); err != nil {
		return "", fmt.Errorf(": %w", err)
	}
	return s, nil
}

func words(list []string) ([]string, error) {
	for i, s := range list {
		if err := checkWord(s); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return list, nil
}

// checkWord accepts what can stand as one word on a line of resolv.conf.
func checkWord(s string) error {
	bad := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	if s == "" || strings.ContainsFunc(s, bad) {
		return fmt.Errorf("%s is empty or has spaces", short(s))
	}
	return nil
}

func absolutePath(s string) (string, error) {
	if !filepath.IsAbs(s) || strings.ContainsRune(s, 0) {
		return "", fmt.Errorf(": %s is not an absolute path", short(s))
	}
	return filepath.Clean(s), nil
}

func socketPath(s string) (string, error) {
	s, err := absolutePath(s)
	if err == nil && len(s) > maxSocketPath {
		return "", fmt.Errorf(": longer than the %d bytes of a unix socket's path", maxSocketPath)
	}
	return s, err
}

func nodeName(s string) (string, error) {
	if !isName(s) {
		return "", fmt.Errorf(": %s is not a node's name (lower case letters, digits, '-' and '.')", short(s))
	}
	return s, nil
}

// staticAddresses reads addresses, with or without a prefix length; the length is
// dropped, as the mask is ours to decide.
func staticAddresses(list []string) ([]netip.Addr, error) {
	if len(list) > maxStatic {
		return nil, fmt.Errorf("%d addresses, at most %d can be given", len(list), maxStatic)
	}
	var as []netip.Addr
	for i, s := range list {
		bare, length, found := strings.Cut(s, "/")
		if found {
			if _, err := netip.ParsePrefix(bare + "/" + length); err != nil {
				return nil, fmt.Errorf("[%d]: %s is neither an address nor an address with a prefix length", i, short(s))
			}
		}
		a, err := address(bare)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		if slices.Contains(as, a) {
			return nil, fmt.Errorf("[%d]: %s twice", i, a)
		}
		as = append(as, a)
	}
	return as, nil
}

func address(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil || a.Zone() != "":
		return netip.Addr{}, fmt.Errorf("%s is not an address", short(s))
	case a.IsUnspecified() || a.IsMulticast():
		return netip.Addr{}, fmt.Errorf("%s is not an address a host can have", short(s))
	}
	return a.Unmap(), nil
}

func cidr(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil || p.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%s is not a CIDR", short(s))
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("%s has bits set beyond its length; the network is %s", p, p.Masked())
	}
	return p, nil
}

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// isName: a DNS subdomain, as Kubernetes wants for names of nodes and pools.
func isName(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return len(s) <= 253
}

// short quotes a value for a message, a long one in part.
func short(s string) string {
	const most = 64
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

// kindName is what a JSON writer calls a Go kind.
func kindName(k reflect.Kind) string {
	switch k {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	default:
		return "a " + k.String()
	}
}

// maxStatic bounds the static addresses of one interface.
const maxStatic = 64
