// SPDX-License-Identifier: Apache-2.0

// Package config turns flags and environment variables into validated settings:
// flag over environment over default, every error at once. It is the only place
// that reads the environment; it opens nothing and knows no verb.
package config

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// The types of datastore.
const (
	Bolt       = "bolt"
	Kubernetes = "kubernetes"
)

// DefaultPath is where the embedded store of a host lives.
const DefaultPath = "/var/lib/allod/ipam.db"

// The flags and environment variables of a datastore.
const (
	FlagDatastore     = "datastore"
	FlagDatastorePath = "datastore-path"
	EnvDatastore      = "ALLOD_DATASTORE"
	EnvDatastorePath  = "ALLOD_DATASTORE_PATH"
)

// Datastore says which store a command works on. Fill it with AddFlags before
// the command line is parsed and Load after.
type Datastore struct {
	Type string
	Path string // Bolt: the file

	typeFrom, pathFrom string // what set the value, for messages
}

// AddFlags gives cmd and its children the datastore flags.
func (d *Datastore) AddFlags(cmd *cobra.Command) {
	fs := cmd.PersistentFlags()
	fs.StringVar(&d.Type, FlagDatastore, Bolt, "type of the datastore (env "+EnvDatastore+")")
	fs.StringVar(&d.Path, FlagDatastorePath, DefaultPath, "file of the bolt datastore (env "+EnvDatastorePath+")")
}

// Load takes from the environment what the command line of cmd did not set, and
// validates the result. An empty variable counts as not set.
func (d *Datastore) Load(cmd *cobra.Command) error {
	d.typeFrom = load(cmd, &d.Type, FlagDatastore, EnvDatastore)
	d.pathFrom = load(cmd, &d.Path, FlagDatastorePath, EnvDatastorePath)
	return d.Validate()
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
	switch d.Type {
	case Bolt:
	case Kubernetes:
		errs = append(errs, fmt.Errorf("%s: %q is not supported by this version, which has the embedded store only; use %q",
			from(d.typeFrom, FlagDatastore), d.Type, Bolt))
	default:
		errs = append(errs, fmt.Errorf("%s: unknown type %q; want %q", from(d.typeFrom, FlagDatastore), d.Type, Bolt))
	}
	if err := checkPath(d.Path); err != nil {
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
