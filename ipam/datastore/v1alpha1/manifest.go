// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// MaxManifest is the largest manifest that is read, in bytes.
const MaxManifest = 1 << 20

// Object is something an operator may apply: *IPPool, *IPReservation or
// *IPAMConfiguration.
//
// +kubebuilder:object:generate=false
type Object interface {
	// Ref names the object as kind/name.
	Ref() string
	// Validate returns every rule the object breaks; each error names its field.
	Validate() error

	objectMeta() *metav1.ObjectMeta
}

// Ref implements Object.
func (o *IPPool) Ref() string { return KindPool + "/" + o.Name }

// Ref implements Object.
func (o *IPReservation) Ref() string { return KindReservation + "/" + o.Name }

// Ref implements Object.
func (o *IPAMConfiguration) Ref() string { return KindConfiguration + "/" + o.Name }

func (o *IPPool) objectMeta() *metav1.ObjectMeta            { return &o.ObjectMeta }
func (o *IPReservation) objectMeta() *metav1.ObjectMeta     { return &o.ObjectMeta }
func (o *IPAMConfiguration) objectMeta() *metav1.ObjectMeta { return &o.ObjectMeta }

// DecodeManifest reads the YAML (or JSON) documents of r strictly and validates
// each. Empty documents are passed over. All that is wrong is returned, joined;
// each error begins with the number of the document and names the field. On an
// error no object is returned.
func DecodeManifest(r io.Reader) ([]Object, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if len(data) > MaxManifest {
		return nil, fmt.Errorf("manifest: larger than %d bytes", MaxManifest)
	}
	var (
		objects []Object
		errs    []error
		seen    = map[string]int{}
	)
	for i, doc := range splitDocuments(data) {
		o, err := decodeDocument(doc)
		if err != nil {
			errs = append(errs, prefixEach(fmt.Sprintf("document %d: ", i+1), err)...)
			continue
		}
		if o == nil {
			continue
		}
		if first, dup := seen[o.Ref()]; dup {
			errs = append(errs, fmt.Errorf("document %d: metadata.name: %s is already in document %d", i+1, o.Ref(), first))
			continue
		}
		seen[o.Ref()] = i + 1
		objects = append(objects, o)
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	return objects, nil
}

// decodeDocument returns nil for an empty document.
func decodeDocument(doc []byte) (Object, error) {
	j, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	if string(bytes.TrimSpace(j)) == "null" {
		return nil, nil
	}
	o, err := newObject(j)
	if err != nil {
		return nil, err
	}
	strict, err := kjson.UnmarshalStrict(j, o)
	if err != nil {
		return nil, plainTypeError(err)
	}
	if strict != nil {
		return nil, errors.Join(strict...)
	}
	m := o.objectMeta()
	if m.Name == "" {
		return nil, fmt.Errorf("metadata.name: missing")
	}
	if m.Namespace != "" {
		return nil, fmt.Errorf("metadata.namespace: %s belongs to no namespace", o.Ref())
	}
	if err := o.Validate(); err != nil {
		return nil, errors.Join(prefixEach(o.Ref()+": ", err)...)
	}
	return o, nil
}

func newObject(j []byte) (Object, error) {
	var t metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(j, &t); err != nil {
		return nil, plainTypeError(err)
	}
	if t.Kind == "" {
		return nil, fmt.Errorf("kind: missing; want %s, %s or %s", KindPool, KindReservation, KindConfiguration)
	}
	if t.APIVersion != APIVersion {
		return nil, fmt.Errorf("apiVersion: %q; this version reads %s", t.APIVersion, APIVersion)
	}
	switch t.Kind {
	case KindPool:
		return &IPPool{}, nil
	case KindReservation:
		return &IPReservation{}, nil
	case KindConfiguration:
		return &IPAMConfiguration{}, nil
	}
	return nil, fmt.Errorf("kind: %q cannot be applied; %s, %s and %s can",
		t.Kind, KindPool, KindReservation, KindConfiguration)
}

// plainTypeError says which field has a value of the wrong type, without Go's words.
func plainTypeError(err error) error {
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return err
	case e.Field == "":
		return fmt.Errorf("a %s, not an object with apiVersion, kind, metadata and spec", e.Value)
	}
	return fmt.Errorf("%s: want %s, have a %s", e.Field, kindOfValue(e.Type), e.Value)
}

// kindOfValue is what YAML calls a value of type t.
func kindOfValue(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint64:
		return "a number"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a string"
}

// splitDocuments cuts at the markers "---" and "..." of YAML and drops what is
// blank. A YAML decoder reads one document and is silent about any after it, so
// no marker may be left inside.
func splitDocuments(data []byte) [][]byte {
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	var docs [][]byte
	var doc []byte
	flush := func() {
		if len(bytes.TrimSpace(doc)) > 0 {
			docs = append(docs, doc)
		}
		doc = nil
	}
	for line := range bytes.Lines(data) {
		if tail, ok := afterMarker(line); ok {
			flush()
			doc = append(doc, tail...) // "--- {kind: …}" begins a document too
			continue
		}
		doc = append(doc, line...)
	}
	flush()
	return docs
}

func afterMarker(line []byte) (tail []byte, ok bool) {
	for _, marker := range []string{"---", "..."} {
		tail, ok = bytes.CutPrefix(line, []byte(marker))
		if ok && (len(tail) == 0 || bytes.IndexByte([]byte(" \t\n"), tail[0]) >= 0) {
			return tail, true
		}
	}
	return nil, false
}

// prefixEach puts prefix before each error that err joins.
func prefixEach(prefix string, err error) []error {
	// Not errors.As: it would look through a wrapper and lose its text.
	joined, ok := any(err).(interface{ Unwrap() []error })
	if !ok {
		return []error{fmt.Errorf("%s%w", prefix, err)}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, prefixEach(prefix, e)...)
	}
	return out
}
