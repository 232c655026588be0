// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
)

func TestDatastoreLoad(t *testing.T) {
	for _, tc := range []struct {
		name     string
		args     []string
		env      map[string]string
		typ      string
		path     string
		wantErrs string
	}{
		{name: "type by flag", args: []string{"--datastore=bolt"}, typ: Bolt, path: DefaultPath},
		{name: "env over default", env: map[string]string{EnvDatastorePath: "/e.db"}, typ: Bolt, path: "/e.db"},
		{name: "flag over env", args: []string{"--datastore-path=/f.db"}, env: map[string]string{EnvDatastorePath: "/e.db"}, typ: Bolt, path: "/f.db"},
		{
			name: "good flag over bad env", args: []string{"--datastore=bolt"}, env: map[string]string{EnvDatastore: "etcd"},
			typ: Bolt, path: DefaultPath,
		},
		{name: "empty env is not set", args: []string{"--datastore=bolt"}, env: map[string]string{EnvDatastorePath: "", EnvKubeconfig: ""}, typ: Bolt, path: DefaultPath},
		{name: "kubernetes", args: []string{"--datastore", "kubernetes"}, typ: Kubernetes, path: DefaultPath},
		{name: "a kubeconfig", args: []string{"--kubeconfig", "k"}, typ: Kubernetes, path: DefaultPath},
		{name: "a context", args: []string{"--context", "c"}, typ: Kubernetes, path: DefaultPath},
		{name: "a kubeconfig by env", env: map[string]string{EnvKubeconfig: "k"}, typ: Kubernetes, path: DefaultPath},
		{
			name: "a flag of the other type", args: []string{"--datastore", "bolt", "--kubeconfig", "k"}, typ: Bolt, path: DefaultPath,
			wantErrs: "--kubeconfig and --context are for the kubernetes datastore, and --datastore says bolt",
		},
		{
			name: "a flag of the other type than env says", args: []string{"--datastore-path", "p"}, env: map[string]string{EnvDatastore: "kubernetes"},
			typ: Kubernetes, path: "p", wantErrs: "--datastore-path is for the bolt datastore, and ALLOD_DATASTORE says kubernetes",
		},
		{
			name: "all errors at once, each names its source",
			args: []string{"--datastore-path="}, env: map[string]string{EnvDatastore: "etcd"}, typ: "etcd", path: "",
			wantErrs: "ALLOD_DATASTORE: unknown type \"etcd\"; want \"bolt\" or \"kubernetes\"\n--datastore-path: empty; want the path of a file",
		},
		{
			name: "folder", env: map[string]string{EnvDatastorePath: "/var/lib/"}, typ: Bolt, path: "/var/lib/",
			wantErrs: `ALLOD_DATASTORE_PATH: "/var/lib/" names a folder; want the path of a file`,
		},
		{
			name: "NUL byte", args: []string{"--datastore-path=a\x00b"}, typ: Bolt, path: "a\x00b",
			wantErrs: `--datastore-path: "a\x00b" holds a NUL byte`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv(EnvDatastore, tc.env[EnvDatastore])
			t.Setenv(EnvDatastorePath, tc.env[EnvDatastorePath])
			t.Setenv(EnvKubeconfig, tc.env[EnvKubeconfig])
			var d Datastore
			var got string
			root := &cobra.Command{Use: "root"}
			d.AddFlags(root)
			root.AddCommand(&cobra.Command{Use: "verb", Run: func(cmd *cobra.Command, _ []string) {
				if err := d.Load(cmd); err != nil {
					got = err.Error()
				}
			}})
			root.SetArgs(append([]string{"verb"}, tc.args...))
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tc.typ, tc.path, tc.wantErrs}, []string{d.Type, d.Path, got}); diff != "" {
				t.Errorf("type, path, errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDatastoreValidateWithoutLoad(t *testing.T) {
	d := Datastore{Type: "x"}
	want := "--datastore: unknown type \"x\"; want \"bolt\" or \"kubernetes\"\n--datastore-path: empty; want the path of a file"
	if err := d.Validate(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The type that holds when nobody names one; what contradicts itself is never guessed.
func TestDatastoreChoice(t *testing.T) {
	flag, env := set{flag: true}, set{env: true}
	none := ""
	for name, tt := range map[string]struct {
		f     facts
		there []string
		want  string
	}{
		"nothing anywhere":                         {facts{}, nil, Bolt},
		"the default file":                         {facts{}, []string{DefaultPath}, Bolt},
		"the default file, and a kubeconfig":       {facts{}, []string{DefaultPath, clientcmd.RecommendedHomeFile, "KUBECONFIG"}, Bolt},
		"KUBECONFIG":                               {facts{}, []string{"KUBECONFIG"}, Kubernetes},
		"the kubeconfig at home":                   {facts{}, []string{clientcmd.RecommendedHomeFile}, Kubernetes},
		"in a pod":                                 {facts{}, []string{inCluster}, Kubernetes},
		"plugin of kubectl":                        {facts{plugin: true}, []string{DefaultPath}, Kubernetes},
		"plugin of kubectl, a path by env":         {facts{plugin: true, path: env}, nil, Bolt},
		"a path by env":                            {facts{path: env}, []string{"KUBECONFIG"}, Bolt},
		"a kubeconfig by env":                      {facts{cluster: env}, []string{DefaultPath}, Kubernetes},
		"both by env":                              {facts{path: env, cluster: env}, nil, none},
		"both by flag":                             {facts{path: flag, cluster: flag}, nil, none},
		"a path by flag, a kubeconfig by env":      {facts{path: flag, cluster: env}, nil, Bolt},
		"a kubeconfig by flag, a path by env":      {facts{path: env, cluster: flag}, []string{DefaultPath}, Kubernetes},
		"plugin of kubectl, a path by flag":        {facts{plugin: true, path: flag}, nil, Bolt},
		"the type is given, what is there differs": {facts{typ: Bolt, plugin: true, cluster: env}, []string{"KUBECONFIG"}, Bolt},
		"kubernetes is given, a path by env":       {facts{typ: Kubernetes, path: env}, nil, Kubernetes},
	} {
		t.Run(name, func(t *testing.T) {
			tt.f.exists = func(what string) (bool, error) { return slices.Contains(tt.there, what), nil }
			got, err := tt.f.choose()
			if got != tt.want || (err != nil) != (tt.want == none) {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// What cannot be looked at may be there: nothing is chosen past it.
func TestDatastoreThatCannotBeSeen(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if there, err := exists(filepath.Join(dir, "file")); !there || err != nil {
		t.Errorf("a file: %v, %v", there, err)
	}
	if there, err := exists(filepath.Join(dir, "no-such", "file")); there || err != nil {
		t.Errorf("what is not there: %v, %v", there, err)
	}
	below := filepath.Join(dir, "file", "ipam.db") // root too may not look there
	if there, err := exists(below); there || err == nil || !strings.Contains(err.Error(), below) {
		t.Errorf("what cannot be looked at: %v, %v; want an error that names it", there, err)
	}
	denied := func(at string) func(string) (bool, error) {
		return func(what string) (bool, error) {
			if what == at {
				return false, &fs.PathError{Op: "stat", Path: what, Err: fs.ErrPermission}
			}
			return what == inCluster, nil
		}
	}
	for _, at := range []string{DefaultPath, clientcmd.RecommendedHomeFile} {
		got, err := facts{exists: denied(at)}.choose()
		if got != "" || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), at) || !strings.Contains(err.Error(), "--"+FlagDatastore) {
			t.Errorf("%s: %q, %v", at, got, err)
		}
	}
	if got, err := (facts{typ: Kubernetes, exists: denied(DefaultPath)}).choose(); got != Kubernetes || err != nil {
		t.Errorf("named: %q, %v", got, err)
	}
}
