// SPDX-License-Identifier: Apache-2.0

// Package boltstore keeps the records of one host in one bbolt file that several
// processes share. It is the [kv.DB] below the engine in kv, and owns the file:
// locking, verification, durability, creation. It must not know what the tables
// mean.
//
// # Locking
//
// A transaction opens the file, works and closes it, under a lock on the separate
// file "<path>.lock": shared for View, exclusive for Update. The wait blocks in
// the kernel (bbolt's own lock polls every 50 ms). Who waits for the lock holds
// "<path>.turn", so that writers get their turn among many readers; both are taken
// through filelock, and the kernel gives them up when a process dies. Lock files
// are never removed:
// a process that holds the removed file and one that made a new one would both
// believe to be alone. They are separate from the data file so that replacing the
// data file (a backup restored by rename) can't split the lock either.
//
// # Reading
//
// bbolt maps the file into memory and trusts it: a garbled page makes it panic,
// partly in a goroutine where nothing can recover, and when the newer of its two
// meta pages is broken it silently serves the older state, which here means
// addresses handed out twice. So bbolt never sees a file that was not verified
// first, and reads don't use it at all: verify walks the pages with plain
// bounds-checked reads, checks everything listed there, and what it found is the
// snapshot that transactions read. bbolt only applies the writes at the end of an
// Update. The snapshot is kept between transactions and used again as long as the
// file's identity, size, times and both meta pages are the same.
//
// # Format
//
// Bucket "allod" holds one record, "state": JSON with the format, the revision and
// for each table the number of values and the sum of their checksums. The revision
// is bbolt's transaction number, so that a state that is older than its meta page
// shows. Each table is a bucket "table/<name>". In front of every value stands a
// CRC-32C over table, key and value. The place, the checksum and the "format" and
// "store" fields of the state record stay the same in every later format.
//
// The free list is not stored (bbolt finds the free pages by a scan of the
// verified tree), so there is none that could be wrong.
package boltstore
