// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/allod/allod/ipam/block"
	"github.com/allod/allod/ipam/datastore"
)

const (
	maxName = 253 // a Kubernetes object name
)

// digest names s in the alphabet of object names and label keys: 52 characters.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
}

// BlockName returns the object name of a block: its canonical CIDR with "." ":"
// "/" replaced, 10-64-0-64-29.
func BlockName(cidr netip.Prefix) string {
	s := strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(cidr.Masked().String())
	if s[0] == '-' {
		return "0" + s // "::"; no canonical address starts with "0::"
	}
	return s
}

// AffinityName returns the object name of a claim: <node>.<block name>. The dot
// keeps it unambiguous, because a block name has none. Owners that are no hosts,
// and hosts whose name would not be legal, get a hashed name.
func AffinityName(k datastore.AffinityKey) string {
	name := k.Owner.Name + "." + BlockName(k.CIDR)
	if k.Owner.Type != block.VirtualAffinity && legalName(name) {
		return name
	}
	return hashedName(name, k.Owner.String()+" "+k.CIDR.Masked().String())
}

// HandleName returns the object name of a handle: the ID itself where that is
// legal, else a hashed one.
func HandleName(id block.HandleID) string {
	if legalName(string(id)) {
		return string(id)
	}
	return hashedName(string(id), string(id))
}

// hashedName makes an identity a legal name that still begins readable.
func hashedName(readable, identity string) string {
	sum := digest(identity)
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(readable))
	clean = strings.TrimLeft(clean, "-")
	if limit := maxName - 1 - len(sum); len(clean) > limit {
		clean = clean[:limit]
	}
	if clean == "" {
		return sum
	}
	return clean + "-" + sum
}

// ValidateName says why name cannot be the name of an object, nil if it can.
func ValidateName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("metadata.name: missing")
	case len(name) > maxName:
		return fmt.Errorf("metadata.name: %d characters; at most %d are allowed", len(name), maxName)
	case !legalName(name):
		return fmt.Errorf("metadata.name: %q has other characters than a-z, 0-9, - and ., or a part that begins or ends with -", name)
	}
	return nil
}

// legalLabel reports whether s may be the value of a label.
func legalLabel(s string) bool { return len(validation.IsValidLabelValue(s)) == 0 }

// legalName reports whether s is a DNS subdomain as Kubernetes demands of names.
func legalName(s string) bool {
	if len(s) == 0 || len(s) > maxName {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || part[0] == '-' || part[len(part)-1] == '-' {
			return false
		}
		for _, c := range []byte(part) {
			if c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
				return false
			}
		}
	}
	return true
}
