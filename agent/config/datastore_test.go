// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
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
		{name: "defaults", typ: Bolt, path: DefaultPath},
		{name: "env over default", env: map[string]string{EnvDatastorePath: "/e.db"}, typ: Bolt, path: "/e.db"},
		{name: "flag over env", args: []string{"--datastore-path=/f.db"}, env: map[string]string{EnvDatastorePath: "/e.db"}, typ: Bolt, path: "/f.db"},
		{
			name: "good flag over bad env", args: []string{"--datastore=bolt"}, env: map[string]string{EnvDatastore: "etcd"},
			typ: Bolt, path: DefaultPath,
		},
		{name: "empty env is not set", env: map[string]string{EnvDatastorePath: ""}, typ: Bolt, path: DefaultPath},
		{
			name: "kubernetes is refused", args: []string{"--datastore", "kubernetes"}, typ: Kubernetes, path: DefaultPath,
			wantErrs: `--datastore: "kubernetes" is not supported by this version, which has the embedded store only; use "bolt"`,
		},
		{
			name: "all errors at once, each names its source",
			args: []string{"--datastore-path="}, env: map[string]string{EnvDatastore: "etcd"}, typ: "etcd", path: "",
			wantErrs: "ALLOD_DATASTORE: unknown type \"etcd\"; want \"bolt\"\n--datastore-path: empty; want the path of a file",
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
	want := "--datastore: unknown type \"x\"; want \"bolt\"\n--datastore-path: empty; want the path of a file"
	if err := d.Validate(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
