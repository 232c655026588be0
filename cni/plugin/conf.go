// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"io/fs"
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
	NodeName    string // "": the one that the token is bound to, or the host's name
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
	Type       StoreType // StoreUnset: see Choose
	Path       string    // of the embedded store's file
	Kubeconfig string
}

// The defaults of the paths.
const (
	DefaultSocket        = "/run/allod/agent.sock"
	DefaultLockFile      = "/run/allod/host.lock"
	DefaultDatastorePath = "/var/lib/allod/ipam.db"
	DefaultKubeconfig    = "/etc/cni/net.d/allod.d/kubeconfig"
)

// Choose says which store direct mode works on: the one that is configured, else
// Kubernetes if the kubeconfig is there, else the embedded store if its file is
// there, else an *agentapi.Error to try again. stat is os.Stat's error: only "not
// there" is absence; what cannot be looked at may be the store in use.
func (d Datastore) Choose(stat func(path string) error) (StoreType, error) {
	if d.Type != StoreUnset {
		return d.Type, nil
	}
	for _, s := range []struct {
		store StoreType
		path  string
	}{{StoreKubernetes, d.Kubeconfig}, {StoreBolt, d.Path}} {
		switch err := stat(s.path); {
		case err == nil:
			return s.store, nil
		case !errors.Is(err, fs.ErrNotExist):
			return StoreUnset, &agentapi.Error{
				Code: agentapi.CodeTryAgain, Msg: fmt.Sprintf("look for a datastore: %v", err),
				Details: "make the path readable, or set ipam.datastore.type",
			}
		}
	}
	return StoreUnset, &agentapi.Error{
		Code: agentapi.CodeTryAgain,
		Msg:  fmt.Sprintf("no datastore: there is neither the kubeconfig %s nor the embedded store %s", d.Kubeconfig, d.Path),
		Details: "on a node of a cluster the installation writes the kubeconfig; an embedded store is created with " +
			"\"allod-agent apply -f POOLS.yaml\"; ipam.datastore names either elsewhere",
	}
}
