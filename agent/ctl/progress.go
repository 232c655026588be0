// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// progress tells a person what is going on. Lines that matter are always written;
// a running count only where somebody sees it change.
type progress struct {
	w        io.Writer
	terminal bool
	shown    bool      // a count stands on the current line
	next     time.Time // when the next count may be shown
}

// showEvery is the least time between two counts.
const showEvery = 100 * time.Millisecond

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		p.terminal = err == nil
	}
	return p
}

// say writes a line.
func (p *progress) say(format string, args ...any) {
	p.done()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// count shows how far something is, over what it showed before.
func (p *progress) count(format string, args ...any) {
	if now := time.Now(); p.terminal && !now.Before(p.next) {
		p.next, p.shown = now.Add(showEvery), true
		fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
	}
}

// done takes the count away.
func (p *progress) done() {
	if p.shown {
		p.shown = false
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
