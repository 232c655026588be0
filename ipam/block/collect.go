// SPDX-License-Identifier: Apache-2.0

package block

import (
	"cmp"
	"slices"
	"time"
)

// Collect frees the ordinals whose cooldown has passed, in the order in which they
// were released (INV-5), and returns how many. It is the only way from Cooling to
// Free. A release time in the future (another host's clock, case C10) is lowered
// to now, so that a wrong clock can delay an address by one cooldown at most.
func (b Block) Collect(now time.Time, cooldown time.Duration) (Block, int) {
	now = stamp(now)
	var due []uint16
	owned := false
	change := func() {
		if !owned {
			b, owned = b.own(), true
		}
	}
	for i, s := range b.slots {
		if s == nil || s.State != Cooling {
			continue
		}
		if s.Released.After(now) {
			change()
			lowered := *s
			lowered.Released = now
			b.slots[i], s = &lowered, &lowered
		}
		if !now.Before(s.Released.Add(cooldown)) {
			due = append(due, uint16(i))
		}
	}
	if len(due) == 0 {
		return b, 0
	}
	change()
	slices.SortFunc(due, func(x, y uint16) int {
		sx, sy := b.slots[x], b.slots[y]
		return cmp.Or(sx.Released.Compare(sy.Released), cmp.Compare(sx.Seq, sy.Seq), cmp.Compare(x, y))
	})
	for _, o := range due {
		b.slots[o] = nil
		b.queue = append(b.queue, o)
	}
	return b, len(due)
}

// NextFree returns when the first cooling ordinal may be freed. ok is false when
// none is cooling.
func (b Block) NextFree(cooldown time.Duration) (at time.Time, ok bool) {
	for _, s := range b.slots {
		if s != nil && s.State == Cooling {
			if t := s.Released.Add(cooldown); !ok || t.Before(at) {
				at, ok = t, true
			}
		}
	}
	return at, ok
}
