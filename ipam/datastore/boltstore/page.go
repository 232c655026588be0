// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// The layout of a bolt file, version 2, in the byte order of the host.
const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	branchFlag = 0x01
	leafFlag   = 0x02
	metaFlag   = 0x04

	headerSize  = 16 // id u64, flags u16, count u16, overflow u32
	elementSize = 16 // branch: pos, key size u32, page u64; leaf: flags, pos, key size, value size u32
	metaSize    = 64
	bucketSize  = 16 // root page u64 (0: the page follows inline), sequence u64

	bucketElement = 0x01 // flag of a leaf element whose value is a bucket

	noFreelist = 1<<64 - 1

	minPageSize = 1 << 10
	maxPageSize = 1 << 16
)

var native = binary.NativeEndian

// meta is one of the two meta pages that point to a state. The one with the
// higher txid is in force; the other is what a commit overwrites.
type meta struct {
	pageSize  uint64
	root      uint64
	highWater uint64 // every page in use has a lower id
	txid      uint64
	freelist  uint64 // page of the stored free list
}

// metaPages are the raw bytes of both meta pages, up to the checksum.
type metaPages [2][headerSize + metaSize]byte

// readMetas reads both meta pages and returns the one in force. It refuses
// when either is invalid: bbolt would fall back to the older state. A commit
// can't leave a torn one behind, since a meta page's 80 bytes lie in one sector.
func readMetas(r io.ReaderAt, size uint64) (meta, metaPages, error) {
	var raw metaPages
	if size == 0 {
		return meta{}, raw, fmt.Errorf("%w: the file is empty", ErrNotStore)
	}
	pageSize, err := findPageSize(r, size)
	if err != nil {
		return meta{}, raw, err
	}
	var metas [2]meta
	for i := range raw {
		if err := readFull(r, raw[i][:], uint64(i)*pageSize); err != nil {
			return meta{}, raw, asDamage(uint64(i), err)
		}
		m, err := decodeMeta(raw[i][:])
		if err != nil {
			return meta{}, raw, asDamage(uint64(i), err)
		}
		if id, flags := native.Uint64(raw[i][:]), native.Uint16(raw[i][8:]); id != uint64(i) || flags != metaFlag {
			return meta{}, raw, damaged(uint64(i), "not meta page %d (id %d, flags %#x)", i, id, flags)
		}
		if m.pageSize != pageSize || m.txid%2 != uint64(i) {
			return meta{}, raw, damaged(uint64(i), "meta page of another file (page size %d, transaction %d)", m.pageSize, m.txid)
		}
		metas[i] = m
	}
	newer, older := metas[0], metas[1]
	if older.txid > newer.txid {
		newer, older = older, newer
	}
	if newer.txid != older.txid+1 {
		return meta{}, raw, damaged(older.txid%2, "transaction %d beside transaction %d", older.txid, newer.txid)
	}
	if newer.highWater > size/pageSize {
		return meta{}, raw, damaged(newer.highWater-1, "the file ends at page %d", size/pageSize)
	}
	return newer, raw, nil
}

// findPageSize returns the page size that a valid meta page names. The second
// meta page is looked for at every possible place, to tell a damaged file from
// one that never was a bolt file.
func findPageSize(r io.ReaderAt, size uint64) (uint64, error) {
	at := []uint64{0}
	for ps := uint64(minPageSize); ps <= maxPageSize; ps *= 2 {
		at = append(at, ps)
	}
	var buf [headerSize + metaSize]byte
	for _, off := range at {
		if off+uint64(len(buf)) > size {
			break
		}
		if err := readFull(r, buf[:], off); err != nil {
			return 0, err
		}
		m, err := decodeMeta(buf[:])
		switch {
		case errors.Is(err, ErrNewer):
			return 0, err
		case err == nil && (off == 0 || off == m.pageSize):
			return m.pageSize, nil
		}
	}
	return 0, fmt.Errorf("%w: it has no valid meta page", ErrNotStore)
}

var errMeta = errors.New("invalid meta page")

// decodeMeta decodes a meta page and checks what can be checked on it alone.
func decodeMeta(page []byte) (meta, error) {
	b := page[headerSize:]
	if native.Uint32(b) != boltMagic {
		return meta{}, fmt.Errorf("%w: magic number %#x", errMeta, native.Uint32(b))
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaSize-8])
	if sum.Sum64() != native.Uint64(b[metaSize-8:]) {
		return meta{}, fmt.Errorf("%w: checksum", errMeta)
	}
	if v := native.Uint32(b[4:]); v != boltVersion {
		return meta{}, fmt.Errorf("%w: bolt file version %d", ErrNewer, v)
	}
	m := meta{
		pageSize:  uint64(native.Uint32(b[8:])),
		root:      native.Uint64(b[16:]),
		freelist:  native.Uint64(b[32:]),
		highWater: native.Uint64(b[40:]),
		txid:      native.Uint64(b[48:]),
	}
	if m.pageSize < minPageSize || m.pageSize > maxPageSize || m.pageSize&(m.pageSize-1) != 0 {
		return meta{}, fmt.Errorf("%w: page size %d", errMeta, m.pageSize)
	}
	if m.root < 2 || m.root >= m.highWater {
		return meta{}, fmt.Errorf("%w: root page %d of %d", errMeta, m.root, m.highWater)
	}
	return m, nil
}

// page is a branch or leaf page with its overflow, bounds not yet checked.
type page struct {
	id    uint64 // for messages: an inline page has the id of the page around it
	leaf  bool
	count int
	b     []byte
}

// element is one entry of a page. A branch has child, a leaf has flags and val.
type element struct {
	flags    uint32
	child    uint64
	key, val []byte
}

// element returns entry i, or an error when it reaches out of its page.
func (p page) element(i int) (element, error) {
	at := uint64(headerSize + i*elementSize)
	h := p.b[at:] // decodePage checked that all headers are inside
	var e element
	var pos, ksize, vsize uint64
	if p.leaf {
		e.flags = native.Uint32(h)
		pos, ksize, vsize = uint64(native.Uint32(h[4:])), uint64(native.Uint32(h[8:])), uint64(native.Uint32(h[12:]))
	} else {
		pos, ksize = uint64(native.Uint32(h)), uint64(native.Uint32(h[4:]))
		e.child = native.Uint64(h[8:])
	}
	from, end := at+pos, at+pos+ksize+vsize
	if from < uint64(headerSize+p.count*elementSize) || end > uint64(len(p.b)) {
		return element{}, damaged(p.id, "element %d reaches out of its page", i)
	}
	if ksize == 0 {
		return element{}, damaged(p.id, "element %d has no key", i)
	}
	e.key, e.val = p.b[from:from+ksize:from+ksize], p.b[from+ksize:end:end]
	return e, nil
}

// decodePage checks the header of a page held by the page with number id.
func decodePage(id uint64, b []byte) (page, error) {
	p := page{id: id, count: int(native.Uint16(b[10:])), b: b}
	switch flags := native.Uint16(b[8:]); flags {
	case branchFlag:
	case leafFlag:
		p.leaf = true
	default:
		return page{}, damaged(id, "neither branch nor leaf (flags %#x)", flags)
	}
	if headerSize+p.count*elementSize > len(b) {
		return page{}, damaged(id, "%d elements don't fit", p.count)
	}
	if p.count == 0 && !p.leaf {
		return page{}, damaged(id, "branch without elements")
	}
	return p, nil
}

// readFull reads len(b) bytes; a file that ends before is damaged.
func readFull(r io.ReaderAt, b []byte, off uint64) error {
	n, err := r.ReadAt(b, int64(off))
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// asDamage turns what is wrong with the content of a page into damage and leaves
// errors of the device alone.
func asDamage(page uint64, err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return damaged(page, "the file ends inside it")
	case errors.Is(err, errMeta):
		return damaged(page, "%v", err)
	}
	return err
}
