// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/allod/allod/ipam/pool"
)

// show's status is what Select says of the pool, also where the stored condition is of
// another moment (INV-13).
func TestStandings(t *testing.T) {
	ok := pool.Admit([]pool.Pool{testPool()}, nil)[0]
	for name, tc := range map[string]struct {
		edit func(*pool.Pool)
		want standing
	}{
		"admitted": {func(*pool.Pool) {}, standing{"OK", "the pool hands out addresses"}},
		"its selectors and uses are of no matter": {func(p *pool.Pool) {
			p.Spec.NodeSelector, p.Spec.NamespaceSelector, p.Spec.AllowedUses = "zone=a", "team", []pool.Use{pool.UseTunnel}
			p.Spec.AssignmentMode = pool.Manual
		}, standing{"OK", "the pool hands out addresses"}},
		"never looked at": {func(p *pool.Pool) { p.Status = pool.Status{} }, standing{notAdmitted, "nobody has looked at it yet"}},
		"status removed": {func(p *pool.Pool) { p.Status = pool.Status{Finalizer: true} }, standing{
			notAdmitted, "its status was removed, or its admission was cut short",
		}},
		"changed with kubectl": {func(p *pool.Pool) { p.Generation++ }, standing{
			notAdmitted, "it has not been admitted yet since it was created or changed",
		}},
		"finalizer missing": {func(p *pool.Pool) { p.Status.Finalizer = false }, standing{
			notAdmitted, "it has not been admitted yet: its finalizer is missing",
		}},
		"being deleted, admitted": {func(p *pool.Pool) { p.Deleting = true }, standing{"Terminating", "it is being deleted"}},
		"disabled, admitted":      {func(p *pool.Pool) { p.Spec.Disabled = true }, standing{"Disabled", "it is disabled (spec.disabled)"}},
		"disabled and changed": {func(p *pool.Pool) { p.Spec.Disabled, p.Generation = true, 2 }, standing{
			"Disabled", "it is disabled (spec.disabled)",
		}},
		"refused": {func(p *pool.Pool) {
			p.Status.Allocatable, p.Status.Reason, p.Status.Message = false, pool.ReasonBlockSizeConflict, "why"
		}, standing{"BlockSizeConflict", "why"}},
		"a reason that is none": {func(p *pool.Pool) {
			p.Status.Allocatable, p.Status.Reason, p.Status.Message = false, "Because", "so"
		}, standing{notAdmitted, "it is not admitted (Because: so)"}},
	} {
		p := ok
		tc.edit(&p)
		got := standings([]pool.Pool{p})[p.Name]
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		s := Snapshot{Pools: []pool.Pool{p}}
		if row := s.poolRows()[0]; row.Status != got.status || row.Message != got.message || row.Available == "0" {
			t.Errorf("%s: row %+v", name, row)
		}
	}
}

// Of two pools that were both admitted, one goes first (case D10).
func TestStandingsOfOverlap(t *testing.T) {
	a, b := testPool(), testPool()
	b.Name, b.Spec.CIDR = "late", netip.MustParsePrefix("10.64.128.0/17")
	pools := append(pool.Admit([]pool.Pool{a}, nil), pool.Admit([]pool.Pool{b}, nil)...)
	got := standings(pools)
	want := standing{"CIDROverlap", "it overlaps pool default-v4 (10.64.0.0/16), which goes first"}
	if !got["default-v4"].serves() || got["late"] != want {
		t.Errorf("%+v", got)
	}
}

// A pool that was stored and handed out nothing is told to be admitted, once.
func TestNoteAdmitted(t *testing.T) {
	now := pool.Admit([]pool.Pool{testPool()}, nil)
	for verb, want := range map[string]string{unchanged: admitted, configured: configured} {
		done := []applied{{ref: ref{kindPool, "default-v4"}, verb: verb}, {ref: ref{kindReservation, "default-v4"}, verb: unchanged}}
		noteAdmitted(done, []pool.Pool{testPool()}, now)
		if done[0].verb != want || done[1].verb != unchanged {
			t.Errorf("%s: %+v", verb, done)
		}
	}
	done := []applied{{ref: ref{kindPool, "default-v4"}, verb: unchanged}}
	if noteAdmitted(done, now, now); done[0].verb != unchanged {
		t.Errorf("again: %+v", done)
	}
	warnPools(done, []pool.Pool{testPool()})
	if done[0].warning != "hands out nothing: NotAdmitted: nobody has looked at it yet" {
		t.Errorf("warning %q", done[0].warning)
	}
}

// What to do depends on the store and names the pool.
func TestActionsNameTheCommand(t *testing.T) {
	s := sound(t)
	s.Pools[0].Status = pool.Status{}
	s.Pools = append(s.Pools, pool.Pool{Name: "gone", Deleting: true, Generation: 2, Spec: pool.Spec{
		CIDR: netip.MustParsePrefix("10.70.0.0/16"), BlockSize: 29,
	}.WithDefaults()})
	for embedded, want := range map[bool]string{
		false: `"allod-agent apply -f" with the manifest of ippool/default-v4, the same one will do: that decides anew; if it stays, report it`,
		true:  `"allod-agent apply -f" with a manifest of ippool/default-v4 that changes a field: that decides anew; if it stays, report it`,
	} {
		s.Embedded = embedded
		ps := Audit(s).Problems
		if len(ps) != 2 || ps[0].Action != want || ps[1].Action != `"allod-agent delete ippool/gone" completes it, or says what holds the pool` {
			t.Errorf("embedded %v: %+v", embedded, ps)
		}
	}
}

// delete knows every name that the CRDs give a kind, and kubectl's other spellings.
func TestKindNames(t *testing.T) {
	for kind := range kindNames {
		files, err := filepath.Glob("../../manifests/crds/*_" + kind + "s.yaml")
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: %v, %v", kind, files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Names struct {
					Kind, Singular, Plural string
					ShortNames             []string
				}
			}
		}
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		n := crd.Spec.Names
		if want := slices.Concat([]string{n.Singular, n.Plural}, n.ShortNames); !slices.Equal(kindNames[kind], want) {
			t.Errorf("%s: %q, the CRD has %q", kind, kindNames[kind], want)
		}
		for _, name := range slices.Concat(kindNames[kind], []string{n.Kind, n.Singular + ".ipam.allod.io", n.Plural + ".ipam.allod.io"}) {
			if r, err := parseRef(name + "/blue"); err != nil || r != (ref{kind, "blue"}) {
				t.Errorf("%s/blue: %v, %v", name, r, err)
			}
		}
	}
}
