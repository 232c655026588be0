// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"sigs.k8s.io/yaml"

	"github.com/allod/allod/ipam/datastore/boltstore"
	"github.com/allod/allod/ipam/datastore/kv"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite the golden output in testdata and docs")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"allod-agent":   main,
		"kubectl-allod": main,
	})
}

// The scripts run the agent as a process of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":    code,
			"plant":   plant,
			"scratch": scratch,
		},
	})
}

// code runs a program and demands an exit code: code N program [args].
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program [args]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

var tables = map[string]string{
	v1alpha1.KindPool:          kv.Pools,
	v1alpha1.KindReservation:   kv.Reservations,
	v1alpha1.KindConfiguration: kv.Config,
	v1alpha1.KindBlock:         kv.Blocks,
	v1alpha1.KindAffinity:      kv.Affinities,
	v1alpha1.KindHandle:        kv.Handles,
}

// plant puts objects into a store as they are, past every rule: plant STORE FILE.
func plant(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: plant STORE FILE")
	}
	ctx, path := context.Background(), ts.MkAbs(args[0])
	if err := boltstore.Create(ctx, path); err != nil && !errors.Is(err, boltstore.ErrExists) {
		ts.Check(err)
	}
	ts.Check(boltstore.New(path, boltstore.Options{}).Update(ctx, func(tx kv.Tx) error {
		for doc := range bytes.SplitSeq([]byte(ts.ReadFile(args[1])), []byte("---\n")) {
			j, err := yaml.YAMLToJSON(doc)
			if err != nil {
				return err
			}
			var o struct {
				Kind     string
				Metadata struct{ Name string }
			}
			if err := json.Unmarshal(j, &o); err != nil {
				return err
			}
			if err := tx.Put(tables[o.Kind], o.Metadata.Name, j); err != nil {
				return err
			}
		}
		return nil
	}))
}

// scratch puts bytes that are no object under a name: scratch STORE TABLE NAME TEXT.
func scratch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: scratch STORE TABLE NAME TEXT")
	}
	db := boltstore.New(ts.MkAbs(args[0]), boltstore.Options{})
	ts.Check(db.Update(context.Background(), func(tx kv.Tx) error {
		return tx.Put(args[1], args[2], []byte(args[3]))
	}))
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
