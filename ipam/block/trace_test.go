// SPDX-License-Identifier: Apache-2.0

package block

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// trace replays one file of testdata. The command language:
//
//	new cidr= [affinity=] [seq=] [at=]       an empty block
//	load                                     a stored block, as "show" prints it
//	reload                                   written and read back
//	allocate n= <request> [unusable=(a,b)]   automatic assignment
//	assign addr= <request>                   one given address
//	release addr= [seq=] [handle=] [<owner>] at=
//	detach cid= if= at=                      a DEL: by attachment, on network "net"
//	release-handle handle= at=
//	collect cooldown= at=
//	owner addr= [handle=] [active=] [alternate=] [if-seq=] [if-active=] [if-alternate=] at=
//	affinity to= at=
//	fence at=
//	labels [unusable=(a,b)]
//
// <request> is handle= [type=] [<owner>] at=; <owner> is any of pod= uid= cid= if=
// node=; active= and alternate= are <pod> or <pod>/<cid>, "none" clears. at= is a
// duration since 1970, which keeps sequences short: 60s gives 60000000000. After
// every command the block passes Check (INV-4, INV-15), the receiver is unchanged
// (INV-7, D12), and the stored form is shown if it is another one.
type trace struct {
	t *testing.T
	d *datadriven.TestData
	b Block
}

func TestTraces(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			return
		}
		tr := &trace{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			tr.t, tr.d = t, d
			return tr.run()
		})
	})
}

func (tr *trace) run() string {
	receiver := tr.b
	before := Encode(receiver)
	said := tr.command()
	if err := tr.b.Check(); err != nil {
		tr.d.Fatalf(tr.t, "Check: %v", err)
	}
	if d := diffWire(before, Encode(receiver)); d != "" {
		tr.d.Fatalf(tr.t, "receiver changed (INV-7, D12):\n%s", d)
	}
	stored := show(Encode(tr.b))
	if stored == show(before) {
		return said + "(unchanged)\n"
	}
	return said + stored
}

// show prints a stored block; load reads it.
func show(w Wire) string {
	var sb strings.Builder
	for _, f := range []struct{ key, value string }{
		{"format", strconv.Itoa(w.Format)},
		{"cidr", w.CIDR},
		{"affinity", w.Affinity},
		{"claimedAt", w.ClaimedAt},
		{"sequence", w.Sequence},
		{"queue", w.Queue},
	} {
		if f.value != "" && f != (struct{ key, value string }{"format", "1"}) {
			fmt.Fprintf(&sb, "%s: %s\n", f.key, f.value)
		}
	}
	for _, e := range w.Extra {
		fmt.Fprintf(&sb, "extra %s: %s\n", e.Key, e.JSON)
	}
	for _, line := range w.Slots {
		fmt.Fprintf(&sb, "- %s\n", line)
	}
	return sb.String()
}

func (tr *trace) load() string {
	var w Wire
	for line := range strings.SplitSeq(tr.d.Input, "\n") {
		if slot, ok := strings.CutPrefix(line+" ", "- "); ok {
			slot = strings.TrimSuffix(slot, " ")
			w.Slots = append(w.Slots, slot)
			continue
		}
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "format":
			w.Format, _ = strconv.Atoi(value)
		case "cidr":
			w.CIDR = value
		case "affinity":
			w.Affinity = value
		case "claimedAt":
			w.ClaimedAt = value
		case "sequence":
			w.Sequence = value
		case "queue":
			w.Queue = value
		default:
			name, ok := strings.CutPrefix(key, "extra ")
			if !ok {
				tr.d.Fatalf(tr.t, "unknown line %q", line)
			}
			w.Extra = append(w.Extra, Extra{Key: name, JSON: []byte(value)})
		}
	}
	return tr.decode(w)
}

func (tr *trace) decode(w Wire) string {
	b, err := Decode(w)
	if err != nil {
		tr.d.Fatalf(tr.t, "Decode: %v", err)
	}
	tr.b = b
	var sb strings.Builder
	for _, p := range b.Problems() {
		fmt.Fprintf(&sb, "problem: %s\n", p)
	}
	if err := b.Writable(); err != nil {
		fmt.Fprintf(&sb, "not writable: %v\n", err)
	}
	return sb.String()
}

func (tr *trace) command() string {
	var as []Allocation
	var addrs []netip.Addr
	var err error
	switch tr.d.Cmd {
	case "new":
		seq, _ := strconv.ParseUint(tr.text("seq", "0"), 10, 64)
		a, _ := ParseAffinity(tr.text("affinity", ""))
		tr.b, err = New(netip.MustParsePrefix(tr.text("cidr", "")), a, seq, tr.at())
	case "load":
		return tr.load()
	case "reload":
		return tr.decode(Encode(tr.b))
	case "allocate":
		r := tr.request()
		tr.d.ScanArgs(tr.t, "n", &r.N)
		tr.b, as = tr.b.Allocate(r)
		return given(as)
	case "assign":
		var one Allocation
		if tr.b, one, err = tr.b.Assign(tr.addr(), tr.request()); err == nil {
			return given([]Allocation{one})
		}
	case "release":
		return tr.release()
	case "detach":
		o := tr.owner()
		tr.b, addrs = tr.b.ReleaseWhere(func(_ netip.Addr, s Slot) bool { return s.Holds(o.Attachment()) }, tr.at())
		return fmt.Sprintf("released %v\n", addrs)
	case "release-handle":
		tr.b, addrs = tr.b.ReleaseHandle(HandleID(tr.text("handle", "")), tr.at())
		return fmt.Sprintf("released %v\n", addrs)
	case "collect":
		return tr.collect()
	case "owner":
		return tr.setOwner()
	case "affinity":
		a, _ := ParseAffinity(tr.text("to", ""))
		tr.b = tr.b.WithAffinity(a, tr.at())
	case "fence":
		tr.b = tr.b.Fence(tr.at())
	case "labels":
		l := tr.b.Relabel("p", tr.usable()).Labels()
		return fmt.Sprintf("space=%s empty=%v nodes=%v\n", l.Space, l.Empty, l.Nodes)
	default:
		tr.d.Fatalf(tr.t, "unknown command %q", tr.d.Cmd)
	}
	if err != nil {
		return fmt.Sprintf("error: %v\n", err)
	}
	return ""
}

func given(as []Allocation) string {
	var sb strings.Builder
	for _, a := range as {
		fmt.Fprintf(&sb, "got %v sequence %d\n", a.Addr, a.Seq)
	}
	if len(as) == 0 {
		return "got nothing\n"
	}
	return sb.String()
}

func (tr *trace) release() string {
	r := Release{Addr: tr.addr(), Handle: HandleID(tr.text("handle", ""))}
	r.Seq, _ = strconv.ParseUint(tr.text("seq", "0"), 10, 64)
	if o := tr.owner(); o.PodUID != "" {
		r.Owner = &o
	}
	var outcomes []Outcome
	tr.b, outcomes = tr.b.Release([]Release{r}, tr.at())
	return fmt.Sprintf("%s\n", outcomes[0])
}

func (tr *trace) collect() string {
	cooldown, err := time.ParseDuration(tr.text("cooldown", "0s"))
	if err != nil {
		tr.d.Fatalf(tr.t, "%v", err)
	}
	var n int
	tr.b, n = tr.b.Collect(tr.at(), cooldown)
	said := fmt.Sprintf("freed %d\n", n)
	if at, ok := tr.b.NextFree(cooldown); ok {
		said += fmt.Sprintf("next free at %v\n", at.Sub(time.Unix(0, 0)))
	}
	return said
}

func (tr *trace) setOwner() string {
	var u OwnerUpdate
	var p OwnerPrecondition
	if h := HandleID(tr.text("handle", "")); h != "" {
		u.Handle = &h
	}
	for key, to := range map[string]**Owner{
		"active": &u.Active, "alternate": &u.Alternate, "if-active": &p.Active, "if-alternate": &p.Alternate,
	} {
		switch pod, cid, _ := strings.Cut(tr.text(key, ""), "/"); pod {
		case "":
		case "none":
			*to = &Owner{}
		default:
			*to = &Owner{Network: "net", Namespace: "ns", Pod: pod, PodUID: "u-" + pod, ContainerID: cid, IfName: "eth0"}
		}
	}
	p.Seq, _ = strconv.ParseUint(tr.text("if-seq", "0"), 10, 64)
	b, a, err := tr.b.SetOwner(tr.addr(), u, p, tr.at())
	tr.b = b
	if err != nil {
		return fmt.Sprintf("error: %v\n", err)
	}
	return given([]Allocation{a})
}

// text returns the one value of an argument.
func (tr *trace) text(key, absent string) string {
	v := absent
	tr.d.MaybeScanArgs(tr.t, key, &v)
	return v
}

func (tr *trace) at() time.Time {
	d, err := time.ParseDuration(tr.text("at", "0s"))
	if err != nil {
		tr.d.Fatalf(tr.t, "%v", err)
	}
	return time.Unix(0, 0).Add(d)
}

func (tr *trace) addr() netip.Addr { return netip.MustParseAddr(tr.text("addr", "")) }

func (tr *trace) owner() Owner {
	o := Owner{
		Network: "net", Pod: tr.text("pod", ""), PodUID: tr.text("uid", ""), ContainerID: tr.text("cid", ""),
		IfName: tr.text("if", "eth0"), Node: tr.text("node", ""),
	}
	if o.Pod != "" {
		o.Namespace = "ns"
	}
	return o
}

func (tr *trace) request() Request {
	return Request{
		Handle: HandleID(tr.text("handle", "")), Type: Type(tr.text("type", "")), Owner: tr.owner(),
		Now: tr.at(), Usable: tr.usable(),
	}
}

func (tr *trace) usable() func(netip.Addr) bool {
	arg, ok := tr.d.Arg("unusable")
	if !ok {
		return nil
	}
	return func(a netip.Addr) bool {
		for _, v := range arg.Vals {
			if v == a.String() {
				return false
			}
		}
		return true
	}
}
