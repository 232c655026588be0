// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// maxDepth is far above any tree bbolt can build; it bounds the recursion.
const maxDepth = 32

// verify reads the file behind r and returns its content, or says why it can't be
// trusted. It never panics and reads only meta pages and reachable pages. Checked:
// both meta pages; that the file is a store of a known format; for each page its
// number, type, place below the high-water mark and that nothing else uses it;
// for each element its bounds; the order of the keys inside and across pages; the
// checksum of each value; count and checksum of each table; and that the state
// belongs to the meta page. Bytes that hold nothing (free pages, rests of pages)
// are not looked at.
func verify(r io.ReaderAt, size uint64) (*image, metaPages, error) {
	m, raw, err := readMetas(r, size)
	if err != nil {
		return nil, raw, err
	}
	v := &verifier{r: r, meta: m, used: make([]bool, m.highWater), tables: map[string]*table{}}
	if err := v.walk(m.root, v.bucket); err != nil {
		return nil, raw, err
	}
	if v.state == nil {
		return nil, raw, fmt.Errorf("%w: a bolt file without a state record", ErrNotStore)
	}
	if v.state.Rev != m.txid {
		return nil, raw, damaged(m.root, "state of transaction %d under transaction %d", v.state.Rev, m.txid)
	}
	for name, d := range v.state.Tables {
		t := v.tables[name]
		if t == nil {
			return nil, raw, damaged(m.root, "table %s is missing", name)
		}
		if t.digest() != d {
			return nil, raw, damaged(t.page, "table %s has lost or changed values: %d of %d", name, len(t.entries), d.Count)
		}
	}
	if m.freelist != noFreelist {
		return nil, raw, damaged(m.txid%2, "a stored free list, which Allod never writes")
	}
	return &image{rev: m.txid, tables: v.tables}, raw, nil
}

type verifier struct {
	r      io.ReaderAt
	meta   meta
	used   []bool
	state  *state
	tables map[string]*table
}

// visit is called for each element of a tree's leaves, in the order of the keys.
type visit func(page uint64, e element) error

// tree is the walk over one bucket.
type tree struct {
	v     *verifier
	visit visit
	last  []byte // the last key seen
}

func (v *verifier) walk(root uint64, f visit) error {
	return (&tree{v: v, visit: f}).page(root, 0, nil, nil)
}

// page walks the subtree below page id, whose keys must be in [low, high).
func (t *tree) page(id uint64, depth int, low, high []byte) error {
	if depth > maxDepth {
		return damaged(id, "tree deeper than %d", maxDepth)
	}
	p, err := t.v.read(id)
	if err != nil {
		return err
	}
	if p.count == 0 && depth > 0 {
		return damaged(id, "leaf without elements")
	}
	if p.leaf {
		return t.leaf(p, low, high)
	}
	e, err := p.element(0)
	if err != nil {
		return err
	}
	for i := range p.count {
		next, childHigh := element{}, high
		if i+1 < p.count {
			if next, err = p.element(i + 1); err != nil {
				return err
			}
			childHigh = next.key
		}
		if outside(e.key, low, high) || i+1 < p.count && bytes.Compare(e.key, next.key) >= 0 {
			return damaged(id, "branch element %d out of order", i)
		}
		if err := t.page(e.child, depth+1, e.key, childHigh); err != nil {
			return err
		}
		e = next
	}
	return nil
}

func (t *tree) leaf(p page, low, high []byte) error {
	for i := range p.count {
		e, err := p.element(i)
		if err != nil {
			return err
		}
		if outside(e.key, low, high) || t.last != nil && bytes.Compare(t.last, e.key) >= 0 {
			return damaged(p.id, "element %d out of order", i)
		}
		t.last = e.key
		if err := t.visit(p.id, e); err != nil {
			return err
		}
	}
	return nil
}

func outside(key, low, high []byte) bool {
	return low != nil && bytes.Compare(key, low) < 0 || high != nil && bytes.Compare(key, high) >= 0
}

// read reads page id with its overflow and marks its pages as used.
func (v *verifier) read(id uint64) (page, error) {
	if id < 2 || id >= v.meta.highWater {
		return page{}, damaged(id, "referred to, but the last page is %d", v.meta.highWater-1)
	}
	b := make([]byte, v.meta.pageSize)
	if err := readFull(v.r, b, id*v.meta.pageSize); err != nil {
		return page{}, asDamage(id, err)
	}
	if got := native.Uint64(b); got != id {
		return page{}, damaged(id, "it says it is page %d", got)
	}
	overflow := uint64(native.Uint32(b[12:]))
	if id+overflow >= v.meta.highWater {
		return page{}, damaged(id, "it reaches beyond the last page")
	}
	for i := id; i <= id+overflow; i++ {
		if v.used[i] {
			return page{}, damaged(i, "used twice")
		}
		v.used[i] = true
	}
	if overflow > 0 {
		first := b
		b = make([]byte, (1+overflow)*v.meta.pageSize)
		copy(b, first)
		if err := readFull(v.r, b[len(first):], (id+1)*v.meta.pageSize); err != nil {
			return page{}, asDamage(id, err)
		}
	}
	return decodePage(id, b)
}

// bucket checks one element of the root: first the state record's bucket, then
// tables.
func (v *verifier) bucket(id uint64, e element) error {
	if v.state == nil && (e.flags != bucketElement || string(e.key) != stateBucket) {
		return fmt.Errorf("%w: a bolt file of something else", ErrNotStore)
	}
	if e.flags != bucketElement || len(e.val) < bucketSize {
		return damaged(id, "element %q is no bucket", e.key)
	}
	f := v.stateRecord
	if v.state != nil {
		name, ok := strings.CutPrefix(string(e.key), tablePrefix)
		if _, known := v.state.Tables[name]; !ok || !known {
			return damaged(id, "unknown bucket %q", e.key)
		}
		t := &table{page: id}
		v.tables[name] = t
		f = func(id uint64, e element) error { return t.load(name, id, e) }
	}
	if err := v.bucketPages(id, e.val, f); err != nil {
		return err
	}
	if v.state == nil {
		return fmt.Errorf("%w: a bolt file without a state record", ErrNotStore)
	}
	return nil
}

// bucketPages walks the tree of a bucket, or its inline page.
func (v *verifier) bucketPages(id uint64, val []byte, f visit) error {
	root, inline := native.Uint64(val), val[bucketSize:]
	if root != 0 {
		if len(inline) != 0 {
			return damaged(id, "bucket with both a root page and an inline page")
		}
		return v.walk(root, f)
	}
	if len(inline) < headerSize {
		return damaged(id, "cut inline page")
	}
	p, err := decodePage(id, inline)
	if err != nil {
		return err
	}
	if !p.leaf || native.Uint64(inline) != 0 || native.Uint32(inline[12:]) != 0 {
		return damaged(id, "inline page with the header of another page")
	}
	return (&tree{v: v, visit: f}).leaf(p, nil, nil)
}

// stateRecord decodes the only record of the state bucket.
func (v *verifier) stateRecord(id uint64, e element) error {
	if v.state != nil || e.flags != 0 || string(e.key) != stateKey {
		return damaged(id, "unknown record %q beside the state", e.key)
	}
	b, _, ok := unseal(stateBucket, string(e.key), e.val)
	if !ok {
		return damaged(id, "checksum of the state record")
	}
	s, err := decodeState(b)
	v.state = s
	return err
}
