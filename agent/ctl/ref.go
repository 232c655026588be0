// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"
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

func parseRef(s string) (ref, error) {
	kind, name, ok := strings.Cut(s, "/")
	if !ok || name == "" {
		return ref{}, fmt.Errorf("%q: want KIND/NAME, for example ippool/default-v4", s)
	}
	switch kind {
	case kindPool, kindReservation, kindConfiguration:
		return ref{kind, name}, nil
	}
	return ref{}, fmt.Errorf("%q: kind %q cannot be deleted; ippool, ipreservation and ipamconfiguration can", s, kind)
}
