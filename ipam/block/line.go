// SPDX-License-Identifier: Apache-2.0

package block

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The grammar of a slot line. Tokens are separated by one space and hold
// printable ASCII only; every other byte, and "%", is percent-encoded:
//
//	line    = ordinal SP state SP handle SP sequence *(SP field)
//	ordinal = decimal                    ; no sign, no leading zero
//	state   = "allocated" / "cooling"
//	handle  = "-" / 1*char               ; "-": none (a cooling slot, an unknown owner)
//	field   = key "=" *char              ; a known key at most once
//
// The known keys, in the order they are written: type, since (allocated),
// released and last (cooling), then the active owner (net, pod as
// namespace/name, uid, cid, if, node, vm, vmi, nodeuid), then the alternate
// owner with "alt-" before each of those keys. Fields with other keys are kept
// verbatim, after the known ones.

const altPrefix = "alt-"

// formatLine writes one slot. A slot that did not parse is written back verbatim.
func formatLine(ordinal int, s *Slot) string {
	if s.Raw != "" {
		return s.Raw
	}
	var w lineWriter
	w.sb.WriteString(strconv.Itoa(ordinal))
	w.sb.WriteByte(' ')
	w.sb.WriteString(s.State.String())
	w.sb.WriteByte(' ')
	w.sb.WriteString(escapeHandle(s.Handle))
	w.sb.WriteByte(' ')
	w.sb.WriteString(strconv.FormatUint(s.Seq, 10))
	w.field("type", string(s.Type))
	w.time("since", s.Since)
	w.time("released", s.Released)
	w.field("last", string(s.LastHandle))
	w.owner("", s.Active)
	w.owner(altPrefix, s.Alternate)
	if s.Extra != "" {
		w.sb.WriteByte(' ')
		w.sb.WriteString(s.Extra)
	}
	return w.sb.String()
}

type lineWriter struct{ sb strings.Builder }

func (w *lineWriter) raw(key, escaped string) {
	w.sb.WriteByte(' ')
	w.sb.WriteString(key)
	w.sb.WriteByte('=')
	w.sb.WriteString(escaped)
}

func (w *lineWriter) field(key, value string) {
	if value != "" {
		w.raw(key, escape(value, false))
	}
}

func (w *lineWriter) time(key string, t time.Time) {
	if !t.IsZero() {
		w.raw(key, t.UTC().Format(time.RFC3339Nano))
	}
}

func (w *lineWriter) owner(prefix string, o Owner) {
	w.field(prefix+"net", o.Network)
	if o.Namespace != "" || o.Pod != "" {
		w.raw(prefix+"pod", escape(o.Namespace, true)+"/"+escape(o.Pod, true))
	}
	w.field(prefix+"uid", o.PodUID)
	w.field(prefix+"cid", o.ContainerID)
	w.field(prefix+"if", o.IfName)
	w.field(prefix+"node", o.Node)
	w.field(prefix+"vm", o.VM)
	w.field(prefix+"vmi", o.VMIUID)
	w.field(prefix+"nodeuid", o.NodeUID)
}

var errLine = errors.New("slot line")

func lineError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errLine}, args...)...)
}

// lineOrdinal reads the ordinal of a line, also of one that does not parse further.
func lineOrdinal(line string) (int, error) {
	token, _, _ := strings.Cut(line, " ")
	n, err := decimal(token, 16)
	return int(n), err
}

// parseLine reads one slot line.
func parseLine(line string) (ordinal int, s Slot, err error) {
	for i := range len(line) {
		if line[i] < ' ' || line[i] > '~' {
			return 0, Slot{}, lineError("byte 0x%02x at %d is not printable ASCII", line[i], i)
		}
	}
	tokens := strings.Split(line, " ")
	if len(tokens) < 4 {
		return 0, Slot{}, lineError("%d tokens; want ordinal, state, handle, sequence", len(tokens))
	}
	if ordinal, err = lineOrdinal(line); err != nil {
		return 0, Slot{}, lineError("ordinal: %w", err)
	}
	switch tokens[1] {
	case Allocated.String():
		s.State = Allocated
	case Cooling.String():
		s.State = Cooling
	default:
		return 0, Slot{}, lineError("state %q is neither allocated nor cooling", tokens[1])
	}
	if tokens[2] != "-" {
		h, err := unescape(tokens[2])
		if err != nil || h == "" {
			return 0, Slot{}, lineError("handle %q is empty or badly escaped", tokens[2])
		}
		s.Handle = HandleID(h)
	}
	if s.Seq, err = sequence(tokens[3]); err != nil {
		return 0, Slot{}, lineError("sequence: %w", err)
	}
	if err := parseFields(tokens[4:], &s); err != nil {
		return 0, Slot{}, err
	}
	return ordinal, s, s.checkFields()
}

// checkFields refuses fields that contradict the state.
func (s Slot) checkFields() error {
	switch {
	case s.State == Cooling && s.Handle != "":
		return lineError("a cooling slot has handle %q; want - and last=", s.Handle)
	case s.State == Cooling && s.Released.IsZero():
		return lineError("a cooling slot has no released=")
	case s.State == Allocated && (!s.Released.IsZero() || s.LastHandle != ""):
		return lineError("an allocated slot has released= or last=")
	}
	return nil
}

func parseFields(tokens []string, s *Slot) error {
	known := s.fields()
	seen := make(map[string]bool, len(tokens))
	var extra []string
	for _, t := range tokens {
		key, value, ok := strings.Cut(t, "=")
		if !ok || key == "" {
			return lineError("token %q is not key=value", t)
		}
		set, isKnown := known(key)
		if !isKnown {
			extra = append(extra, t)
			continue
		}
		if seen[key] {
			return lineError("field %s is there twice", key)
		}
		seen[key] = true
		if err := set(value); err != nil {
			return lineError("field %s=%s: %w", key, value, err)
		}
	}
	s.Extra = strings.Join(extra, " ")
	return nil
}

type setter = func(value string) error

// fields returns the setter of each known key.
func (s *Slot) fields() func(key string) (setter, bool) {
	return func(key string) (setter, bool) {
		switch key {
		case "type":
			return text((*string)(&s.Type)), true
		case "since":
			return instant(&s.Since), true
		case "released":
			return instant(&s.Released), true
		case "last":
			return text((*string)(&s.LastHandle)), true
		}
		if rest, ok := strings.CutPrefix(key, altPrefix); ok {
			return ownerField(&s.Alternate, rest)
		}
		return ownerField(&s.Active, key)
	}
}

func ownerField(o *Owner, key string) (setter, bool) {
	switch key {
	case "net":
		return text(&o.Network), true
	case "pod":
		return func(v string) error {
			ns, name, ok := strings.Cut(v, "/")
			if !ok || strings.Contains(name, "/") {
				return errors.New("want namespace/name")
			}
			return errors.Join(text(&o.Namespace)(ns), text(&o.Pod)(name))
		}, true
	case "uid":
		return text(&o.PodUID), true
	case "cid":
		return text(&o.ContainerID), true
	case "if":
		return text(&o.IfName), true
	case "node":
		return text(&o.Node), true
	case "vm":
		return text(&o.VM), true
	case "vmi":
		return text(&o.VMIUID), true
	case "nodeuid":
		return text(&o.NodeUID), true
	}
	return nil, false
}

func text(p *string) setter {
	return func(v string) (err error) {
		*p, err = unescape(v)
		return err
	}
}

func instant(p *time.Time) setter {
	return func(v string) error {
		t, err := time.Parse(time.RFC3339Nano, v)
		if err != nil {
			return errors.New("want an RFC 3339 time")
		}
		if t = t.UTC(); !stamp(t).Equal(t) {
			return errors.New("year is out of range")
		}
		*p = t
		return nil
	}
}

// decimal reads a canonical decimal: digits only, no leading zero.
func decimal(s string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, bits)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("%q is not a canonical decimal of %d bits", s, bits)
	}
	return n, nil
}

// maxSeq bounds the sequences that are read. Clocks give up to 1<<63 (in 2262);
// one that leaves no room above is damage and must not make a block wrap (INV-15).
const maxSeq = 1<<63 + 1<<62

func sequence(s string) (uint64, error) {
	n, err := decimal(s, 64)
	if err == nil && n > maxSeq {
		return 0, fmt.Errorf("%d is out of range", n)
	}
	return n, err
}

func escapeHandle(h HandleID) string {
	switch h {
	case "":
		return "-"
	case "-":
		return "%2D"
	}
	return escape(string(h), false)
}

// escape percent-encodes what a token may not hold; slash as well where it separates.
func escape(s string, slash bool) string {
	plain := func(c byte) bool { return c > ' ' && c <= '~' && c != '%' && (c != '/' || !slash) }
	n := 0
	for i := range len(s) {
		if !plain(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; plain(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, "%") {
		return s, nil
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			out = append(out, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", errors.New("cut percent-encoding")
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", errors.New("bad percent-encoding")
		}
		out = append(out, byte(c))
		i += 2
	}
	return string(out), nil
}
