// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var caseRow = regexp.MustCompile(`(?m)^\| ([RDSEC][0-9]+) \|`)

// untested returns the cases of the document that none of the texts names.
func untested(document string, texts []string) []string {
	all := strings.Join(texts, "\n")
	var missing []string
	for _, m := range caseRow.FindAllStringSubmatch(document, -1) {
		if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(all) {
			missing = append(missing, m[1])
		}
	}
	return missing
}

// TestCasesAreTested holds docs/design/cases.md against the tests.
func TestCasesAreTested(t *testing.T) {
	root := filepath.Join("..", "..")
	document, err := os.ReadFile(filepath.Join(root, "docs", "design", "cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(caseRow.FindAll(document, -1)); n < 29 {
		t.Errorf("%d cases in the document; is its table still read?", n)
	}
	var tests []string
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		tests = append(tests, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range untested(string(document), tests) {
		t.Errorf("case %s is named by no test", c)
	}
}

func TestUntestedFindsAGap(t *testing.T) {
	got := untested("| R1 | x |\n| R11 | y |\n", []string{"// case R11"})
	if len(got) != 1 || got[0] != "R1" {
		t.Errorf("got %v, want R1", got)
	}
}
