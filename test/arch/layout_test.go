// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// topLevel are the entries of the repository's root, the later ones included;
// names that start with a dot are free.
var topLevel = strings.Fields(`
	go.mod go.sum go.tools.mod go.tools.sum Makefile Dockerfile
	README.md LICENSE CONTRIBUTING.md CHANGELOG.md docs
	cni agent ipam gc vmipam tunnel install manifests test`)

// notKept is build output that .gitignore names.
var notKept = []string{"bin"}

func judgeTopLevel(names []string) []string {
	var found []string
	for _, name := range names {
		if !strings.HasPrefix(name, ".") && !slices.Contains(topLevel, name) && !slices.Contains(notKept, name) {
			found = append(found, name+" does not belong at the top level")
		}
	}
	return found
}

func TestTopLevel(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	for _, found := range judgeTopLevel(names) {
		t.Error(found)
	}
	if found := judgeTopLevel([]string{"pkg", "main.go", ".ci", "ipam", "bin"}); len(found) != 2 {
		t.Errorf("the rule finds %q, want pkg and main.go", found)
	}
}

// judgePackageComments wants, for each package, one file with a package comment:
// one file, because go doc would join several.
func judgePackageComments(all []source) []string {
	comments := map[string]int{}
	for _, s := range all {
		name := strings.TrimSuffix(s.file.Name.Name, "_test")
		key := s.dir() + " (package " + name + ")"
		comments[key] += 0
		if s.file.Doc != nil {
			comments[key]++
		}
	}
	var found []string
	for key, n := range comments {
		switch {
		case n == 0:
			found = append(found, key+" has no package comment")
		case n > 1:
			found = append(found, key+" has package comments in several files")
		}
	}
	slices.Sort(found)
	return found
}

func TestPackageComments(t *testing.T) {
	for _, found := range judgePackageComments(sources(t)) {
		t.Error(found)
	}
	var bad []source
	for name, text := range map[string]string{
		"a/a.go": "// SPDX\n\npackage a\n",
		"b/b.go": "// Package b is\npackage b\n",
		"c/a.go": "// Package c is\npackage c\n", "c/b.go": "// Package c too\npackage c\n", "c/c_test.go": "package c_test\n",
	} {
		s, err := parse(name, text)
		if err != nil {
			t.Fatal(err)
		}
		bad = append(bad, s)
	}
	want := []string{"a (package a) has no package comment", "c (package c) has package comments in several files"}
	if found := judgePackageComments(bad); !slices.Equal(found, want) {
		t.Errorf("the rule finds %q, want %q", found, want)
	}
}
