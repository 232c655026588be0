// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
)

const (
	stateBucket = "allod" // sorts before every table: what is not a store shows at once
	stateKey    = "state"
	tablePrefix = "table/"

	storeMark    = "allod-ipam"
	formatNow    = 1
	checksumSize = 4
)

// state is the record about the whole file.
type state struct {
	Store  string            `json:"store"`
	Format int               `json:"format"`
	Rev    uint64            `json:"rev"` // bbolt's transaction number
	Tables map[string]digest `json:"tables"`
}

// digest tells lost, added and exchanged values of a table.
type digest struct {
	Count int    `json:"count"`
	Sum   uint64 `json:"sum"` // of the values' checksums
}

// decodeState decodes the state record and judges store mark and format.
func decodeState(b []byte) (*state, error) {
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%w: state record: %w", ErrNotStore, err)
	}
	if s.Store != storeMark {
		return nil, fmt.Errorf("%w: a store of %q", ErrNotStore, s.Store)
	}
	if s.Format != formatNow {
		return nil, fmt.Errorf("%w: format %d, this version knows %d", ErrNewer, s.Format, formatNow)
	}
	return &s, nil
}

// image is the content of a file at one revision. It is never changed.
type image struct {
	rev    uint64
	tables map[string]*table
}

// encodeState returns the stored form of the state record of m.
func encodeState(m *image) ([]byte, error) {
	s := state{Store: storeMark, Format: formatNow, Rev: m.rev, Tables: make(map[string]digest, len(m.tables))}
	for name, t := range m.tables {
		s.Tables[name] = t.digest()
	}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("state record: %w", err)
	}
	return seal(checksum(stateBucket, stateKey, b), b), nil
}

// table is the content of one table, ordered by key.
type table struct {
	entries []entry
	sum     uint64
	page    uint64 // where its bucket is recorded; for messages
}

type entry struct {
	key string
	crc uint32
	val []byte
}

func (t *table) digest() digest { return digest{Count: len(t.entries), Sum: t.sum} }

func (t *table) clone() *table {
	return &table{entries: slices.Clone(t.entries), sum: t.sum, page: t.page}
}

func (t *table) find(key string) (int, bool) {
	return slices.BinarySearchFunc(t.entries, key, func(e entry, key string) int { return strings.Compare(e.key, key) })
}

// load appends a stored element.
func (t *table) load(name string, page uint64, e element) error {
	if e.flags != 0 {
		return damaged(page, "bucket inside table %s", name)
	}
	key := string(e.key)
	val, crc, ok := unseal(name, key, e.val)
	if !ok {
		return damaged(page, "checksum of %s %q", name, key)
	}
	t.entries = append(t.entries, entry{key: key, crc: crc, val: val})
	t.sum += uint64(crc)
	return nil
}

func (t *table) put(e entry) {
	i, found := t.find(e.key)
	if found {
		t.sum -= uint64(t.entries[i].crc)
		t.entries[i] = e
	} else {
		t.entries = slices.Insert(t.entries, i, e)
	}
	t.sum += uint64(e.crc)
}

func (t *table) delete(key string) bool {
	i, found := t.find(key)
	if !found {
		return false
	}
	t.sum -= uint64(t.entries[i].crc)
	t.entries = slices.Delete(t.entries, i, i+1)
	return true
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum covers where a value belongs as well as the value, so that a value
// under another key or in another table is found.
func checksum(table, key string, val []byte) uint32 {
	var where []byte
	where = fmt.Appendf(where, "%d %s %d %s ", len(table), table, len(key), key)
	return crc32.Update(crc32.Checksum(where, castagnoli), castagnoli, val)
}

// seal returns the stored form of a value: checksum, value.
func seal(crc uint32, val []byte) []byte {
	b := make([]byte, 0, checksumSize+len(val))
	b = append(b, byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24))
	return append(b, val...)
}

// unseal checks a stored value and returns it without its checksum.
func unseal(table, key string, stored []byte) (val []byte, crc uint32, ok bool) {
	if len(stored) < checksumSize {
		return nil, 0, false
	}
	crc = uint32(stored[0]) | uint32(stored[1])<<8 | uint32(stored[2])<<16 | uint32(stored[3])<<24
	val = stored[checksumSize:]
	return val, crc, checksum(table, key, val) == crc
}
