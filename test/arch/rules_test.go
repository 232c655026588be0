// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rule judges one file. What it returns is what is wrong.
type rule struct {
	name  string
	check func(source) []string
}

var rules = []rule{
	{"licence", checkLicence},
	{"file size", checkFileSize},
	{"function size", checkFunctionSize},
	{"clock", checkClock},
	{"randomness", checkRandomness},
	{"sleep", checkSleep},
	{"exit", checkExit},
	{"panic", checkPanic},
	{"context", checkContext},
	{"environment", checkEnvironment},
	{"documentation", checkDocumentation},
	{"folder name", checkFolderName},
	{"fault test", checkFaultTest},
}

// Limits of size, for code that is no test. They are where a reviewer would
// refuse; most code stays at half.
const (
	maxFileLines     = 600
	maxFunctionLines = 100
)

// pure are the packages that decide and never look at a clock or at chance:
// both are given to them (INV-4, INV-5 and INV-15 are tested so).
var pure = []string{"ipam", "ipam/block", "ipam/pool", "ipam/datastore", "ipam/datastore/v1alpha1"}

// mayDraw are the pure functions that may use chance that was not given to them.
var mayDraw = map[string]string{
	"ipam.newBackoff": "seeds the default source; only the length of pauses depends on it",
}

// mayPanic are the functions that may panic, and why each is a programmer's error.
var mayPanic = map[string]string{}

// An exception whose function is gone must go too.
func TestExceptionsAreUsed(t *testing.T) {
	defined := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			defined[s.function(d)] = true
		}
	}
	for _, list := range []map[string]string{mayDraw, mayPanic} {
		for name := range list {
			if !defined[name] {
				t.Errorf("there is no %s: remove its exception", name)
			}
		}
	}
}

func TestRules(t *testing.T) {
	all := sources(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, s := range all {
				for _, found := range r.check(s) {
					t.Error(found)
				}
			}
		})
	}
}

func checkLicence(s source) []string {
	const want = "// SPDX-License-Identifier: Apache-2.0\n"
	if strings.HasPrefix(s.text, want) {
		return nil
	}
	return []string{s.path + ":1: the first line must be " + strings.TrimSpace(want)}
}

func checkFileSize(s source) []string {
	lines := strings.Count(s.text, "\n")
	if s.isTest() || s.generated() || lines <= maxFileLines {
		return nil
	}
	return []string{s.at(s.file, "%d lines, at most %d", lines, maxFileLines)}
}

func checkFunctionSize(s source) []string {
	if s.isTest() || s.generated() {
		return nil
	}
	var found []string
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		lines := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
		if lines > maxFunctionLines {
			found = append(found, s.at(f, "%s has %d lines, at most %d", f.Name.Name, lines, maxFunctionLines))
		}
	}
	return found
}

func (s source) isPure() bool { return !s.isTest() && slices.Contains(pure, s.dir()) }

func checkClock(s source) []string {
	if !s.isPure() {
		return nil
	}
	return s.forbid("the time is passed in", "time", "Now", "Since", "Until", "Sleep")
}

func checkRandomness(s source) []string {
	if !s.isPure() {
		return nil
	}
	var found []string
	s.uses(func(n ast.Node, pkg, name string) {
		global := !strings.HasPrefix(name, "New") && !slices.Contains([]string{"Rand", "Source", "PCG", "ChaCha8", "Zipf"}, name)
		if mayDraw[s.function(n)] != "" {
			return
		}
		if pkg == "crypto/rand" || (pkg == "math/rand" || pkg == "math/rand/v2") && global {
			found = append(found, s.at(n, "%s.%s: a *rand.Rand is passed in", path.Base(pkg), name))
		}
	})
	return found
}

func checkSleep(s source) []string {
	if !s.production() {
		return nil
	}
	return s.forbid("wait for what is awaited", "time", "Sleep")
}

func checkExit(s source) []string {
	if s.isMain() || s.isTest() { // TestMain
		return nil
	}
	why := "only package main ends the process"
	return slices.Concat(
		s.forbid(why, "os", "Exit"),
		s.forbid(why, "syscall", "Exit"),
		s.forbid(why, "log", "Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"),
		s.forbid(why, "runtime", "Goexit"),
	)
}

func checkPanic(s source) []string {
	if !s.production() {
		return nil
	}
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			fun, ok := call.Fun.(*ast.Ident)
			if ok && fun.Name == "panic" && mayPanic[s.function(n)] == "" {
				found = append(found, s.at(n, "panic in %s, which is not in mayPanic", s.function(n)))
			}
		}
		return true
	})
	return found
}

func checkContext(s source) []string {
	if !s.production() || s.isMain() {
		return nil
	}
	return s.forbid("the caller's context is passed in", "context", "Background", "TODO")
}

func checkEnvironment(s source) []string {
	if !s.production() || s.dir() == "agent/config" {
		return nil
	}
	return slices.Concat(
		s.forbid("only agent/config reads settings from the environment", "os", "Getenv", "LookupEnv", "ExpandEnv"),
		s.forbid("only agent/config reads settings from the environment", "syscall", "Getenv"),
	)
}

// checkDocumentation wants a comment on each exported function, type, constant
// and variable, and on each exported method of an exported type but those whose
// meaning a standard interface gives. A comment on a group is enough for all in it.
func checkDocumentation(s source) []string {
	if s.isTest() || s.isMain() {
		return nil
	}
	var found []string
	missing := func(n *ast.Ident) {
		if n.IsExported() {
			found = append(found, s.at(n, "%s is exported and has no comment", n.Name))
		}
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && exportedReceiver(d) && !standardMethod(d) {
				missing(d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if d.Doc == nil && spec.Doc == nil {
						missing(spec.Name)
					}
				case *ast.ValueSpec:
					if d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
						for _, name := range spec.Names {
							missing(name)
						}
					}
				}
			}
		}
	}
	return found
}

func standardMethod(f *ast.FuncDecl) bool {
	return f.Recv != nil && slices.Contains([]string{"Error", "Unwrap", "String", "Read", "Write", "ServeHTTP"}, f.Name.Name)
}

// exportedReceiver reports whether f is a function, or a method whose type is exported.
func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

// checkFolderName refuses names that say nothing about what a package owns.
func checkFolderName(s source) []string {
	for element := range strings.SplitSeq(s.dir(), "/") {
		switch element {
		case "pkg", "util", "utils", "common", "helper", "helpers", "models", "misc":
			return []string{s.path + ": a package is named for what it owns, not " + element}
		}
	}
	return nil
}

var faultTest = regexp.MustCompile(`^(Test|Fuzz|Example)`)

// checkFaultTest keeps every test in exactly one tier: the unit tier leaves out
// what has Fault in its name, and the fault tier looks below ipam only.
func checkFaultTest(s source) []string {
	if !s.isTest() || s.dir() == "ipam" || strings.HasPrefix(s.path, "ipam/") {
		return nil
	}
	var found []string
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && f.Recv == nil && faultTest.MatchString(f.Name.Name) && strings.Contains(f.Name.Name, "Fault") {
			found = append(found, s.at(f, "%s would run in no tier: tests named Fault live below ipam", f.Name.Name))
		}
	}
	return found
}
