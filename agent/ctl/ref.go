// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// ref names an object that operators write, as apply prints it: ippool/default-v4.
type ref struct{ kind, name string }

func (r ref) String() string { return r.kind + "/" + r.name }

// The kinds of a ref.
var (
	kindPool          = strings.ToLower(v1alpha1.KindPool)
	kindReservation   = strings.ToLower(v1alpha1.KindReservation)
	kindConfiguration = strings.ToLower(v1alpha1.KindConfiguration)
)

func refOf(o v1alpha1.Object) ref {
	kind, name, _ := strings.Cut(o.Ref(), "/")
	return ref{strings.ToLower(kind), name}
}

// kindNames are the names of each kind, as the CRDs have them: singular, plural, short.
var kindNames = map[string][]string{
	kindPool:          {kindPool, "ippools", "ipp"},
	kindReservation:   {kindReservation, "ipreservations", "ipr"},
	kindConfiguration: {kindConfiguration, "ipamconfigurations", "ipamconfig"},
}

// kindOf returns the kind of that name, "" if there is none. As kubectl does it takes
// any case, and the group after the name.
func kindOf(name string) string {
	name = strings.TrimSuffix(strings.ToLower(name), "."+v1alpha1.Group)
	for kind, names := range kindNames {
		if slices.Contains(names, name) {
			return kind
		}
	}
	return ""
}

func parseRef(s string) (ref, error) {
	kind, name, ok := strings.Cut(s, "/")
	if !ok || name == "" {
		return ref{}, fmt.Errorf("%q: want KIND/NAME, for example ippool/default-v4", s)
	}
	if k := kindOf(kind); k != "" {
		return ref{k, name}, nil
	}
	return ref{}, fmt.Errorf("%q: kind %q cannot be deleted; ippool, ipreservation and ipamconfiguration can", s, kind)
}
