// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// What a client with planned faults is told, beside the errors of datastore.
var (
	ErrCrashed     = errors.New("the process of this client has crashed")
	ErrUnreachable = errors.New("the store cannot be reached")
	ErrLost        = errors.New("the connection was lost during a write") // its outcome is unknown
	ErrWatchReset  = errors.New("the watch was reset")
)

// Fault is what goes wrong with one write.
type Fault uint8

// The faults of a write.
const (
	// Conflict: another writer is first. For Update and Delete the object has been
	// written again with the same value, so that only a new read helps. For Create
	// the other has created and removed it: ErrExists, and nothing is there.
	Conflict    Fault = iota + 1
	Crash             // applied, then the client is dead: ErrCrashed for this and every later call
	CrashBefore       // not applied, the client is dead
	LostReply         // applied, ErrLost
	LostRequest       // not applied, ErrLost
	LateRequest       // not applied, ErrLost; it lands later if its preconditions still hold, see Deliver
)

func (f Fault) String() string {
	names := map[Fault]string{
		0: "none", Conflict: "Conflict", Crash: "Crash", CrashBefore: "CrashBefore",
		LostReply: "LostReply", LostRequest: "LostRequest", LateRequest: "LateRequest",
	}
	if n, ok := names[f]; ok {
		return n
	}
	return fmt.Sprintf("Fault(%d)", uint8(f))
}

// WriteFaults returns every fault of a write, for tests that try each.
func WriteFaults() []Fault {
	return []Fault{Conflict, Crash, CrashBefore, LostReply, LostRequest, LateRequest}
}

// Verb is a method of a table.
type Verb string

// The verbs. Watch is recorded once, when it starts.
const (
	Get    Verb = "get"
	List   Verb = "list"
	Watch  Verb = "watch"
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
)

// Op is one call of a client.
type Op struct {
	Table string // as in kv: "blocks", "affinities", …
	Verb  Verb
	Key   string // the key as text; empty for list and watch
	Index int    // 1 for the first call of this client
	Write int    // 1 for its first write; 0 for reads
	Fault Fault  // what was planned for this write
	Err   error  // what the client was told
}

func (o Op) String() string {
	s := fmt.Sprintf("%s %s %s", o.Verb, o.Table, o.Key)
	if o.Fault != 0 {
		s += " [" + o.Fault.String() + "]"
	}
	return s
}

// Faults plans what goes wrong for one client and records its calls. Safe for
// concurrent use.
type Faults struct {
	mu       sync.Mutex
	plan     map[int]Fault
	reads    map[int]error
	deadFrom int // 0: never
	crashed  bool
	staleBy  int
	watchLag int
	hook     func(context.Context, Op) error
	ops      []Op
	writes   int
	readsN   int
	late     []lateRequest
	watches  map[int]context.CancelCauseFunc
}

type lateRequest struct {
	due   int // index of the operation after which it lands; 0: only by Deliver
	apply func() error
}

// Plan makes fault happen to the client's write number k (1 is the first since
// the client was made).
func (f *Faults) Plan(k int, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan[k] = fault
}

// PlanRead makes the client's read number k (Get and List; 1 is the first) fail
// with err.
func (f *Faults) PlanRead(k int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads[k] = err
}

// DeadFrom makes the store unreachable from the client's call number n on; 0
// brings it back.
func (f *Faults) DeadFrom(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deadFrom = n
}

// Hook is called before each call is served, outside any lock: it may wait, so
// that a test orders calls of several clients, and may write through another
// client. Its error is the answer, and nothing is applied. nil removes it.
func (f *Faults) Hook(h func(context.Context, Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = h
}

// StaleBy makes MayBeStale lists of this client answer from k commits ago.
func (f *Faults) StaleBy(k int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.staleBy = k
}

// WatchLag makes watches that this client starts from now on lag by k commits.
func (f *Faults) WatchLag(k int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchLag = k
}

// ResetWatches ends the running watches of this client with ErrWatchReset.
func (f *Faults) ResetWatches() {
	f.mu.Lock()
	cancels := slices.Collect(maps.Values(f.watches))
	f.mu.Unlock()
	for _, cancel := range cancels {
		cancel(ErrWatchReset)
	}
}

// Deliver applies the late requests that are still on their way, in order, and
// returns what became of each: nil for applied, else ErrConflict, ErrNotFound or
// ErrExists, as the preconditions no longer held.
func (f *Faults) Deliver() []error { return f.deliver(func(lateRequest) bool { return true }) }

// DeliverAfter lets the late requests that are on their way now land by
// themselves before the client's call that comes after n further ones.
func (f *Faults) DeliverAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.late {
		f.late[i].due = len(f.ops) + n
	}
}

func (f *Faults) deliver(which func(lateRequest) bool) []error {
	f.mu.Lock()
	var now, later []lateRequest
	for _, l := range f.late {
		if which(l) {
			now = append(now, l)
		} else {
			later = append(later, l)
		}
	}
	f.late = later
	f.mu.Unlock()
	var out []error
	for _, l := range now {
		out = append(out, l.apply())
	}
	return out
}

// Ops returns every call so far, in order.
func (f *Faults) Ops() []Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ops)
}

// Writes returns how many writes the client has tried.
func (f *Faults) Writes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

// Reads returns how many Gets and Lists the client has tried.
func (f *Faults) Reads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readsN
}

// begin records a call and says what is planned for it. A non-nil error is the
// answer.
func (f *Faults) begin(ctx context.Context, table string, verb Verb, key string) (Op, error) {
	f.deliver(func(l lateRequest) bool { return l.due > 0 && l.due <= len(f.ops) })
	f.mu.Lock()
	op := Op{Table: table, Verb: verb, Key: key, Index: len(f.ops) + 1}
	var err error
	switch verb {
	case Create, Update, Delete:
		f.writes++
		op.Write = f.writes
		op.Fault = f.plan[op.Write]
	case Get, List:
		f.readsN++
		err = f.reads[f.readsN]
	}
	switch {
	case f.crashed:
		err = ErrCrashed
	case f.deadFrom > 0 && op.Index >= f.deadFrom:
		err = ErrUnreachable
	}
	f.ops = append(f.ops, op)
	hook := f.hook
	f.mu.Unlock()
	if err == nil && hook != nil {
		err = hook(ctx, op)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", op, err)
	}
	return op, err
}

// end records what the client is told.
func (f *Faults) end(op Op, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ops[op.Index-1].Err = err
	return err
}

func (f *Faults) crash() error {
	f.mu.Lock()
	f.crashed = true
	cancels := slices.Collect(maps.Values(f.watches))
	f.mu.Unlock()
	for _, cancel := range cancels {
		cancel(ErrCrashed)
	}
	return ErrCrashed
}

// request is one write: apply sends it now, late sends it after its caller has
// given up, conflict lets a rival be first.
type request struct{ apply, late, conflict func() error }

// perform runs one write under its fault.
func (f *Faults) perform(op Op, r request) error {
	switch op.Fault {
	case Conflict:
		return r.conflict()
	case Crash:
		_ = r.apply() // nobody is left to hear of it
		return f.crash()
	case CrashBefore:
		return f.crash()
	case LostReply:
		_ = r.apply() // the outcome is what got lost
		return ErrLost
	case LostRequest:
		return ErrLost
	case LateRequest:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.late = append(f.late, lateRequest{apply: r.late})
		return ErrLost
	}
	return r.apply()
}

func (f *Faults) stale() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.staleBy
}

// watching registers a watch and returns its lag.
func (f *Faults) watching(op Op, cancel context.CancelCauseFunc) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches[op.Index] = cancel
	return f.watchLag
}

func (f *Faults) watched(op Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watches, op.Index)
}
