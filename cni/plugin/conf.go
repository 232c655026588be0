// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"net/netip"

	"github.com/allod/allod/cni/agentapi"
)

// Conf is a decoded network configuration: what Allod uses of the top level and
// the whole of the ipam object, with defaults filled in.
type Conf struct {
	CNIVersion string
	Name       string // of the network
	Type       string // of the main plugin

	Families    []Family // one or two, no duplicate
	IPv4Pools   []string // names or canonical CIDRs
	IPv6Pools   []string
	Mask        Mask
	Routes      []Route // nil: a default route for each family given
	DNS         DNS
	Socket      string
	AgentBinary string // "": allod-agent in the directory of allod
	NodeName    string // "": the host's name
	LockFile    string
	Datastore   Datastore

	// NeedGateway: the main plugin cannot do without a gateway.
	NeedGateway bool
	// Raw is stdin as it came, to be handed on to direct mode and never logged.
	Raw []byte

	static []netip.Addr // runtimeConfig.ips

	badStore, badNode error // why a field that decides where and whose cannot be read
}

// Family is an address family by its name in Kubernetes.
type Family string

// The families.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// Mask says how wide the prefix of an address in the result is.
type Mask string

// The masks. MaskPool is the default.
const (
	MaskPool  Mask = "pool"  // the pool's prefix
	MaskBlock Mask = "block" // the block's prefix
	MaskHost  Mask = "host"  // the address alone
)

// Route is a route for the result. A zero Gateway leaves the choice to the main
// plugin, which takes the address's.
type Route struct {
	Dst     netip.Prefix
	Gateway netip.Addr
}

// DNS is copied to the result.
type DNS struct {
	Nameservers []string
	Domain      string
	Search      []string
	Options     []string
}

// StoreType names a kind of datastore.
type StoreType string

// The kinds of datastore that a configuration may name.
const (
	StoreUnset      StoreType = ""
	StoreBolt       StoreType = "bolt"
	StoreKubernetes StoreType = "kubernetes"
)

// Datastore is where direct mode finds its store.
type Datastore struct {
	Type       StoreType // StoreUnset: the embedded store, if its file exists
	Path       string    // of the embedded store's file
	Kubeconfig string
}

// The defaults of the paths.
const (
	DefaultSocket        = "/run/allod/agent.sock"
	DefaultLockFile      = "/run/allod/host.lock"
	DefaultDatastorePath = "/var/lib/allod/ipam.db"
)

// EmbeddedStore gives the path of the embedded store's file, or an *agentapi.Error
// if the configuration asks for another kind of store. It does not look at the
// disk.
func (c Conf) EmbeddedStore() (string, error) {
	if c.Datastore.Type == StoreKubernetes {
		return "", &agentapi.Error{
			Code:    agentapi.CodeBadConfig,
			Msg:     fmt.Sprintf("ipam.datastore.type: %q is not supported by this version", StoreKubernetes),
			Details: fmt.Sprintf("set it to %q, or leave datastore out", StoreBolt),
		}
	}
	return c.Datastore.Path, nil
}
