// SPDX-License-Identifier: Apache-2.0

package block

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
