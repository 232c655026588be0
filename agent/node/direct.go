// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/allod/allod/cni/agentapi"
	"github.com/allod/allod/cni/plugin"
	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/datastore/boltstore"
	"github.com/allod/allod/ipam/datastore/kv"
	"github.com/allod/allod/ipam/pool"
)

// DirectMode serves one CNI request in this process, against the store that the
// network's configuration names.
type DirectMode struct {
	Version string // for the API server's log
	CallLog string // file that every API call is logged to; "": none
}

// Backend returns what serves one request under c.
func (m DirectMode) Backend(_ context.Context, c plugin.Conf) (agentapi.Backend, error) {
	store, err := c.Datastore.Choose(func(path string) error {
		_, err := os.Stat(path)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case store == plugin.StoreKubernetes:
		return m.cluster(c)
	}
	return embedded(c)
}

// embedded serves from the embedded store. Without a configured node name it is the
// host's.
func embedded(c plugin.Conf) (agentapi.Backend, error) {
	path := c.Datastore.Path
	for _, own := range boltstore.Files(path) {
		if filepath.Clean(c.LockFile) == filepath.Clean(own) {
			return nil, &agentapi.Error{
				Code:    agentapi.CodeBadConfig,
				Msg:     fmt.Sprintf("ipam.lockFile: %s belongs to the embedded store", c.LockFile),
				Details: "name a file of its own, or leave lockFile out",
			}
		}
	}
	if _, err := os.Stat(path); err != nil {
		return nil, &agentapi.Error{
			Code:    agentapi.CodeTryAgain,
			Msg:     fmt.Sprintf("open the embedded store: %v", err),
			Details: "create it with \"allod-agent apply -f POOLS.yaml\", or set ipam.datastore.path",
		}
	}
	name := c.NodeName
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("node name: %w (set ipam.nodeName)", err)
		}
		name = strings.ToLower(host) // as kubelet names its node
	}
	store := kv.New(boltstore.New(path, boltstore.Options{}), kv.Options{})
	return &direct{
		lock:    hostLock{path: c.LockFile},
		Service: Service{IPAM: ipam.New(store, ipam.Options{SoleHost: true}), Node: pool.Node{Name: name}},
	}, nil
}

// direct is a Service whose writing verbs hold the host lock: no two processes of
// this host decide at the same time.
type direct struct {
	lock hostLock
	Service
}

// Add implements agentapi.Backend.
func (d *direct) Add(ctx context.Context, r agentapi.AddRequest) (reply agentapi.AddReply, err error) {
	err = d.locked(ctx, func() error {
		reply, err = d.Service.Add(ctx, r)
		return err
	})
	return reply, err
}

// Del implements agentapi.Backend.
func (d *direct) Del(ctx context.Context, r agentapi.DelRequest) error {
	return d.locked(ctx, func() error { return d.Service.Del(ctx, r) })
}

// GC implements agentapi.Backend.
func (d *direct) GC(ctx context.Context, r agentapi.GCRequest) error {
	return d.locked(ctx, func() error { return d.Service.GC(ctx, r) })
}

func (d *direct) locked(ctx context.Context, fn func() error) error {
	release, err := d.lock.exclusive(ctx)
	if err != nil {
		return &agentapi.Error{Code: agentapi.CodeTryAgain, Msg: err.Error()}
	}
	defer release()
	return fn()
}
