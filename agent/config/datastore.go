// SPDX-License-Identifier: Apache-2.0

// Package config turns flags and environment variables into validated settings:
// flag over environment over default, every error at once. It is the only place
// that reads the environment; it opens nothing, looks only whether a file is there,
// and knows no verb.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
)

// The types of datastore.
const (
	Bolt       = "bolt"
	Kubernetes = "kubernetes"
)

// DefaultPath is where the embedded store of a host lives.
const DefaultPath = "/var/lib/allod/ipam.db"

// PluginName is what the agent calls itself as a plugin of kubectl.
const PluginName = "kubectl allod"

// The flags and environment variables of a datastore.
const (
	FlagDatastore     = "datastore"
	FlagDatastorePath = "datastore-path"
	FlagKubeconfig    = "kubeconfig"
	FlagContext       = "context"
	EnvDatastore      = "ALLOD_DATASTORE"
	EnvDatastorePath  = "ALLOD_DATASTORE_PATH"
	EnvKubeconfig     = "ALLOD_KUBECONFIG"
)

// Datastore says which store a command works on. Fill it with AddFlags before
// the command line is parsed and Load after.
type Datastore struct {
	Type       string
	Path       string // Bolt: the file
	Kubeconfig string // Kubernetes: the file; "" for those that kubectl would read
	Context    string // Kubernetes: of the kubeconfig; "" for its current one

	typeFrom, pathFrom string // what set the value, for messages
}

// AddFlags gives cmd and its children the datastore flags.
func (d *Datastore) AddFlags(cmd *cobra.Command) {
	fs := cmd.PersistentFlags()
	fs.StringVar(&d.Type, FlagDatastore, "", "type of the datastore, "+Bolt+" or "+Kubernetes+" (env "+EnvDatastore+"); default: see docs/configuration.md")
	fs.StringVar(&d.Path, FlagDatastorePath, DefaultPath, "file of the bolt datastore (env "+EnvDatastorePath+")")
	fs.StringVar(&d.Kubeconfig, FlagKubeconfig, "", "kubeconfig of the kubernetes datastore (env "+EnvKubeconfig+"); default: kubectl's")
	fs.StringVar(&d.Context, FlagContext, "", "context of the kubeconfig; default: its current one")
}

// Load takes from the environment what the command line of cmd did not set, chooses
// the type if neither does, and validates the result. An empty variable counts as not
// set.
func (d *Datastore) Load(cmd *cobra.Command) error {
	changed := func(flag string) bool { return cmd.Flags().Changed(flag) }
	d.typeFrom = load(cmd, &d.Type, FlagDatastore, EnvDatastore)
	d.pathFrom = load(cmd, &d.Path, FlagDatastorePath, EnvDatastorePath)
	load(cmd, &d.Kubeconfig, FlagKubeconfig, EnvKubeconfig)
	f := facts{
		typ:     d.Type,
		from:    d.typeFrom,
		path:    set{changed(FlagDatastorePath), os.Getenv(EnvDatastorePath) != ""},
		cluster: set{changed(FlagKubeconfig) || changed(FlagContext), os.Getenv(EnvKubeconfig) != ""},
		plugin:  cmd.Root().DisplayName() == PluginName,
		exists:  exists,
	}
	var err error
	if d.Type, err = f.choose(); err != nil {
		return err
	}
	return d.Validate()
}

// set says whether a setting comes from the command line, or from the environment.
type set struct{ flag, env bool }

// facts are what the type of a datastore is chosen by.
type facts struct {
	typ, from     string // what was asked for, and where
	path, cluster set    // the settings of bolt and of kubernetes
	plugin        bool   // called as a plugin of kubectl
	exists        func(what string) (bool, error)
}

// What facts.exists is asked about, beside files.
const inCluster = "in-cluster"

// choose returns the type. What contradicts itself is an error, not a guess.
func (f facts) choose() (string, error) {
	const kubeFlags = "--" + FlagKubeconfig + " and --" + FlagContext
	switch {
	case f.typ == Bolt && f.cluster.flag:
		return f.typ, fmt.Errorf("%s are for the %s datastore, and %s says %s", kubeFlags, Kubernetes, from(f.from, FlagDatastore), f.typ)
	case f.typ == Kubernetes && f.path.flag:
		return f.typ, fmt.Errorf("--%s is for the %s datastore, and %s says %s", FlagDatastorePath, Bolt, from(f.from, FlagDatastore), f.typ)
	case f.typ != "":
		return f.typ, nil
	case f.path.flag && f.cluster.flag:
		return "", fmt.Errorf("--%s is for the %s datastore, %s are for %s: which one is meant?", FlagDatastorePath, Bolt, kubeFlags, Kubernetes)
	case f.path.flag:
		return Bolt, nil
	case f.cluster.flag:
		return Kubernetes, nil
	case f.path.env && f.cluster.env:
		return "", fmt.Errorf("%s and %s are both set: say which is meant with --%s", EnvDatastorePath, EnvKubeconfig, FlagDatastore)
	case f.path.env:
		return Bolt, nil
	case f.cluster.env, f.plugin:
		return Kubernetes, nil
	}
	return f.found()
}

// found returns the type of what is there. What nobody can see may be there: then the
// type is no guess either.
func (f facts) found() (string, error) {
	for _, place := range []struct{ what, typ string }{
		{DefaultPath, Bolt},
		{clientcmd.RecommendedConfigPathEnvVar, Kubernetes},
		{clientcmd.RecommendedHomeFile, Kubernetes},
		{inCluster, Kubernetes},
	} {
		there, err := f.exists(place.what)
		switch {
		case err != nil:
			return "", fmt.Errorf("which datastore is meant cannot be told: %w; name it with --%s", err, FlagDatastore)
		case there:
			return place.typ, nil
		}
	}
	return Bolt, nil // which apply creates
}

// exists reports whether a file, a variable of the environment, or a cluster around
// this process is there.
func exists(what string) (bool, error) {
	switch what {
	case clientcmd.RecommendedConfigPathEnvVar:
		return os.Getenv(what) != "", nil
	case inCluster:
		if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
			return false, nil
		}
		what = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	}
	_, err := os.Stat(what)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func load(cmd *cobra.Command, v *string, flag, env string) (from string) {
	if cmd.Flags().Changed(flag) {
		return "--" + flag
	}
	if e := os.Getenv(env); e != "" {
		*v = e
		return env
	}
	return "--" + flag
}

// Validate reports everything that is wrong with d; each error names the flag or
// variable that set the value.
func (d *Datastore) Validate() error {
	var errs []error
	if d.Type != Bolt && d.Type != Kubernetes {
		errs = append(errs, fmt.Errorf("%s: unknown type %q; want %q or %q", from(d.typeFrom, FlagDatastore), d.Type, Bolt, Kubernetes))
	}
	if err := checkPath(d.Path); err != nil && d.Type != Kubernetes {
		errs = append(errs, fmt.Errorf("%s: %w", from(d.pathFrom, FlagDatastorePath), err))
	}
	return errors.Join(errs...)
}

func checkPath(p string) error {
	switch {
	case p == "":
		return errors.New("empty; want the path of a file")
	case strings.ContainsRune(p, 0):
		return fmt.Errorf("%q holds a NUL byte", p)
	case strings.HasSuffix(p, "/"):
		return fmt.Errorf("%q names a folder; want the path of a file", p)
	}
	return nil
}

func from(source, flag string) string {
	if source == "" {
		return "--" + flag
	}
	return source
}
