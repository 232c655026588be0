// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/design/dependencies/*.txt")

// maxPlugin is the budget of bin/allod in bytes: it is exec'd for every pod.
const maxPlugin = 8 << 20

// binaries are the mains and the names that the Makefile gives them.
var binaries = map[string]string{"cni": "allod", "agent": "allod-agent"}

// TestDependencyLists compares the modules that each binary is linked from with
// the committed lists, so that growth shows in review.
func TestDependencyLists(t *testing.T) {
	for main, name := range binaries {
		got := moduleList(name, goList(t, "-deps", "./"+main))
		file := filepath.Join(root, "docs", "design", "dependencies", name+".txt")
		if *update {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s is linked from other modules than its list says; `make generate` rewrites it (-list +linked):\n%s", name, diff)
		}
	}
}

// moduleList is the text of a list: the module paths in order, without
// versions, which go.mod has.
func moduleList(binary string, deps []listed) string {
	var paths []string
	for _, d := range deps {
		if d.Module != nil && d.Module.Path != module {
			paths = append(paths, d.Module.Path)
		}
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	return "# Modules that " + binary + " is linked from. Written by `make generate`.\n" + strings.Join(append(paths, ""), "\n")
}

func TestModuleList(t *testing.T) {
	var deps []listed
	data := `[{"ImportPath":"fmt"},{"Module":{"Path":"b.org/b"}},{"Module":{"Path":"a.org/a"}},{"Module":{"Path":"b.org/b"}},{"Module":{"Path":"github.com/allod/allod"}}]`
	if err := json.Unmarshal([]byte(data), &deps); err != nil {
		t.Fatal(err)
	}
	const want = "# Modules that allod is linked from. Written by `make generate`.\na.org/a\nb.org/b\n"
	if got := moduleList("allod", deps); got != want {
		t.Errorf("list %q, want %q", got, want)
	}
}

// A row of the table in docs/design/dependencies.md: | `module` | reason | ...
var reasonRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\|")

// judgeReasons compares the direct requirements of go.mod with the table of reasons.
func judgeReasons(direct []string, table string) []string {
	reasons := map[string]bool{}
	var found []string
	for _, row := range reasonRow.FindAllStringSubmatch(table, -1) {
		if reasons[row[1]] {
			found = append(found, row[1]+" has two rows")
		}
		reasons[row[1]] = true
		if !slices.Contains(direct, row[1]) {
			found = append(found, row[1]+" has a row but go.mod does not require it directly")
		}
	}
	for _, path := range direct {
		if !reasons[path] {
			found = append(found, path+" is required directly and has no reason")
		}
	}
	return found
}

func TestDependencyReasons(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	table, err := os.ReadFile(filepath.Join(root, "docs", "design", "dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range judgeReasons(direct, string(table)) {
		t.Errorf("docs/design/dependencies.md: %s", found)
	}

	const bad = "| module | why |\n|---|---|\n| `a.org/a` | it is fast | x |\n| `a.org/a` | again |\n| `gone.org/g` | old |\n| `empty.org/e` ||\n"
	if found := judgeReasons([]string{"a.org/a", "empty.org/e"}, bad); len(found) != 3 {
		t.Errorf("the rule finds %q, want a double, a stale and a missing row", found)
	}
}

// The binaries are built by the Makefile's own rule.
func TestBinariesAsBuilt(t *testing.T) {
	const version = "v0.0.0-arch-test"
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "build", "BIN="+dir, "VERSION="+version)
	cmd.Dir = root
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "MAKE") && !strings.HasPrefix(e, "MFLAGS") { // of a make that runs this test
			cmd.Env = append(cmd.Env, e)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	for _, name := range binaries {
		file := filepath.Join(dir, name)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.1f MB", name, float64(len(data))/(1<<20))
		if name == "allod" && len(data) > maxPlugin {
			t.Errorf("%s has %d bytes, at most %d", name, len(data), maxPlugin)
		}
		if !bytes.Contains(data, []byte(version)) {
			t.Errorf("%s does not carry the version: is main.version still a string variable?", name)
		}
		f, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			t.Errorf("%s is not static", name)
		}
		if bytes.Contains(data, []byte(cwd(t))) {
			t.Errorf("%s names the folder it was built in", name)
		}
	}
}

func cwd(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
