// SPDX-License-Identifier: Apache-2.0

package block

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Extra is a spec field that this version does not know; an update keeps it.
type Extra struct {
	Key  string
	JSON []byte
}

// Wire is the stored form of a block's spec: plain text, one line per slot
// (design decision 0: an API server pays for JSON nodes, not for bytes).
type Wire struct {
	Format    int
	CIDR      string
	Affinity  string
	ClaimedAt string // RFC 3339, "" when there is no affinity
	Sequence  string // decimal
	Queue     string // ordinals and ascending ranges, longest free first: "7,0-3,5"
	Slots     []string
	Extra     []Extra
}

// Encode writes b. Decode(Encode(b)) is b, and every slot line, affinity and
// spec field that this version could not read is in it verbatim.
func Encode(b Block) Wire {
	w := Wire{
		Format:   b.format,
		CIDR:     b.CIDR.String(),
		Affinity: b.Affinity.String(),
		Sequence: strconv.FormatUint(b.Seq, 10),
		Queue:    formatQueue(b.queue),
	}
	if !b.ClaimedAt.IsZero() {
		w.ClaimedAt = b.ClaimedAt.UTC().Format(time.RFC3339Nano)
	}
	for i, s := range b.slots {
		if s != nil {
			w.Slots = append(w.Slots, formatLine(i, s))
		}
	}
	w.Slots = append(w.Slots, b.stray...)
	for _, e := range b.extra {
		w.Extra = append(w.Extra, Extra{Key: e.Key, JSON: bytes.Clone(e.JSON)})
	}
	return w
}

// Decode reads a stored block. Only a CIDR that is no block is an error: for
// everything else unknown is alive (INV-2). An ordinal whose record cannot be
// read, or that is neither in the queue nor in a slot, counts as Allocated with
// an unknown owner; [Block.Problems] tells what was found.
func Decode(w Wire) (Block, error) {
	cidr, err := netip.ParsePrefix(w.CIDR)
	if err != nil {
		return Block{}, fmt.Errorf("block cidr %q: %w", w.CIDR, err)
	}
	n, err := size(cidr)
	if err != nil {
		return Block{}, err
	}
	b := Block{CIDR: cidr, format: max(w.Format, 1), slots: make([]*Slot, n)}
	b.decodeHeader(w)
	b.decodeSlots(w.Slots)
	b.decodeQueue(w.Queue)
	for _, e := range w.Extra {
		b.extra = append(b.extra, Extra{Key: e.Key, JSON: bytes.Clone(e.JSON)})
	}
	return b, nil
}

func (b *Block) problem(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

func (b *Block) decodeHeader(w Wire) {
	var err error
	if b.Affinity, err = ParseAffinity(w.Affinity); err != nil {
		b.problem("%v", err)
		b.Affinity = unreadableAffinity(w.Affinity)
	}
	if w.ClaimedAt != "" {
		if err := instant(&b.ClaimedAt)(w.ClaimedAt); err != nil {
			b.problem("claimedAt %q: %v", w.ClaimedAt, err)
		}
	}
	if b.Seq, err = sequence(w.Sequence); err != nil {
		b.problem("sequence: %v", err)
	}
}

func (b *Block) decodeSlots(lines []string) {
	for _, line := range lines {
		o, s, err := parseLine(line)
		if err != nil {
			b.problem("line %q: %v", line, err)
			if o, err = lineOrdinal(line); err != nil {
				b.stray = append(b.stray, line)
				continue
			}
			s = Slot{State: Allocated, Raw: line}
		}
		switch {
		case o >= len(b.slots):
			b.problem("line %q: ordinal %d is outside the block", line, o)
			b.stray = append(b.stray, line)
		case b.slots[o] != nil:
			// Either line may be the truth: neither is believed, both are kept.
			b.problem("line %q: ordinal %d has another line too", line, o)
			b.slots[o] = &Slot{State: Allocated, Raw: formatLine(o, b.slots[o])}
			b.stray = append(b.stray, line)
		default:
			if s == (Slot{State: Allocated}) {
				b.problem("line %q: nothing is known of the owner", line)
			}
			b.slots[o] = &s
			if s.Seq > b.Seq {
				b.problem("line %q: sequence is above the block's %d", line, b.Seq)
				b.Seq = s.Seq
			}
		}
	}
}

func (b *Block) decodeQueue(text string) {
	queued := make([]bool, len(b.slots))
	ordinals, err := parseQueue(text)
	if err != nil {
		b.problem("queue %q: %v", text, err)
	}
	for _, o := range ordinals {
		switch {
		case int(o) >= len(b.slots):
			b.problem("queue: ordinal %d is outside the block", o)
		case queued[o]:
			b.problem("queue: ordinal %d is there twice", o)
		case b.slots[o] != nil:
			b.problem("queue: ordinal %d also has a line", o)
		default:
			queued[o] = true
			b.queue = append(b.queue, o)
		}
	}
	for i, s := range b.slots {
		if s == nil && !queued[i] {
			b.problem("ordinal %d is neither free nor in a line", i)
			b.slots[i] = &Slot{State: Allocated}
		}
	}
}

// formatQueue writes ordinals in order, ascending runs of three or more as a range.
func formatQueue(q []uint16) string {
	var sb strings.Builder
	for i := 0; i < len(q); {
		j := i
		for j+1 < len(q) && q[j+1] == q[j]+1 {
			j++
		}
		if j-i < 2 {
			j = i
		}
		if i > 0 {
			sb.WriteByte(',')
		}
		sb.WriteString(strconv.Itoa(int(q[i])))
		if j > i {
			sb.WriteByte('-')
			sb.WriteString(strconv.Itoa(int(q[j])))
		}
		i = j + 1
	}
	return sb.String()
}

// parseQueue reads what formatQueue writes. On an error it returns the ordinals
// read before it.
func parseQueue(s string) ([]uint16, error) {
	if s == "" {
		return nil, nil
	}
	var q []uint16
	for token := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(token, "-")
		lo, err := decimal(first, 8)
		if err != nil {
			return q, err
		}
		hi := lo
		if isRange {
			if hi, err = decimal(last, 8); err != nil {
				return q, err
			}
			if hi < lo {
				return q, fmt.Errorf("range %s runs backwards", token)
			}
		}
		if len(q)+int(hi-lo) >= 2*MaxSize {
			return q, fmt.Errorf("more than %d ordinals", 2*MaxSize)
		}
		for o := lo; o <= hi; o++ {
			q = append(q, uint16(o))
		}
	}
	return q, nil
}
