// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/allod/allod"
	root   = "../.."
)

// source is one parsed Go file. path is slash-separated and relative to the
// module's root.
type source struct {
	path string
	text string
	fset *token.FileSet
	file *ast.File
}

func parse(name, text string) (source, error) {
	s := source{path: name, text: text, fset: token.NewFileSet()}
	var err error
	s.file, err = parser.ParseFile(s.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return s, err
}

// sources parses every Go file of the repository, nested modules included.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); file != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(file) != ".go" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(rel), string(text))
		all = append(all, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("only %d Go files found below %s", len(all), root)
	}
	return all
}

func (s source) dir() string     { return path.Dir(s.path) }
func (s source) isTest() bool    { return strings.HasSuffix(s.path, "_test.go") }
func (s source) isMain() bool    { return s.file.Name.Name == "main" }
func (s source) generated() bool { return ast.IsGenerated(s.file) }

// production is code that runs at a user's: no test, and nothing made for tests.
func (s source) production() bool {
	return !s.isTest() && !strings.HasPrefix(s.path, "test/") && s.dir() != "ipam/datastore/storetest"
}

// at is a finding with its position, as compilers print it.
func (s source) at(n ast.Node, format string, args ...any) string {
	p := s.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d: %s", s.path, p.Line, fmt.Sprintf(format, args...))
}

// function names the function that n is in as folder.Name, methods without their
// receiver; outside of functions it is the folder.
func (s source) function(n ast.Node) string {
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Pos() <= n.Pos() && n.Pos() < f.End() {
			return s.dir() + "." + f.Name.Name
		}
	}
	return s.dir()
}

// uses calls visit for every mention pkg.Name of an imported package's name:
// calls as well as functions passed as values.
func (s source) uses(visit func(n ast.Node, pkg, name string)) {
	imports := map[string]string{}
	for _, spec := range s.file.Imports {
		importPath := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(importPath)
		if name == "v2" {
			name = path.Base(path.Dir(importPath))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imports[name] = importPath
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && imports[x.Name] != "" {
				visit(n, imports[x.Name], sel.Sel.Name)
			}
		}
		return true
	})
}

// forbid reports uses of names of pkg; no names means every name.
func (s source) forbid(why, pkg string, names ...string) []string {
	var found []string
	s.uses(func(n ast.Node, p, name string) {
		if p == pkg && (len(names) == 0 || slices.Contains(names, name)) {
			found = append(found, s.at(n, "%s.%s: %s", path.Base(pkg), name, why))
		}
	})
	return found
}
