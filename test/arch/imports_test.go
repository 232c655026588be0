// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layer says what the packages that match pkg may import besides the standard
// library: own are packages of this module, libs are others, both with
// everything below them if they end in "/...". Imports point down this list only.
type layer struct {
	pkg  string
	own  []string
	libs []string
}

// anyLib are packages with leave to import any library, client-go included.
var anyLib = []string{"..."}

// layers is docs/design's direction of imports. The first that matches counts; a
// package that none matches is an error: decide where it stands.
var layers = []layer{
	{pkg: "ipam/block", libs: []string{"go4.org/netipx"}},
	{pkg: "ipam/pool", libs: []string{"go4.org/netipx", "k8s.io/apimachinery/pkg/labels", "k8s.io/apimachinery/pkg/util/validation"}},
	{pkg: "ipam/datastore", own: []string{"ipam/block", "ipam/pool"}},
	{pkg: "ipam/datastore/v1alpha1", own: domain, libs: []string{"k8s.io/apimachinery/...", "sigs.k8s.io/json", "sigs.k8s.io/yaml"}},
	{pkg: "ipam/datastore/codec", own: append([]string{"ipam/datastore/v1alpha1"}, domain...), libs: []string{"k8s.io/apimachinery/..."}},
	{pkg: "ipam/datastore/kv", own: append([]string{"ipam/datastore/codec", "ipam/datastore/v1alpha1"}, domain...), libs: []string{"k8s.io/apimachinery/...", "k8s.io/utils/clock"}},
	{pkg: "ipam/datastore/kubestore", own: append([]string{"ipam/datastore/codec", "ipam/datastore/v1alpha1"}, domain...), libs: []string{"k8s.io/apimachinery/...", "k8s.io/client-go/...", "k8s.io/utils/clock"}},
	{pkg: "ipam/datastore/memstore", own: append([]string{"ipam/datastore/kv"}, domain...), libs: []string{"k8s.io/utils/clock"}},
	{pkg: "ipam/datastore/filelock", libs: []string{"golang.org/x/sys/unix"}},
	{pkg: "ipam/datastore/boltstore", own: append([]string{"ipam/datastore/filelock", "ipam/datastore/kv"}, domain...), libs: []string{"go.etcd.io/bbolt", "go.etcd.io/bbolt/errors", "github.com/google/renameio/v2", "golang.org/x/sys/unix", "k8s.io/utils/clock"}},
	{pkg: "ipam/datastore/storetest", own: domain, libs: []string{"github.com/google/go-cmp/...", "pgregory.net/rapid"}},
	{pkg: "ipam", own: domain, libs: []string{"go4.org/netipx", "golang.org/x/sync/errgroup", "k8s.io/utils/clock"}},

	{pkg: "cni/agentapi"},
	{pkg: "cni/plugin", own: []string{"cni/agentapi"}, libs: []string{"github.com/containernetworking/cni/...", "go4.org/netipx"}},
	{pkg: "cni", own: []string{"cni/agentapi", "cni/plugin"}, libs: []string{"github.com/containernetworking/cni/...", "golang.org/x/sys/unix"}},

	{pkg: "agent/...", own: []string{"agent/...", "cni/agentapi", "cni/plugin", "ipam/..."}, libs: anyLib},
	{pkg: "test/...", own: []string{"test/...", "cni/...", "ipam/..."}, libs: anyLib},
}

var domain = []string{"ipam/datastore", "ipam/block", "ipam/pool"}

// testOwn is what tests below cni and ipam may import in addition to their layer.
var testOwn = []string{"ipam/...", "cni/...", "test/fixture"}

// notInBinary are import paths that a binary must not be linked from.
var notInBinary = map[string][]string{
	"cni":   {"k8s.io/client-go/...", "k8s.io/apimachinery/...", "go.etcd.io/bbolt/...", "testing"},
	"agent": {"testing", "pgregory.net/rapid/...", "github.com/google/go-cmp/..."},
}

// listed is the part of `go list -json` that the rules look at.
type listed struct {
	ImportPath   string
	Standard     bool
	Imports      []string
	TestImports  []string
	XTestImports []string
	Module       *struct{ Path string }
}

// goList runs go list as the binaries are built: for linux, without cgo.
func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Standard,Imports,TestImports,XTestImports,Module"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %q: %v\n%s", args, err, stderr.String())
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		err := d.Decode(&l)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
}

// matches reports whether pattern covers the path p.
func matches(pattern, p string) bool {
	prefix, below := strings.CutSuffix(pattern, "...")
	if !below {
		return pattern == p
	}
	return strings.HasPrefix(p+"/", prefix)
}

func matchesAny(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, p) })
}

func own(importPath string) (string, bool) { return strings.CutPrefix(importPath, module+"/") }

func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// judgeImports returns what a package imports against its layer.
func judgeImports(p listed) []string {
	name, _ := own(p.ImportPath)
	i := slices.IndexFunc(layers, func(l layer) bool { return matches(l.pkg, name) })
	if i < 0 {
		return []string{name + " has no layer: add it to layers in test/arch"}
	}
	l := layers[i]
	var found []string
	for _, imp := range p.Imports {
		ok := standard(imp) || matchesAny(l.libs, imp)
		if o, isOwn := own(imp); isOwn {
			ok = matchesAny(l.own, o)
		}
		if !ok {
			found = append(found, fmt.Sprintf("%s must not import %s", name, imp))
		}
	}
	for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
		if o, isOwn := own(imp); isOwn && !matchesAny(l.own, o) && !matchesAny(testOwn, o) {
			found = append(found, fmt.Sprintf("tests of %s must not import %s", name, imp))
		}
	}
	return found
}

func TestImports(t *testing.T) {
	all := goList(t, "./...")
	if len(all) < 10 {
		t.Fatalf("go list finds %d packages only", len(all))
	}
	for _, p := range all {
		for _, found := range judgeImports(p) {
			t.Error(found)
		}
	}
}

func TestImportsCanFail(t *testing.T) {
	const lib = "k8s.io/client-go/kubernetes"
	tests := []struct {
		name, pkg, imports string
		test               bool
		bad                bool
	}{
		{name: "block imports netipx", pkg: "ipam/block", imports: "go4.org/netipx"},
		{name: "block imports the store", pkg: "ipam/block", imports: module + "/ipam/datastore", bad: true},
		{name: "block imports apimachinery", pkg: "ipam/block", imports: "k8s.io/apimachinery/pkg/labels", bad: true},
		{name: "pool imports apimachinery's labels", pkg: "ipam/pool", imports: "k8s.io/apimachinery/pkg/labels"},
		{name: "pool imports more of apimachinery", pkg: "ipam/pool", imports: "k8s.io/apimachinery/pkg/apis/meta/v1", bad: true},
		{name: "the library imports a store", pkg: "ipam", imports: module + "/ipam/datastore/boltstore", bad: true},
		{name: "the library's tests import a store", pkg: "ipam", imports: module + "/ipam/datastore/memstore", test: true},
		{name: "the library's tests import the agent", pkg: "ipam", imports: module + "/agent/node", test: true, bad: true},
		{name: "the library imports client-go", pkg: "ipam", imports: lib, bad: true},
		{name: "a store imports the library", pkg: "ipam/datastore/kv", imports: module + "/ipam", bad: true},
		{name: "one store imports another", pkg: "ipam/datastore/memstore", imports: module + "/ipam/datastore/boltstore", bad: true},
		{name: "the plugin imports the library", pkg: "cni/plugin", imports: module + "/ipam", bad: true},
		{name: "the plugin's main imports the agent", pkg: "cni", imports: module + "/agent/config", bad: true},
		{name: "the API imports a library", pkg: "cni/agentapi", imports: "github.com/containernetworking/cni/pkg/types", bad: true},
		{name: "the agent imports client-go", pkg: "agent/kube", imports: lib},
		{name: "the agent imports tests", pkg: "agent/node", imports: module + "/test/fixture", bad: true},
		{name: "the demonstration imports the agent", pkg: "test/demo", imports: module + "/agent/ctl", bad: true},
		{name: "a package nobody placed", pkg: "gc", imports: "fmt", bad: true},
		{name: "agents is not agent", pkg: "agents", imports: "fmt", bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := listed{ImportPath: module + "/" + tt.pkg, Imports: []string{tt.imports}}
			if tt.test {
				p.Imports, p.TestImports = nil, p.Imports
			}
			if found := judgeImports(p); (len(found) > 0) != tt.bad {
				t.Errorf("found %q, want something: %t", found, tt.bad)
			}
		})
	}
}

// judgeBinary returns what a binary must not be linked from but is.
func judgeBinary(main string, deps []listed) []string {
	var found []string
	for _, d := range deps {
		if matchesAny(notInBinary[main], d.ImportPath) {
			found = append(found, fmt.Sprintf("./%s is linked from %s", main, d.ImportPath))
		}
	}
	return found
}

func TestBinaries(t *testing.T) {
	for main := range notInBinary {
		for _, found := range judgeBinary(main, goList(t, "-deps", "./"+main)) {
			t.Error(found)
		}
	}
	bad := []listed{{ImportPath: "k8s.io/client-go/rest"}, {ImportPath: "go.etcd.io/bbolt"}, {ImportPath: "testing"}, {ImportPath: "testing/iotest"}, {ImportPath: "fmt"}}
	if found := judgeBinary("cni", bad); len(found) != 3 {
		t.Errorf("the rule finds %q in %v, want 3", found, bad)
	}
}
