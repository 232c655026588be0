// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/pool"
)

// FromPool returns the stored form of p with its admission as finalizer and
// condition. Deleting is not written: deletion is asked of a store, not set.
func FromPool(p pool.Pool) *IPPool {
	o := &IPPool{
		TypeMeta: meta(KindPool),
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Generation: p.Generation, CreationTimestamp: metav1.NewTime(p.Created),
		},
		Spec: IPPoolSpec{
			CIDR: p.Spec.CIDR.String(), BlockSize: p.Spec.BlockSize, Gateway: formatGateway(p.Spec.Gateway),
			NodeSelector: Selector(p.Spec.NodeSelector), NamespaceSelector: Selector(p.Spec.NamespaceSelector),
			AllowedUses: retype[Use](p.Spec.AllowedUses), AssignmentMode: p.Spec.AssignmentMode,
			Disabled: p.Spec.Disabled, IPIPMode: p.Spec.IPIPMode, VXLANMode: p.Spec.VXLANMode,
			NATOutgoing: p.Spec.NATOutgoing,
		},
	}
	o.UID = types.UID(p.UID)
	if p.Status.Finalizer {
		o.Finalizers = []string{PoolFinalizer}
	}
	if s := p.Status; s.Allocatable || s.Reason != "" || s.Message != "" || s.ObservedGeneration != 0 {
		status := metav1.ConditionFalse
		if s.Allocatable {
			status = metav1.ConditionTrue
		}
		o.Status.Conditions = []metav1.Condition{{
			Type: ConditionAllocatable, Status: status, Reason: s.Reason, Message: s.Message,
			ObservedGeneration: s.ObservedGeneration,
		}}
	}
	return o
}

// Pool returns the value of o with every default filled in. Text that cannot be
// read is an error that names its field; [IPPool.Validate] checks the rest.
func (o *IPPool) Pool() (pool.Pool, error) {
	var errs []error
	s := o.Spec
	p := pool.Pool{
		Name: o.Name, UID: string(o.UID), Generation: o.Generation, Deleting: o.DeletionTimestamp != nil,
		Spec: pool.Spec{
			BlockSize: s.BlockSize, NodeSelector: string(s.NodeSelector), NamespaceSelector: string(s.NamespaceSelector),
			AllowedUses: retype[pool.Use](s.AllowedUses), AssignmentMode: s.AssignmentMode, Disabled: s.Disabled,
			IPIPMode: s.IPIPMode, VXLANMode: s.VXLANMode, NATOutgoing: s.NATOutgoing,
		},
		Status: pool.Status{Finalizer: slices.Contains(o.Finalizers, PoolFinalizer)},
	}
	if !o.CreationTimestamp.IsZero() {
		p.Created = o.CreationTimestamp.UTC()
	}
	var err error
	if p.Spec.CIDR, err = parseCIDR(s.CIDR); err != nil {
		errs = append(errs, fmt.Errorf("spec.cidr: %w", err))
	}
	if p.Spec.Gateway, err = parseGateway(s.Gateway); err != nil {
		errs = append(errs, fmt.Errorf("spec.gateway: %w", err))
	}
	for _, c := range o.Status.Conditions {
		if c.Type == ConditionAllocatable {
			p.Status.Allocatable = c.Status == metav1.ConditionTrue
			p.Status.Reason, p.Status.Message, p.Status.ObservedGeneration = c.Reason, c.Message, c.ObservedGeneration
		}
	}
	if errs != nil {
		return pool.Pool{}, errors.Join(errs...)
	}
	p.Spec = p.Spec.WithDefaults()
	return p, nil
}

// Validate returns every rule that o breaks, joined; each error names its field.
func (o *IPPool) Validate() error {
	p, err := o.Pool()
	if err == nil {
		err = p.Validate()
	}
	return errors.Join(ValidateName(o.Name), err,
		selectorLimits("nodeSelector", o.Spec.NodeSelector), selectorLimits("namespaceSelector", o.Spec.NamespaceSelector))
}

// FromReservation returns the stored form of r.
func FromReservation(r pool.Reservation) *IPReservation {
	o := &IPReservation{TypeMeta: meta(KindReservation), ObjectMeta: metav1.ObjectMeta{Name: r.Name}}
	for _, c := range r.CIDRs {
		o.Spec.ReservedCIDRs = append(o.Spec.ReservedCIDRs, c.String())
	}
	return o
}

// Reservation returns the value of o.
func (o *IPReservation) Reservation() (pool.Reservation, error) {
	var errs []error
	r := pool.Reservation{Name: o.Name}
	for i, s := range o.Spec.ReservedCIDRs {
		c, err := parseCIDR(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.reservedCIDRs[%d]: %w", i, err))
			continue
		}
		r.CIDRs = append(r.CIDRs, c)
	}
	if errs != nil {
		return pool.Reservation{}, errors.Join(errs...)
	}
	return r, nil
}

// Validate returns every rule that o breaks, joined; each error names its field.
func (o *IPReservation) Validate() error {
	r, err := o.Reservation()
	if err == nil {
		err = r.Validate()
	}
	return errors.Join(ValidateName(o.Name), err, tooMany("reservedCIDRs", len(o.Spec.ReservedCIDRs), maxReserved))
}

// FromConfig returns the stored form of c with every field written out.
func FromConfig(c datastore.Config) *IPAMConfiguration {
	auto, persistence := c.AutoAllocateBlocks, Enabled
	if !c.KubeVirtVMAddressPersistence {
		persistence = Disabled
	}
	return &IPAMConfiguration{
		TypeMeta:   meta(KindConfiguration),
		ObjectMeta: metav1.ObjectMeta{Name: datastore.DefaultConfig},
		Spec: IPAMConfigurationSpec{
			StrictAffinity: c.StrictAffinity, AutoAllocateBlocks: &auto, MaxBlocksPerHost: c.MaxBlocksPerHost,
			KubeVirtVMAddressPersistence: persistence,
			IPCooldownSeconds:            int(c.IPCooldown / time.Second),
			LeakGracePeriod:              c.LeakGracePeriod.String(),
		},
	}
}

// Config returns the value of o; an absent field has its default (case R15).
func (o *IPAMConfiguration) Config() (datastore.Config, error) {
	var errs []error
	c := datastore.ConfigDefaults()
	s := o.Spec
	c.StrictAffinity, c.MaxBlocksPerHost = s.StrictAffinity, s.MaxBlocksPerHost
	if s.AutoAllocateBlocks != nil {
		c.AutoAllocateBlocks = *s.AutoAllocateBlocks
	}
	switch s.KubeVirtVMAddressPersistence {
	case "":
	case Enabled, Disabled:
		c.KubeVirtVMAddressPersistence = s.KubeVirtVMAddressPersistence == Enabled
	default:
		errs = append(errs, fmt.Errorf("spec.kubeVirtVMAddressPersistence: %q is neither %s nor %s",
			s.KubeVirtVMAddressPersistence, Enabled, Disabled))
	}
	if s.IPCooldownSeconds > math.MaxInt32 || s.IPCooldownSeconds < math.MinInt32 {
		errs = append(errs, fmt.Errorf("spec.ipCooldownSeconds: %d is outside 0 to %d",
			s.IPCooldownSeconds, int(datastore.MaxIPCooldown.Seconds())))
	} else {
		c.IPCooldown = time.Duration(s.IPCooldownSeconds) * time.Second
	}
	if s.LeakGracePeriod != "" {
		d, err := time.ParseDuration(s.LeakGracePeriod)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.leakGracePeriod: %q is no duration such as 15m", s.LeakGracePeriod))
		}
		c.LeakGracePeriod = d
	}
	if errs != nil {
		return datastore.Config{}, errors.Join(errs...)
	}
	return c, nil
}

// Validate returns every rule that o breaks, joined; each error names its field.
func (o *IPAMConfiguration) Validate() error {
	c, err := o.Config()
	if err == nil {
		err = c.Validate()
	}
	err = errors.Join(err, tooLong("leakGracePeriod", o.Spec.LeakGracePeriod, maxDuration))
	if o.Name != datastore.DefaultConfig {
		err = errors.Join(fmt.Errorf("metadata.name: %q; the one %s is named %q",
			o.Name, KindConfiguration, datastore.DefaultConfig), err)
	}
	return err
}

const gatewayFirst = "first"

func formatGateway(g pool.Gateway) string {
	switch {
	case g.First:
		return gatewayFirst
	case g.Addr.IsValid():
		return g.Addr.String()
	}
	return ""
}

func parseGateway(s string) (pool.Gateway, error) {
	switch s {
	case "":
		return pool.Gateway{}, nil
	case gatewayFirst:
		return pool.Gateway{First: true}, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return pool.Gateway{}, fmt.Errorf("%q is neither an address nor %q", s, gatewayFirst)
	}
	return pool.Gateway{Addr: a}, nil
}

func parseCIDR(s string) (netip.Prefix, error) {
	c, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is no CIDR such as 10.0.0.0/16", s)
	}
	return c, nil
}

// retype copies a list of names into one of another type.
func retype[To, From ~string](from []From) []To {
	var to []To
	for _, f := range from {
		to = append(to, To(f))
	}
	return to
}
