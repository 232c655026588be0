// SPDX-License-Identifier: Apache-2.0

package block

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fullSlot sets every exported field of a Slot to a value of its own by
// reflection, so that a field added later without a place in the grammar fails
// the round trip. hard makes the text hard: every byte that has to be escaped.
func fullSlot(t *testing.T, state State, hard bool) Slot {
	t.Helper()
	var s Slot
	n := 0
	fill(t, reflect.ValueOf(&s).Elem(), "", func(path string) string {
		n++
		if !hard {
			return fmt.Sprintf("v%d", n)
		}
		return fmt.Sprintf("%d/%% =%s\t\n\x00\x7f\xff-é,%%2F", n, path)
	})
	s.State = state
	s.Extra, s.Raw = "future=1 a/b=%zz", ""
	switch state {
	case Cooling:
		s.Handle, s.Since = "", time.Time{}
	default:
		s.Released, s.LastHandle = time.Time{}, ""
	}
	return s
}

func fill(t *testing.T, v reflect.Value, path string, text func(path string) string) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString(text(path))
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Uint64:
		v.SetUint(maxSeq)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(t0.Add(123456789 * time.Nanosecond)))
			return
		}
		for i := range v.NumField() {
			fill(t, v.Field(i), path+v.Type().Field(i).Name, text)
		}
	default:
		t.Fatalf("field %s has kind %s: teach this test and the grammar about it", path, v.Kind())
	}
}

func TestEveryFieldRoundTrips(t *testing.T) {
	for _, state := range []State{Allocated, Cooling} {
		for _, hard := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hard text %v", state, hard), func(t *testing.T) {
				want := fullSlot(t, state, hard)
				line := formatLine(200, &want)
				o, got, err := parseLine(line)
				if err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				if o != 200 {
					t.Errorf("ordinal %d", o)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("line %q (-want +got):\n%s", line, d)
				}
			})
		}
	}
}

// One field at a time: a field must not need another to be written.
func TestEachFieldAloneRoundTrips(t *testing.T) {
	full := fullSlot(t, Allocated, true)
	typ := reflect.TypeFor[Owner]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		var one Owner
		reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(full.Active).Field(i))
		for role, want := range map[string]Slot{
			"active":    {State: Allocated, Handle: "h", Active: one},
			"alternate": {State: Allocated, Handle: "h", Alternate: one},
			"last":      {State: Cooling, Released: t0, Active: one},
		} {
			t.Run(role+" "+name, func(t *testing.T) {
				_, got, err := parseLine(formatLine(0, &want))
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			})
		}
	}
}

// Every byte, also in a handle, survives; what is written is printable ASCII
// without a space inside a token.
func TestEveryByteRoundTrips(t *testing.T) {
	for c := range 256 {
		v := string([]byte{byte(c)})
		want := Slot{
			State: Allocated, Handle: HandleID(v), Type: Type(v + v), Seq: 1,
			Active: Owner{Namespace: v, Pod: v, Node: "a" + v + "b"},
		}
		line := formatLine(3, &want)
		if n := strings.Count(line, " "); n != 6 {
			t.Errorf("byte %#02x: %d spaces in %q", c, n, line)
		}
		_, got, err := parseLine(line)
		if err != nil {
			t.Errorf("byte %#02x: %v", c, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("byte %#02x in %q (-want +got):\n%s", c, line, d)
		}
	}
}

func TestGoodLines(t *testing.T) {
	web := Owner{
		Network: "k8s-pod-network", Namespace: "shop", Pod: "web-0", PodUID: "95f1", ContainerID: "3f9c",
		IfName: "eth0", Node: "node-a",
	}
	long := strings.Repeat("n", 253)
	for name, tc := range map[string]struct {
		line    string
		ordinal int
		want    Slot
		out     string // "" = line
	}{
		"least":   {"0 allocated - 0", 0, Slot{State: Allocated}, ""},
		"highest": {"65535 allocated h 1", 65535, Slot{State: Allocated, Handle: "h", Seq: 1}, ""},
		"pod": {
			"6 allocated k8s-pod-network.3f9c 17 type=workload since=2026-12-01T10:00:00Z net=k8s-pod-network " +
				"pod=shop/web-0 uid=95f1 cid=3f9c if=eth0 node=node-a",
			6,
			Slot{State: Allocated, Handle: "k8s-pod-network.3f9c", Seq: 17, Type: Workload, Since: t0, Active: web},
			"",
		},
		"cooling": {
			"4 cooling - 9 type=workload released=2026-12-01T10:00:00Z last=k8s-pod-network.3f9c net=k8s-pod-network " +
				"pod=shop/web-0 uid=95f1 cid=3f9c if=eth0 node=node-a",
			4,
			Slot{State: Cooling, Seq: 9, Type: Workload, Released: t0, LastHandle: "k8s-pod-network.3f9c", Active: web},
			"",
		},
		"VM in migration": {
			"1 allocated n.ns-vm-0a1b2c3d 5 type=vm pod=ns/launcher-1 vm=vm vmi=u1 alt-pod=ns/launcher-2 alt-vm=vm alt-vmi=u1",
			1,
			Slot{
				State: Allocated, Handle: "n.ns-vm-0a1b2c3d", Seq: 5, Type: VM,
				Active:    Owner{Namespace: "ns", Pod: "launcher-1", VM: "vm", VMIUID: "u1"},
				Alternate: Owner{Namespace: "ns", Pod: "launcher-2", VM: "vm", VMIUID: "u1"},
			},
			"",
		},
		"tunnel": {
			"0 allocated vxlan-tunnel-addr-n 5 type=vxlanTunnelAddress node=n nodeuid=u",
			0,
			Slot{State: Allocated, Handle: "vxlan-tunnel-addr-n", Seq: 5, Type: VXLANTunnel, Active: Owner{Node: "n", NodeUID: "u"}},
			"",
		},
		"unknown type (INV-2)": {"2 allocated h 5 type=satellite", 2, Slot{State: Allocated, Handle: "h", Seq: 5, Type: "satellite"}, ""},
		"unknown fields": {
			"2 allocated h 5 later=1 type=vm x=%zz later=2 alt-later=3",
			2,
			Slot{State: Allocated, Handle: "h", Seq: 5, Type: VM, Extra: "later=1 x=%zz later=2 alt-later=3"},
			"2 allocated h 5 type=vm later=1 x=%zz later=2 alt-later=3",
		},
		"handle is a dash":    {"2 allocated %2D 5", 2, Slot{State: Allocated, Handle: "-", Seq: 5}, ""},
		"handle has a space":  {"2 allocated a%20b 5", 2, Slot{State: Allocated, Handle: "a b", Seq: 5}, ""},
		"lower-case escape":   {"2 allocated %c3%a9 5", 2, Slot{State: Allocated, Handle: "é", Seq: 5}, "2 allocated %C3%A9 5"},
		"needless escape":     {"2 allocated %41 5", 2, Slot{State: Allocated, Handle: "A", Seq: 5}, "2 allocated A 5"},
		"equals in a value":   {"2 allocated h 5 cid=a=b", 2, Slot{State: Allocated, Handle: "h", Seq: 5, Active: Owner{ContainerID: "a=b"}}, ""},
		"slash in a pod":      {"2 allocated h 5 pod=a%2Fb/c%2Fd", 2, Slot{State: Allocated, Handle: "h", Seq: 5, Active: Owner{Namespace: "a/b", Pod: "c/d"}}, ""},
		"pod without name":    {"2 allocated h 5 pod=ns/", 2, Slot{State: Allocated, Handle: "h", Seq: 5, Active: Owner{Namespace: "ns"}}, ""},
		"empty values":        {"2 allocated h 5 net= pod=/ type=", 2, Slot{State: Allocated, Handle: "h", Seq: 5}, "2 allocated h 5"},
		"time of a zone":      {"2 allocated h 5 since=2026-12-01T12:00:00+02:00", 2, Slot{State: Allocated, Handle: "h", Seq: 5, Since: t0}, "2 allocated h 5 since=2026-12-01T10:00:00Z"},
		"names of 253 (S5)":   {"2 allocated h 5 pod=ns/" + long + " node=" + long, 2, Slot{State: Allocated, Handle: "h", Seq: 5, Active: Owner{Namespace: "ns", Pod: long, Node: long}}, ""},
		"case matters (S5)":   {"2 allocated h 5 pod=ns/Web node=Node-A", 2, Slot{State: Allocated, Handle: "h", Seq: 5, Active: Owner{Namespace: "ns", Pod: "Web", Node: "Node-A"}}, ""},
		"highest sequence":    {fmt.Sprintf("2 allocated h %d", uint64(maxSeq)), 2, Slot{State: Allocated, Handle: "h", Seq: maxSeq}, ""},
		"key is half known":   {"2 allocated h 5 alt-=1 alt-type=2", 2, Slot{State: Allocated, Handle: "h", Seq: 5, Extra: "alt-=1 alt-type=2"}, ""},
		"cooling, last owner": {"2 cooling - 5 released=2026-12-01T10:00:00Z", 2, Slot{State: Cooling, Seq: 5, Released: t0}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, got, err := parseLine(tc.line)
			if err != nil {
				t.Fatal(err)
			}
			if o != tc.ordinal {
				t.Errorf("ordinal %d, want %d", o, tc.ordinal)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if tc.out == "" {
				tc.out = tc.line
			}
			if out := formatLine(o, &got); out != tc.out {
				t.Errorf("written as\n%s, want\n%s", out, tc.out)
			}
		})
	}
}

// Each line is refused with the word that says why, and a block keeps it
// verbatim with its ordinal alive (INV-2).
func TestBadLinesINV2(t *testing.T) {
	for name, tc := range map[string]struct{ line, want string }{
		"empty":                {"", "1 tokens"},
		"ordinal only":         {"1", "1 tokens"},
		"three tokens":         {"1 allocated h", "3 tokens"},
		"trailing space":       {"1 allocated h 5 ", "not key=value"},
		"leading space":        {" 1 allocated h 5", "canonical decimal"},
		"two spaces":           {"1 allocated  h 5", "handle"},
		"tab":                  {"1\tallocated h 5", "0x09 at 1"},
		"line break":           {"1 allocated h 5\n", "0x0a at 15"},
		"UTF-8":                {"1 allocated é 5", "0xc3"},
		"negative ordinal":     {"-1 allocated h 5", "canonical decimal"},
		"signed ordinal":       {"+1 allocated h 5", "canonical decimal"},
		"leading zero":         {"01 allocated h 5", "canonical decimal"},
		"hexadecimal ordinal":  {"0x1 allocated h 5", "canonical decimal"},
		"ordinal of 17 bits":   {"65536 allocated h 5", "of 16 bits"},
		"unknown state":        {"1 parked h 5", `state "parked"`},
		"free has no line":     {"1 free - 5", `state "free"`},
		"state's case":         {"1 Allocated h 5", `state "Allocated"`},
		"cut escape":           {"1 allocated h%2 5", "handle"},
		"bad escape":           {"1 allocated h%2G 5", "handle"},
		"signed escape":        {"1 allocated h%+2 5", "handle"},
		"sequence missing":     {"1 allocated h type=vm", "canonical decimal"},
		"sequence signed":      {"1 allocated h -5", "canonical decimal"},
		"sequence no decimal":  {"1 allocated h 5.0", "canonical decimal"},
		"sequence of 65 bits":  {"1 allocated h 18446744073709551616", "of 64 bits"},
		"sequence can't grow":  {"1 allocated h 18446744073709551615", "out of range"},
		"token without equals": {"1 allocated h 5 vm", "not key=value"},
		"token without key":    {"1 allocated h 5 =vm", "not key=value"},
		"field twice":          {"1 allocated h 5 uid=a uid=b", "uid is there twice"},
		"bad escape in field":  {"1 allocated h 5 uid=%", "field uid"},
		"bad escape in ns":     {"1 allocated h 5 pod=%/a", "field pod"},
		"bad escape in pod":    {"1 allocated h 5 alt-pod=a/%Z", "field alt-pod"},
		"pod without ns":       {"1 allocated h 5 pod=web", "namespace/name"},
		"pod of three parts":   {"1 allocated h 5 pod=a/b/c", "namespace/name"},
		"since is no time":     {"1 allocated h 5 since=yesterday", "RFC 3339"},
		"since is empty":       {"1 allocated h 5 since=", "RFC 3339"},
		"time before 1970":     {"1 allocated h 5 since=1969-12-31T23:59:59Z", "out of range"},
		"time after 9999":      {"1 allocated h 5 since=9999-12-31T23:59:59-01:00", "out of range"},
		"cooling, handle":      {"1 cooling h 5 released=2026-12-01T10:00:00Z", "cooling slot has handle"},
		"cooling, no released": {"1 cooling - 5", "no released="},
		"allocated, released":  {"1 allocated h 5 released=2026-12-01T10:00:00Z", "released= or last="},
		"allocated, last":      {"1 allocated h 5 last=h", "released= or last="},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := parseLine(tc.line)
			if !errors.Is(err, errLine) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("err = %v, want it to say %q", err, tc.want)
			}
			b := mustDecode(t, Wire{CIDR: "10.0.0.0/31", Sequence: "9", Queue: "0", Slots: []string{tc.line}})
			b, got := b.Allocate(Request{N: 2, Handle: "h", Now: t0})
			if len(got) != 1 || got[0].Addr != b.Addr(0) {
				t.Errorf("allocated %v, want only %v", got, b.Addr(0))
			}
			b, n := b.ReleaseWhere(alwaysRelease, t0)
			if len(n) != 1 {
				t.Errorf("released %v, want one", n)
			}
			if w := Encode(b); !contains(w.Slots, tc.line) {
				t.Errorf("slots %q: the line is gone", w.Slots)
			}
			if p := strings.Join(b.Problems(), "\n"); !strings.Contains(p, fmt.Sprintf("%q", tc.line)) {
				t.Errorf("problems %q do not show the line", p)
			}
		})
	}
}

func TestQueueText(t *testing.T) {
	up := func(lo, hi uint16) (q []uint16) {
		for o := lo; o <= hi; o++ {
			q = append(q, o)
		}
		return q
	}
	for name, tc := range map[string]struct {
		text string
		want []uint16
		out  string // "" = text
		bad  string
	}{
		"none":             {text: ""},
		"one":              {text: "7", want: []uint16{7}},
		"two in a row":     {text: "3,4", want: []uint16{3, 4}},
		"short range":      {text: "3-4", want: []uint16{3, 4}, out: "3,4"},
		"range of one":     {text: "3-3", want: []uint16{3}, out: "3"},
		"order is kept":    {text: "7,0-3,5", want: []uint16{7, 0, 1, 2, 3, 5}},
		"descending":       {text: "3,2,1", want: []uint16{3, 2, 1}},
		"all of a /24":     {text: "0-255", want: up(0, 255)},
		"touching ranges":  {text: "0-2,3-5", want: up(0, 5), out: "0-5"},
		"damaged token":    {text: "7,x,3", want: []uint16{7}, bad: "canonical"},
		"empty token":      {text: "7,,3", want: []uint16{7}, bad: "canonical"},
		"comma at the end": {text: "7,", want: []uint16{7}, bad: "canonical"},
		"space":            {text: "7, 3", want: []uint16{7}, bad: "canonical"},
		"backwards":        {text: "1,5-3", want: []uint16{1}, bad: "backwards"},
		"open range":       {text: "1,5-", want: []uint16{1}, bad: "canonical"},
		"no first":         {text: "-5", bad: "canonical"},
		"three parts":      {text: "1-2-3", bad: "canonical"},
		"above a block":    {text: "256", bad: "of 8 bits"},
		"leading zero":     {text: "00", bad: "canonical"},
		"bomb":             {text: strings.Repeat("0-255,", 1000) + "1", want: append(up(0, 255), up(0, 255)...), bad: "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseQueue(tc.text)
			if tc.bad == "" && err != nil || tc.bad != "" && (err == nil || !strings.Contains(err.Error(), tc.bad)) {
				t.Fatalf("err = %v, want %q", err, tc.bad)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if tc.bad != "" {
				return
			}
			if tc.out == "" {
				tc.out = tc.text
			}
			if out := formatQueue(got); out != tc.out {
				t.Errorf("written as %q, want %q", out, tc.out)
			}
		})
	}
}

func TestDecodeRefusesOnlyACIDRThatIsNoBlock(t *testing.T) {
	for name, cidr := range map[string]string{
		"empty": "", "no prefix": "10.0.0.0", "host bits": "10.0.0.1/26", "too large": "10.0.0.0/16",
		"v4 mapped": "::ffff:10.0.0.0/122", "text": "web", "bits beyond": "10.0.0.0/33",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Decode(Wire{CIDR: cidr, Sequence: "1"}); err == nil {
				t.Fatalf("%q is taken for a block", cidr)
			}
		})
	}
	everything := mustDecode(t, Wire{
		Format: math.MinInt, CIDR: "10.0.0.0/30", Affinity: ":", ClaimedAt: "now", Sequence: "many",
		Queue: "0,0,9,1,x", Slots: []string{"1 allocated h 5", "9 allocated h 5", ""},
	})
	for _, want := range []string{
		`affinity ":"`, `claimedAt "now"`, `"many"`, "ordinal 9 is outside", "ordinal 0 is there twice",
		"ordinal 1 also has a line", `"x"`, "ordinal 2 is neither", "ordinal 3 is neither", "sequence is above",
	} {
		if !strings.Contains(strings.Join(everything.Problems(), "\n"), want) {
			t.Errorf("problems do not say %q:\n%s", want, strings.Join(everything.Problems(), "\n"))
		}
	}
	if d := cmp.Diff([]string{"10.0.0.0"}, free(everything)); d != "" {
		t.Errorf("free addresses: %s", d)
	}
}
