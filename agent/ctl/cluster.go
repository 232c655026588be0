// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/allod/allod/agent/config"
	"github.com/allod/allod/agent/kube"
	"github.com/allod/allod/ipam"
	"github.com/allod/allod/ipam/datastore/kubestore"
)

// userAgent is what API servers log of an operator's verb.
const userAgent = "allod-agent-operator"

// cluster is the store on an API server.
type cluster struct {
	name   string // for people
	store  *kubestore.Store
	dry    *kubestore.Store // what is written here is only judged
	client *ipam.Client
}

func openCluster(ds config.Datastore, log *slog.Logger) (*cluster, error) {
	cfg, context, err := restConfig(ds)
	if err != nil {
		return nil, err
	}
	c := &cluster{name: kube.Redact(cfg.Host)}
	if context != "" {
		c.name += " (context " + context + ")"
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return patience{next, callTimeout} })
	o := kubestore.Options{UserAgent: userAgent, Log: log}
	if c.store, err = kubestore.New(cfg, o); err != nil {
		return nil, err
	}
	if c.dry, err = kubestore.New(kubestore.DryRun(cfg), o); err != nil {
		return nil, err
	}
	c.client = ipam.New(c.store.Store(), ipam.Options{Clock: c.store, Log: log})
	return c, nil
}

// String implements store.
func (c *cluster) String() string { return config.Kubernetes + " " + c.name }

// failed makes an error of a call one for an operator.
func (c *cluster) failed(err error) error {
	n, ok := errors.AsType[net.Error](err)
	if !ok || errors.Is(err, context.Canceled) {
		return err
	}
	why := "cannot be reached; is it running, and is this the right kubeconfig and context?"
	switch _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); {
	case untrusted:
		why = "shows a certificate that the kubeconfig does not vouch for; is its certificate-authority that of this cluster?"
	case n.Timeout():
		why = "does not answer"
	}
	return fmt.Errorf("the API server %s %s: %w", c.name, why, err)
}

// restConfig finds the API server as kubectl does: the kubeconfig that is named, or
// those of KUBECONFIG, or the one at home, or the cluster this process is in.
func restConfig(ds config.Datastore) (cfg *rest.Config, context string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.WarnIfAllMissing = false
	where := "kubeconfig " + strings.Join(rules.Precedence, ", ")
	if ds.Kubeconfig != "" {
		where = "kubeconfig " + ds.Kubeconfig
		rules.ExplicitPath = ds.Kubeconfig
	}
	files, err := rules.Load() // paths in a file are relative to it
	if err != nil {
		return nil, "", fmt.Errorf("%s cannot be read: %w", where, err)
	}
	if ds.Kubeconfig == "" && ds.Context == "" && len(files.Clusters)+len(files.Contexts) == 0 {
		if cfg, err = rest.InClusterConfig(); err == nil {
			return cfg, "", nil
		}
		return nil, "", fmt.Errorf("no API server is known: %s names none, and this is no pod of a cluster; set --%s", where, config.FlagKubeconfig)
	}
	context = ds.Context
	if context == "" {
		context = files.CurrentContext
	}
	if err := usable(where, context, files); err != nil {
		return nil, "", err
	}
	cfg, err = clientcmd.NewNonInteractiveClientConfig(*files, context, &clientcmd.ConfigOverrides{}, rules).ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("%s: context %s: %s", where, context, kube.Redact(err.Error()))
	}
	return cfg, context, nil
}

// usable says what a context lacks, in words that name it.
func usable(where, context string, files *api.Config) error {
	has := "it has none"
	if len(files.Contexts) > 0 {
		has = "it has " + strings.Join(slices.Sorted(maps.Keys(files.Contexts)), ", ")
	}
	c, ok := files.Contexts[context]
	switch {
	case context == "":
		return fmt.Errorf("%s: no current-context is set; name one with --%s: %s", where, config.FlagContext, has)
	case !ok:
		return fmt.Errorf("%s: there is no context %q; %s", where, context, has)
	}
	if cluster, ok := files.Clusters[c.Cluster]; !ok || cluster.Server == "" {
		return fmt.Errorf("%s: context %s: there is no cluster %q with a server", where, context, c.Cluster)
	}
	if _, ok := files.AuthInfos[c.AuthInfo]; !ok && c.AuthInfo != "" {
		return fmt.Errorf("%s: context %s: there is no user %q", where, context, c.AuthInfo)
	}
	return nil
}

// snapshot implements store. Each kind is a consistent list of its own moment; see
// snapshotKinds for their order.
func (c *cluster) snapshot(ctx context.Context, p *progress) (Snapshot, error) {
	var s Snapshot
	for _, kind := range snapshotKinds {
		raw, err := c.store.Raw(ctx, kind.kind, func(n int) { p.count("reading %s: %d", kind.table, n) })
		if err != nil {
			return Snapshot{}, c.failed(err)
		}
		for _, text := range raw {
			kind.add(&s, kubestore.NameOf(text), text)
		}
	}
	s.sort()
	s.At = c.store.Now()
	return s, nil
}
