// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"strings"
	"testing"
)

const licence = "// SPDX-License-Identifier: Apache-2.0\n\n"

// snippets are files that break one rule (finds > 0) or keep it where a careless
// rule would complain (finds = 0).
var snippets = []struct {
	rule  string
	path  string
	text  string
	finds int
}{
	{"licence", "ipam/a.go", "package ipam\n", 1},
	{"licence", "ipam/a.go", "\n" + licence + "package ipam\n", 1},
	{"licence", "ipam/a.go", licence + "package ipam\n", 0},

	{"file size", "ipam/a.go", licence + "package ipam\n" + strings.Repeat("//\n", 600), 1},
	{"file size", "ipam/a.go", licence + "package ipam\n" + strings.Repeat("//\n", 597), 0},
	{"file size", "ipam/a_test.go", licence + "package ipam\n" + strings.Repeat("//\n", 600), 0},

	{"function size", "ipam/a.go", "package ipam\nfunc f() {\n" + strings.Repeat("_ = 0\n", 99) + "}\n", 1},
	{"function size", "ipam/a.go", "package ipam\nfunc f() {\n" + strings.Repeat("_ = 0\n", 98) + "}\n", 0},

	{"clock", "ipam/block/a.go", "package block\nimport \"time\"\nvar a, b = time.Now(), time.Since\n", 2},
	{"clock", "ipam/a.go", "package ipam\nimport clock \"time\"\nvar a = clock.Until\n", 1},
	{"clock", "ipam/a.go", "package ipam\nimport \"time\"\nvar a time.Duration = time.Second\n", 0},
	{"clock", "ipam/a_test.go", "package ipam\nimport \"time\"\nvar a = time.Now()\n", 0},
	{"clock", "ipam/datastore/boltstore/a.go", "package boltstore\nimport \"time\"\nvar a = time.Now()\n", 0},

	{"randomness", "ipam/pool/a.go", "package pool\nimport \"math/rand/v2\"\nvar a = rand.IntN(3)\n", 1},
	{"randomness", "ipam/a.go", "package ipam\nimport (r \"math/rand\"; \"crypto/rand\")\nvar a, b = r.Float64(), rand.Reader\n", 2},
	{"randomness", "ipam/a.go", "package ipam\nimport \"math/rand/v2\"\nvar a *rand.Rand = rand.New(rand.NewPCG(1, 2))\n", 0},

	{"randomness", "ipam/a.go", "package ipam\nimport \"math/rand/v2\"\nfunc newBackoff() { rand.Uint64() }\nfunc other() { rand.Uint64() }\n", 1},

	{"sleep", "agent/node/a.go", "package node\nimport \"time\"\nfunc f() { time.Sleep(1) }\n", 1},
	{"sleep", "cni/main.go", "package main\nimport \"time\"\nfunc f() { time.Sleep(1) }\n", 1},
	{"sleep", "agent/node/a.go", "package node\nimport \"time\"\nfunc f() { <-time.After(1) }\n", 0},

	{"exit", "agent/ctl/a.go", "package ctl\nimport (\"log\"; \"os\")\nfunc f() { os.Exit(1); log.Fatalf(\"\") }\n", 2},
	{"exit", "ipam/a_test.go", "package ipam\nimport \"os\"\nfunc TestMain() { os.Exit(1) }\n", 0},
	{"exit", "agent/main.go", "package main\nimport \"os\"\nfunc main() { os.Exit(1) }\n", 0},

	{"panic", "ipam/block/a.go", "package block\nfunc F() { if true { panic(1) } }\n", 1},
	{"panic", "ipam/block/a.go", "package block\nvar f = func() { panic(1) }\n", 1},
	{"panic", "ipam/datastore/storetest/a.go", "package storetest\nfunc f() { panic(1) }\n", 0},
	{"panic", "ipam/block/a.go", "package block\nfunc f() { recover() }\n", 0},

	{"context", "agent/node/a.go", "package node\nimport \"context\"\nvar a, b = context.Background(), context.TODO()\n", 2},
	{"context", "agent/main.go", "package main\nimport \"context\"\nvar a = context.Background()\n", 0},
	{"context", "agent/node/a.go", "package node\nimport \"context\"\nvar a = context.WithoutCancel\n", 0},

	{"environment", "cni/plugin/a.go", "package plugin\nimport \"os\"\nvar a = os.Getenv(\"A\")\n", 1},
	{"environment", "agent/config/a.go", "package config\nimport \"os\"\nvar a = os.Getenv(\"A\")\n", 0},

	{"documentation", "ipam/a.go", "package ipam\nfunc F() {}\ntype T struct{}\nfunc (*T) M() {}\nconst C = 1\nvar V, w int\ntype (\n U int\n)\n", 6},
	{"documentation", "ipam/a.go", "package ipam\ntype t[K any] struct{}\nfunc (t[K]) M() {}\nfunc (U) String() {}\nfunc f() {}\n// All.\nconst (\n A = 1\n B = 2\n)\nvar (\n C = 1 // c\n)\n// T is.\ntype T int\n// Both.\ntype (\n D int\n E int\n)\n", 0},

	{"folder name", "agent/util/a.go", "package util\n", 1},
	{"folder name", "agent/utilization/a.go", "package utilization\n", 0},

	{"fault test", "agent/a_test.go", "package main\nfunc TestDiskFault() {}\n", 1},
	{"fault test", "ipam/a_test.go", "package ipam\nfunc TestFault() {}\n", 0},
	{"fault test", "agent/a_test.go", "package main\nfunc makeFault() {}\n", 0},
}

func TestRulesCanFail(t *testing.T) {
	bad, good := map[string]bool{}, map[string]bool{}
	byName := map[string]rule{}
	for _, r := range rules {
		byName[r.name] = r
	}
	for _, sn := range snippets {
		r, ok := byName[sn.rule]
		if !ok {
			t.Fatalf("snippet for %q, which is no rule", sn.rule)
		}
		s, err := parse(sn.path, sn.text)
		if err != nil {
			t.Fatal(err)
		}
		found := r.check(s)
		if len(found) != sn.finds {
			t.Errorf("%s finds %d faults, want %d: %q\n%s:\n%.300s", sn.rule, len(found), sn.finds, found, sn.path, sn.text)
		}
		bad[sn.rule] = bad[sn.rule] || sn.finds > 0
		good[sn.rule] = good[sn.rule] || sn.finds == 0
	}
	for _, r := range rules {
		if !bad[r.name] || !good[r.name] {
			t.Errorf("rule %q needs a snippet that breaks it and one that does not", r.name)
		}
	}
}
