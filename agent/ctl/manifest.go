// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// readManifests reads and validates every document of every source: a file, a
// folder (its *.yaml, *.yml and *.json, by name, not below), or - for stdin.
// Everything wrong with any of them is returned at once, and then no object is.
func readManifests(sources []string, stdin io.Reader) ([]v1alpha1.Object, error) {
	var (
		objects []v1alpha1.Object
		errs    []error
		seen    = map[string]string{}
	)
	files, err := expand(sources)
	if err != nil {
		errs = append(errs, err)
	}
	for _, f := range files {
		list, err := readManifest(f, stdin)
		if err != nil {
			errs = append(errs, err)
		}
		for _, o := range list {
			if first, dup := seen[o.Ref()]; dup {
				errs = append(errs, fmt.Errorf("%s: metadata.name: %s is already in %s", f, o.Ref(), first))
				continue
			}
			seen[o.Ref()] = f
			objects = append(objects, o)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("no objects in %s", strings.Join(sources, ", "))
	}
	return objects, nil
}

// expand replaces each folder by the manifests in it.
func expand(sources []string) ([]string, error) {
	var files []string
	var errs []error
	for _, s := range sources {
		if s == "-" {
			files = append(files, s)
			continue
		}
		info, err := os.Stat(s)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("manifest: %w", err))
		case !info.IsDir():
			files = append(files, s)
		default:
			in, err := manifestsIn(s)
			files = append(files, in...)
			if err != nil {
				errs = append(errs, err)
			}
		}
	}
	return files, errors.Join(errs...)
}

func manifestsIn(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	var files []string
	for _, e := range entries { // sorted by name
		if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(folder, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("manifest: no .yaml, .yml or .json in folder %s", folder)
	}
	return files, nil
}

// readManifest reads one file, or stdin. Each error begins with its name.
func readManifest(name string, stdin io.Reader) ([]v1alpha1.Object, error) {
	r := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("manifest: %w", err)
		}
		defer func() { _ = f.Close() }() // read only
		r = f
	}
	objects, err := v1alpha1.DecodeManifest(r)
	if err != nil {
		return nil, prefixed(name, err)
	}
	return objects, nil
}

// prefixed puts name before each of the errors that err joins, so that each line
// stands for itself.
func prefixed(name string, err error) error {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return fmt.Errorf("%s: %w", name, err)
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, prefixed(name, e))
	}
	return errors.Join(out...)
}
