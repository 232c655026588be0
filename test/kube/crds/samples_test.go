// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/test/kube/apiserver"
)

// sample is one file of manifests/samples. The last document of an invalid one is
// what must be refused; those before it are stored first.
type sample struct {
	name    string
	docs    []*unstructured.Unstructured
	server  string // invalid: what the API server's message contains
	library string // invalid: the same of the library's, "" if the library does not refuse
}

func samples(t *testing.T, folder string) []sample {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(manifests, "samples", folder, "*.yaml"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d samples in %s, error %v", len(files), folder, err)
	}
	var all []sample
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := sample{name: strings.TrimSuffix(filepath.Base(file), ".yaml")}
		if s.docs, err = apiserver.Decode(text); err != nil || len(s.docs) == 0 {
			t.Fatalf("%s: %d documents, error %v", file, len(s.docs), err)
		}
		if folder == "invalid" {
			if s.server, s.library, err = header(string(text)); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
		all = append(all, s)
	}
	return all
}

// header reads the comment that begins an invalid sample: the rule, what the API
// server says, and what the library says if that differs; "-" and a reason if the
// library does not refuse.
func header(text string) (server, library string, err error) {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), "# ")
		if !ok {
			break
		}
		key, value, _ := strings.Cut(comment, ": ")
		fields[key] = value
	}
	if fields["Rule"] == "" || fields["API server"] == "" {
		return "", "", errors.New("the header names no rule or no text of the API server")
	}
	library, ok := fields["Library"]
	switch reason, lenient := strings.CutPrefix(library, "- "); {
	case !ok:
		library = fields["API server"]
	case lenient && reason != "":
		library = ""
	}
	return fields["API server"], library, nil
}

// resource returns the client for objects of o's kind.
func resource(t *testing.T, o *unstructured.Unstructured) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	r := v1alpha1.Resource(o.GetKind())
	if r.Empty() {
		t.Fatalf("kind %q is not ours", o.GetKind())
	}
	return c.Resource(r)
}

func create(t *testing.T, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t.Helper()
	return resource(t, o).Create(t.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
}

// store creates o for the length of the test.
func store(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	got, err := create(t, o)
	if err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	r := resource(t, o)
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := r.Delete(context.WithoutCancel(t.Context()), o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return got
}

// typed reads o as the library does: strictly.
func typed(o *unstructured.Unstructured) (runtime.Object, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	text, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	obj, err := scheme.New(o.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	strict, err := kjson.UnmarshalStrict(text, obj)
	return obj, errors.Join(append(strict, err)...)
}

// libraryRefuses returns why the library does not take o, nil if it does. What an
// operator writes it reads as `allod-agent apply` does.
func libraryRefuses(o *unstructured.Unstructured) error {
	obj, err := typed(o)
	if err != nil {
		return err
	}
	switch obj := obj.(type) {
	case v1alpha1.Object:
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return err
		}
		_, err = v1alpha1.DecodeManifest(bytes.NewReader(text))
		return err
	case *v1alpha1.IPAMBlock:
		b, err := obj.Block()
		if err != nil {
			return err
		}
		return b.Check()
	case *v1alpha1.BlockAffinity:
		_, _, err := obj.Affinity()
		return err
	case *v1alpha1.IPAMHandle:
		_, _, err := obj.Handle()
		return err
	case *v1alpha1.TunnelEndpoint:
		return obj.Validate()
	}
	return fmt.Errorf("%T: nobody reads it", obj)
}

// changeRefused returns why the library does not turn old into o.
func changeRefused(old, o *unstructured.Unstructured) error {
	before, err := typed(old)
	if err != nil {
		return err
	}
	after, err := typed(o)
	if err != nil {
		return err
	}
	from, ok := before.(*v1alpha1.IPPool)
	if !ok {
		return nil
	}
	to := after.(*v1alpha1.IPPool)
	p, errP := from.Pool()
	q, errQ := to.Pool()
	return errors.Join(errP, errQ, q.ValidateChange(p))
}

// Every valid sample is taken by the API server and by the library, and comes
// back as it was sent: no field of it is unknown to the CRD.
func TestValidSamples(t *testing.T) {
	kinds := map[string]bool{}
	for _, s := range samples(t, "valid") {
		t.Run(s.name, func(t *testing.T) {
			for _, o := range s.docs {
				kinds[o.GetKind()] = true
				if err := libraryRefuses(o); err != nil && s.name != "block-newer" {
					t.Errorf("the library refuses %s %s: %v", o.GetKind(), o.GetName(), err)
				}
				sent, err := typed(o)
				if err != nil {
					t.Fatal(err)
				}
				got, err := typed(store(t, o))
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(sent, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(metav1.ObjectMeta{}, "UID", "ResourceVersion", "Generation", "CreationTimestamp", "ManagedFields")); d != "" {
					t.Errorf("%s %s (-sent +got):\n%s", o.GetKind(), o.GetName(), d)
				}
			}
		})
	}
	for _, kind := range []string{
		v1alpha1.KindPool, v1alpha1.KindReservation, v1alpha1.KindConfiguration, v1alpha1.KindBlock,
		v1alpha1.KindAffinity, v1alpha1.KindHandle, v1alpha1.KindTunnelEndpoint,
	} {
		if !kinds[kind] {
			t.Errorf("no valid sample of %s", kind)
		}
	}
}

// Every invalid sample is refused by the API server and by the library, in the
// words that its header promises.
func TestInvalidSamples(t *testing.T) {
	for _, s := range samples(t, "invalid") {
		t.Run(s.name, func(t *testing.T) {
			last := len(s.docs) - 1
			o := s.docs[last]
			var server, library error
			if last == 0 {
				_, server = create(t, o)
				library = libraryRefuses(o)
			} else {
				old := s.docs[0]
				o.SetResourceVersion(store(t, old).GetResourceVersion())
				_, server = resource(t, o).Update(t.Context(), o, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
				library = errors.Join(libraryRefuses(o), changeRefused(old, o))
			}
			refusal(t, "the API server", server, s.server)
			if s.library != "" {
				refusal(t, "the library", library, s.library)
			}
		})
	}
}

func refusal(t *testing.T, who string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "evaluation") {
		t.Errorf("%s says: %v\nwant a refusal with: %s", who, err, want)
	}
}

// A sample's file is about one rule: no other one is broken.
func TestInvalidSamplesBreakOneRule(t *testing.T) {
	for _, s := range samples(t, "invalid") {
		if len(s.docs) > 1 {
			continue
		}
		_, err := create(t, s.docs[0])
		var status interface{ Status() metav1.Status }
		if !errors.As(err, &status) {
			t.Errorf("%s: %v", s.name, err)
			continue
		}
		var broken []string
		details := status.Status().Details
		if details == nil { // the form is refused before any rule is looked at
			continue
		}
		for _, c := range details.Causes {
			if !strings.Contains(c.Message, "some validation rules were not checked") {
				broken = append(broken, c.Field+": "+c.Message)
			}
		}
		if len(broken) > 1 {
			t.Errorf("%s breaks %d rules:\n%s", s.name, len(broken), strings.Join(broken, "\n"))
		}
	}
}
