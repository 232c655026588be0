// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/allod/allod/ipam/block"
)

// MarshalJSON writes the known fields in a fixed order, then the unknown ones as
// they were read.
func (s IPAMBlockSpec) MarshalJSON() ([]byte, error) {
	var w objectWriter
	w.value("format", s.Format)
	w.value("cidr", s.CIDR)
	if s.Affinity != "" {
		w.value("affinity", s.Affinity)
	}
	if s.ClaimedAt != "" {
		w.value("claimedAt", s.ClaimedAt)
	}
	if n, err := strconv.ParseUint(s.Sequence, 10, 64); err == nil && strconv.FormatUint(n, 10) == s.Sequence {
		w.value("sequence", n)
	} else if s.Sequence != "" {
		w.value("sequence", s.Sequence)
	}
	w.value("queue", s.Queue)
	if len(s.Slots) > 0 {
		w.value("slots", s.Slots)
	}
	for _, e := range s.Extra {
		w.raw(e.Key, e.JSON)
	}
	return w.done()
}

// UnmarshalJSON reads what MarshalJSON writes. Absent fields read as empty, an
// absent format as the first one; fields that are not known go to Extra.
func (s *IPAMBlockSpec) UnmarshalJSON(data []byte) error {
	out := IPAMBlockSpec{Format: 1}
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("spec: not an object")
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return fmt.Errorf("spec: %w", err)
		}
		key, _ := t.(string) // a key of an object is always a string
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return fmt.Errorf("spec.%s: %w", key, err)
		}
		if err := out.set(key, raw); err != nil {
			return fmt.Errorf("spec.%s: %w", key, err)
		}
	}
	*s = out
	return nil
}

func (s *IPAMBlockSpec) set(key string, raw json.RawMessage) error {
	switch key {
	case "format":
		return json.Unmarshal(raw, &s.Format)
	case "cidr":
		return json.Unmarshal(raw, &s.CIDR)
	case "affinity":
		return json.Unmarshal(raw, &s.Affinity)
	case "claimedAt":
		return json.Unmarshal(raw, &s.ClaimedAt)
	case "sequence":
		if raw[0] == '"' || string(raw) == "null" {
			return json.Unmarshal(raw, &s.Sequence)
		}
		var n json.Number
		if err := json.Unmarshal(raw, &n); err != nil {
			return err
		}
		s.Sequence = n.String()
	case "queue":
		return json.Unmarshal(raw, &s.Queue)
	case "slots":
		s.Slots = nil
		return json.Unmarshal(raw, &s.Slots)
	default:
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return err
		}
		s.Extra = append(s.Extra, block.Extra{Key: key, JSON: b.Bytes()})
	}
	return nil
}

// objectWriter writes a JSON object with its keys in call order.
type objectWriter struct {
	buf bytes.Buffer
	err error
}

func (w *objectWriter) value(key string, v any) {
	j, err := json.Marshal(v)
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("spec.%s: %w", key, err)
	}
	w.raw(key, j)
}

// raw writes a value that is JSON already, byte for byte.
func (w *objectWriter) raw(key string, j []byte) {
	k, err := json.Marshal(key)
	if w.err == nil && err == nil && !json.Valid(j) {
		err = fmt.Errorf("spec.%s: not JSON", key)
	}
	if w.err == nil {
		w.err = err
	}
	if w.buf.Len() == 0 {
		w.buf.WriteByte('{')
	} else {
		w.buf.WriteByte(',')
	}
	w.buf.Write(k)
	w.buf.WriteByte(':')
	w.buf.Write(j)
}

func (w *objectWriter) done() ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	w.buf.WriteByte('}')
	return w.buf.Bytes(), nil
}

// DeepCopyInto copies s into out. It is not generated because [block.Extra] belongs
// to a package without Kubernetes' conventions.
func (s *IPAMBlockSpec) DeepCopyInto(out *IPAMBlockSpec) {
	*out = *s
	out.Slots = slices.Clone(s.Slots)
	out.Extra = slices.Clone(s.Extra)
	for i, e := range s.Extra {
		out.Extra[i].JSON = bytes.Clone(e.JSON)
	}
}
