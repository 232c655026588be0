// SPDX-License-Identifier: Apache-2.0

package ctl

// Severity says whether somebody has to act.
type Severity string

// A problem makes check exit with [ExitProblems]. A notice is work that is under
// way or was cut short by a crash; the next ADD on the node finishes it.
const (
	SeverityProblem Severity = "problem"
	SeverityNotice  Severity = "notice"
)

// Code names a kind of problem. Codes are stable: scripts may rely on them.
type Code string

// The kinds of problems.
const (
	UnreadableObject    Code = "UnreadableObject"
	UnreadableLine      Code = "UnreadableLine"
	BlockInvalid        Code = "BlockInvalid"
	NewerFormat         Code = "NewerFormat"
	UnknownOwner        Code = "UnknownOwner"
	OverlappingBlocks   Code = "OverlappingBlocks"
	DuplicateAddress    Code = "DuplicateAddress"
	PoolMissing         Code = "PoolMissing"
	BlockOutsidePool    Code = "BlockOutsidePool"
	LabelsDisagree      Code = "LabelsDisagree"
	AffinityMissing     Code = "AffinityMissing"
	AffinityReleasing   Code = "AffinityReleasing"
	AffinityAhead       Code = "AffinityAhead"
	AffinityAmbiguous   Code = "AffinityAmbiguous"
	AffinityPool        Code = "AffinityPool"
	BlockMissing        Code = "BlockMissing"
	AffinityPending     Code = "AffinityPending"
	AffinityStale       Code = "AffinityStale"
	PoolInvalid         Code = "PoolInvalid"
	PoolNotAllocatable  Code = "PoolNotAllocatable"
	PoolStatusOutdated  Code = "PoolStatusOutdated"
	ReservationInvalid  Code = "ReservationInvalid"
	ConfigurationFaulty Code = "ConfigurationFaulty"
)

// advice is what holds for every problem of a kind.
type advice struct {
	severity Severity
	why      string
	action   string
}

const restore = "stop what uses the store, keep a copy of the file, and restore the object from a backup"

var kinds = map[Code]advice{
	UnreadableObject: {
		SeverityProblem,
		"what the object records is unknown, so nothing it may stand for can be assigned or released",
		restore,
	},
	UnreadableLine: {
		SeverityProblem,
		"the ordinal counts as allocated to an unknown owner, so its address is never given back",
		"find out whether a live pod uses the address, then correct the line in the stored block; a newer version may have written it: compare versions first",
	},
	BlockInvalid: {
		SeverityProblem,
		"an ordinal in two states, or in none, can be given to two owners or be lost (INV-4)",
		restore + "; please report it, no sequence of operations may lead here",
	},
	NewerFormat: {
		SeverityProblem,
		"this version can read the block and refuses to change it: its addresses can be neither assigned nor released here",
		"upgrade allod on this host to the version that wrote the block",
	},
	UnknownOwner: {
		SeverityProblem,
		"nobody can tell who holds the address, so nothing ever releases it",
		"find out whether a live pod uses the address, then restore the owner in the stored block",
	},
	OverlappingBlocks: {
		SeverityProblem,
		"both blocks can hand out the same address (INV-1)",
		"disable the pool of one of them, move the pods that hold its addresses, then remove that block",
	},
	DuplicateAddress: {
		SeverityProblem,
		"two owners may be using one address: traffic reaches either of them (INV-1)",
		"delete one of the two pods now so that it gets another address, then resolve the overlap of the blocks",
	},
	PoolMissing: {
		SeverityProblem,
		"no pool selects the block: nothing new is assigned from it, and show counts its addresses under no pool",
		"apply the pool again with the same cidr and blockSize, or restore it from a backup",
	},
	BlockOutsidePool: {
		SeverityProblem,
		"the pool's arithmetic does not cover the block, so its usage is wrong and the block can overlap others",
		"give the pool back the cidr and blockSize it had when the block was made",
	},
	LabelsDisagree: {
		SeverityProblem,
		"lookups go by label: what the labels leave out is not found, so an address may be leaked or taken for exhausted",
		"the next assignment or release in the block writes the labels anew; if it stays, " + restore,
	},
	AffinityMissing: {
		SeverityProblem,
		"the owner is not known to hold the block: another host may claim it and no route leads to it",
		"restart the pods of that node one at a time; if the block stays without its affinity, restore the affinity from a backup",
	},
	AffinityReleasing: {
		SeverityProblem,
		"a claim that is being given up does not count for ownership or routes, yet the block still names it (INV-6)",
		"the owner's next claim repairs it to confirmed; if it stays, please report it",
	},
	AffinityAhead: {
		SeverityProblem,
		"the block was re-created below a sequence already given, so an old release could match a new allocation (INV-15)",
		"was an older copy of the store restored? Compare the block's addresses with the pods alive before anything is released",
	},
	AffinityAmbiguous: {
		SeverityProblem,
		"routes to the block lead to an owner that the block does not name",
		"remove the affinity of the owner that the block does not name",
	},
	AffinityPool: {
		SeverityProblem,
		"the claim counts for a pool that the block does not belong to",
		"please report it; the block's pool is the truth",
	},
	BlockMissing: {
		SeverityProblem,
		"the record of the addresses is gone: addresses still in use on that node could be handed out again",
		"compare the node's pods with show; if pods use addresses of the block, restore it from a backup, else the node's next ADD rebuilds it",
	},
	AffinityPending: {
		SeverityNotice,
		"a claim was begun and not finished: the block does not count as the owner's yet",
		"nothing: the owner's next claim finishes it",
	},
	AffinityStale: {
		SeverityNotice,
		"the owner gave the block up or another took it over; the claim routes nothing",
		"nothing: its owner removes it",
	},
	PoolInvalid: {
		SeverityProblem,
		"the pool cannot be used as it is stored",
		"apply a corrected pool",
	},
	PoolNotAllocatable: {
		SeverityProblem,
		"the pool hands out nothing",
		"change or remove what it conflicts with",
	},
	PoolStatusOutdated: {
		SeverityProblem,
		"whether the pool may hand out addresses was decided for other pools or blocks than there are now",
		"apply the pool again",
	},
	ReservationInvalid: {
		SeverityProblem,
		"the addresses it should protect may be handed out",
		"apply a corrected reservation",
	},
	ConfigurationFaulty: {
		SeverityProblem,
		"every assignment reads the configuration",
		"apply a corrected configuration",
	},
}

// Problem is one finding of check.
type Problem struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Object   string   `json:"object"` // where: kind and name, "block 10.64.0.64/29"
	What     string   `json:"what"`
	Why      string   `json:"why"`
	Action   string   `json:"action"`
}

// Report is the result of check.
type Report struct {
	Summary  Summary   `json:"summary"`
	Problems []Problem `json:"problems"`
}

// Summary says how much was looked at and what was found.
type Summary struct {
	Pools        int `json:"pools"`
	Reservations int `json:"reservations"`
	Blocks       int `json:"blocks"`
	Affinities   int `json:"affinities"`
	Allocated    int `json:"allocated"`
	Cooling      int `json:"cooling"`
	Problems     int `json:"problems"`
	Notices      int `json:"notices"`
}
