// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The prefix lengths a block may have, by family. Larger blocks would outgrow
// etcd's object limit.
const (
	minBlockSize4, maxBlockSize4, defaultBlockSize4 = 24, 32, 26
	minBlockSize6, maxBlockSize6, defaultBlockSize6 = 120, 128, 122
)

// unusable is what no pool may overlap.
var unusable = []struct {
	cidr netip.Prefix
	what string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{mapped, "IPv4-mapped"},
}

var mapped = netip.PrefixFrom(netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff}), 96)

// WithDefaults returns s with every empty field that has a default filled in.
// blockSize becomes 26 or 122, or the pool's own length if that is longer, so
// that the smallest pools are legal (case C5). allowedUses becomes Workload and
// Tunnel, or Workload alone where a namespaceSelector rules tunnels out.
func (s Spec) WithDefaults() Spec {
	if s.BlockSize == 0 && s.CIDR.IsValid() {
		s.BlockSize = max(s.CIDR.Bits(), defaultBlockSize4)
		if s.CIDR.Addr().Is6() {
			s.BlockSize = max(s.CIDR.Bits(), defaultBlockSize6)
		}
	}
	if len(s.AllowedUses) == 0 {
		s.AllowedUses = []Use{UseWorkload}
		if s.NamespaceSelector == "" {
			s.AllowedUses = append(s.AllowedUses, UseTunnel)
		}
	}
	if s.AssignmentMode == "" {
		s.AssignmentMode = Automatic
	}
	if s.IPIPMode == "" {
		s.IPIPMode = Never
	}
	if s.VXLANMode == "" {
		s.VXLANMode = Never
	}
	return s
}

// Validate returns everything that is wrong with the name and the spec of p,
// defaults filled in, as joined errors. Each begins with the field and says how to
// put it right.
func (p Pool) Validate() error {
	return errors.Join(append(p.Spec.validate(), validateName(p.Name))...)
}

// ValidateChange returns what of old may not become p. The CIDR of a pool cannot
// change: its blocks, and the addresses in them, would be in no pool. blockSize
// may change; admission refuses the pool while blocks of another size exist
// (case C8).
func (p Pool) ValidateChange(old Pool) error {
	if p.Spec.CIDR != old.Spec.CIDR {
		return fmt.Errorf("spec.cidr: cannot change from %v to %v; create another pool", old.Spec.CIDR, p.Spec.CIDR)
	}
	return nil
}

// Validate returns everything that is wrong with r as joined errors.
func (r Reservation) Validate() error {
	errs := []error{validateName(r.Name)}
	if len(r.CIDRs) == 0 {
		errs = append(errs, errors.New("spec.reservedCIDRs: empty; name at least one CIDR"))
	}
	for i, c := range r.CIDRs {
		if err := canonical(c); err != nil {
			errs = append(errs, fmt.Errorf("spec.reservedCIDRs[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

func validateName(name string) error {
	if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
		return fmt.Errorf("metadata.name: %q: %s", name, strings.Join(msgs, "; "))
	}
	return nil
}

func (s Spec) validate() []error {
	var errs []error
	if err := s.validateCIDR(); err != nil {
		errs = append(errs, err)
	} else {
		// A CIDR that means nothing says nothing about these.
		errs = append(errs, s.validateBlockSize(), s.validateGateway())
	}
	errs = append(errs,
		validateSelector("spec.nodeSelector", s.NodeSelector),
		validateSelector("spec.namespaceSelector", s.NamespaceSelector))
	errs = append(errs, s.validateUses()...)
	errs = append(errs, s.validateModes()...)
	return errs
}

// canonical requires the one spelling of a CIDR that object names and comparisons
// rely on.
func canonical(c netip.Prefix) error {
	switch {
	case !c.IsValid():
		return errors.New("missing or not a CIDR; write it like 10.0.0.0/16 or fd00::/64")
	case c.Addr().Is4In6():
		return fmt.Errorf("%v is an IPv4-mapped IPv6 CIDR; write it as IPv4", c)
	case c.Masked() != c:
		return fmt.Errorf("%v has host bits set; write %v", c, c.Masked())
	}
	return nil
}

func (s Spec) validateCIDR() error {
	if err := canonical(s.CIDR); err != nil {
		return fmt.Errorf("spec.cidr: %w", err)
	}
	for _, u := range unusable {
		if s.CIDR.Overlaps(u.cidr) {
			return fmt.Errorf("spec.cidr: %v overlaps %v (%s), which hosts cannot use; choose another range", s.CIDR, u.cidr, u.what)
		}
	}
	return nil
}

func (s Spec) validateBlockSize() error {
	shortest, longest := minBlockSize4, maxBlockSize4
	if s.CIDR.Addr().Is6() {
		shortest, longest = minBlockSize6, maxBlockSize6
	}
	shortest = max(shortest, s.CIDR.Bits())
	if s.BlockSize < shortest || s.BlockSize > longest {
		return fmt.Errorf("spec.blockSize: %d does not fit %v; choose %d to %d, or leave it out", s.BlockSize, s.CIDR, shortest, longest)
	}
	return nil
}

func (s Spec) validateGateway() error {
	g := s.Gateway
	switch {
	case g == Gateway{}:
		return nil
	case g.First && g.Addr.IsValid():
		return fmt.Errorf("spec.gateway: both \"first\" and %v; choose one", g.Addr)
	case g.First && s.BlockSize == s.CIDR.Addr().BitLen():
		return fmt.Errorf("spec.gateway: \"first\" takes the only address of each block of /%d; set spec.blockSize to %d or less, or name one address",
			s.BlockSize, s.BlockSize-1)
	case g.First:
		return nil
	case !s.CIDR.Contains(g.Addr): // nor does it contain an address with a zone
		return fmt.Errorf("spec.gateway: %v is not in spec.cidr %v; choose an address of the pool, or \"first\"", g.Addr, s.CIDR)
	}
	return nil
}

// hints translate what people bring along from other selector languages.
var hints = []struct{ text, hint string }{
	{"all()", "leave it empty to select all"},
	{"has(", "write the key alone for \"has the label\", !key for \"has not\""},
	{"&&", "separate requirements with commas"},
	{"||", "use \"key in (a, b)\""},
	{"'", "write values without quotes"},
	{"\"", "write values without quotes"},
}

func validateSelector(field, text string) error {
	_, err := labels.Parse(text)
	if err == nil {
		return nil
	}
	hint := "use the Kubernetes syntax: key=value, key in (a, b), key, !key"
	for _, h := range hints {
		if strings.Contains(text, h.text) {
			hint = h.hint
			break
		}
	}
	return fmt.Errorf("%s: %q: %w; %s", field, text, err, hint)
}

func (s Spec) validateUses() []error {
	var errs []error
	add := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("spec.allowedUses: "+format, args...))
	}
	if len(s.AllowedUses) == 0 {
		add("empty; list Workload, Tunnel or LoadBalancer")
	}
	for i, u := range s.AllowedUses {
		switch {
		case u != UseWorkload && u != UseTunnel && u != UseLoadBalancer:
			add("unknown use %q; use Workload, Tunnel or LoadBalancer", string(u))
		case slices.Contains(s.AllowedUses[:i], u):
			add("%s is listed twice; remove one", u)
		}
	}
	if slices.Contains(s.AllowedUses, UseLoadBalancer) {
		if slices.ContainsFunc(s.AllowedUses, func(u Use) bool { return u != UseLoadBalancer }) {
			add("LoadBalancer cannot be combined with other uses; create a pool of its own")
		}
		if s.NodeSelector != "" {
			add("LoadBalancer addresses belong to no node; remove spec.nodeSelector")
		}
		if s.encapsulated() {
			add("LoadBalancer addresses are not encapsulated; set spec.ipipMode and spec.vxlanMode to Never")
		}
	}
	if slices.Contains(s.AllowedUses, UseTunnel) && s.NamespaceSelector != "" {
		add("Tunnel addresses belong to no namespace; remove Tunnel or spec.namespaceSelector")
	}
	return errs
}

func (s Spec) encapsulated() bool {
	return s.IPIPMode == Always || s.IPIPMode == CrossSubnet || s.VXLANMode == Always || s.VXLANMode == CrossSubnet
}

func (s Spec) validateModes() []error {
	var errs []error
	if m := s.AssignmentMode; m != Automatic && m != Manual {
		errs = append(errs, fmt.Errorf("spec.assignmentMode: unknown mode %q; use Automatic or Manual", string(m)))
	}
	for _, f := range []struct {
		field string
		mode  TunnelMode
	}{{"spec.ipipMode", s.IPIPMode}, {"spec.vxlanMode", s.VXLANMode}} {
		if f.mode != Never && f.mode != Always && f.mode != CrossSubnet {
			errs = append(errs, fmt.Errorf("%s: unknown mode %q; use Never, Always or CrossSubnet", f.field, string(f.mode)))
		}
	}
	ipip := s.IPIPMode == Always || s.IPIPMode == CrossSubnet
	if ipip && s.CIDR.Addr().Is6() {
		errs = append(errs, errors.New("spec.ipipMode: IPIP carries IPv4 only; set Never, and spec.vxlanMode if the pool needs a tunnel"))
	}
	if ipip && (s.VXLANMode == Always || s.VXLANMode == CrossSubnet) {
		errs = append(errs, errors.New("spec.ipipMode: cannot be on together with spec.vxlanMode; set one of them to Never"))
	}
	return errs
}
