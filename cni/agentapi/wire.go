// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// The verbs' paths, one POST each. The version is that of the conventions in the
// package comment; it does not move with a new field or verb.
const (
	pathAdd    = "/v1/add"
	pathCheck  = "/v1/check"
	pathDel    = "/v1/del"
	pathGC     = "/v1/gc"
	pathStatus = "/v1/status"
)

const (
	contentType = "application/json"
	// maxRequest holds a GC list of some 20,000 attachments.
	maxRequest = 4 << 20
	maxReply   = 1 << 20
	// maxAddrs is the most addresses an attachment may ask for.
	maxAddrs = 64
)

// none is the body of a request or reply that says nothing.
type none struct{}

func (none) validate() error { return nil }

// request is what the server accepts: decoded JSON that may still make no sense.
type request interface{ validate() error }

// decode reads exactly one JSON value of at most limit bytes from r into v.
// Fields that v does not know are ignored (see the package comment).
func decode(r io.Reader, limit int64, v any) error {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return err
	}
	if int64(len(data)) > limit {
		return fmt.Errorf("longer than %d bytes", limit)
	}
	return json.Unmarshal(data, v)
}

func (a Attachment) validate() error {
	switch {
	case a.Network == "":
		return errors.New("network: empty")
	case a.ContainerID == "":
		return errors.New("containerID: empty")
	case a.IfName == "":
		return errors.New("ifName: empty")
	}
	return nil
}

func (r AddRequest) validate() error {
	if err := r.Attachment.validate(); err != nil {
		return err
	}
	if r.Num4 < 0 || r.Num6 < 0 || r.Num4 > maxAddrs || r.Num6 > maxAddrs || r.Num4+r.Num6 == 0 {
		return fmt.Errorf("num4, num6: %d and %d: want 0 to %d each, one at least", r.Num4, r.Num6, maxAddrs)
	}
	if len(r.Addrs) == 0 {
		return nil
	}
	n4, n6, err := countFamilies(r.Addrs)
	if err != nil {
		return err
	}
	if n4 != r.Num4 || n6 != r.Num6 {
		return fmt.Errorf("addrs: %d IPv4 and %d IPv6 addresses, but num4 is %d and num6 %d", n4, n6, r.Num4, r.Num6)
	}
	return nil
}

func (r StatusRequest) validate() error {
	if r.Num4 < 0 || r.Num6 < 0 || r.Num4 > maxAddrs || r.Num6 > maxAddrs {
		return fmt.Errorf("num4, num6: %d and %d: want 0 to %d each", r.Num4, r.Num6, maxAddrs)
	}
	return nil
}

func (r CheckRequest) validate() error {
	if err := r.Attachment.validate(); err != nil {
		return err
	}
	if len(r.Addrs) == 0 {
		return errors.New("addrs: empty")
	}
	_, _, err := countFamilies(r.Addrs)
	return err
}

func (r DelRequest) validate() error { return r.Attachment.validate() }

// validate refuses the whole list for one bad entry: a list with a hole in it
// would release what the hole stood for (INV-2).
func (r GCRequest) validate() error {
	if r.Network == "" {
		return errors.New("network: empty")
	}
	if r.Valid == nil {
		return errors.New("valid: missing; where nothing is valid it is an empty list")
	}
	for i, a := range r.Valid {
		if err := a.validate(); err != nil {
			return fmt.Errorf("valid[%d].%w", i, err)
		}
		if a.Network != r.Network {
			return fmt.Errorf("valid[%d].network: %q, but the request is for %q", i, a.Network, r.Network)
		}
	}
	return nil
}

func countFamilies(addrs []netip.Addr) (n4, n6 int, err error) {
	seen := make(map[netip.Addr]bool, len(addrs))
	for i, a := range addrs {
		switch {
		case !a.IsValid() || a.Zone() != "" || a.Is4In6():
			return 0, 0, fmt.Errorf("addrs[%d]: %q is not a plain address", i, a)
		case seen[a]:
			return 0, 0, fmt.Errorf("addrs[%d]: %s twice", i, a)
		case a.Is4():
			n4++
		default:
			n6++
		}
		seen[a] = true
	}
	return n4, n6, nil
}
