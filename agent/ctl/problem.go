// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"maps"
	"slices"
)

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
	GatewayInUse        Code = "GatewayInUse"
	PoolInvalid         Code = "PoolInvalid"
	PoolNotAllocatable  Code = "PoolNotAllocatable"
	PoolStatusOutdated  Code = "PoolStatusOutdated"
	PoolTerminating     Code = "PoolTerminating"
	PoolUnprotected     Code = "PoolUnprotected"
	ReservationInvalid  Code = "ReservationInvalid"
	ConfigurationFaulty Code = "ConfigurationFaulty"
)

// advice is what holds for every problem of a kind.
type advice struct {
	severity Severity
	why      string
	action   string
}

// placeholder stands for the name of the object in an action.
const placeholder = "NAME"

const restore = "keep a copy of the store, then restore the file from a backup and check again"

var kinds = map[Code]advice{
	UnreadableObject: {
		SeverityProblem,
		"what the object records is unknown, so nothing it may stand for can be assigned or released",
		restore,
	},
	UnreadableLine: {
		SeverityProblem,
		"the ordinal counts as allocated to an unknown owner, so its address is never given back",
		"did a newer version of allod write it? Then upgrade this host. Else keep a copy of the store and report it; the address stays out of use meanwhile",
	},
	BlockInvalid: {
		SeverityProblem,
		"an ordinal in two states, or in none, can be given to two owners or be lost (INV-4)",
		restore + "; report it: no sequence of operations may lead here",
	},
	NewerFormat: {
		SeverityProblem,
		"this version can read the block and refuses to change it: its addresses can be neither assigned nor released here",
		"upgrade allod on this host to the version that wrote the block",
	},
	UnknownOwner: {
		SeverityProblem,
		"nobody can tell who holds the address, so nothing ever releases it",
		"keep a copy of the store and report it; the address stays out of use meanwhile",
	},
	OverlappingBlocks: {
		SeverityProblem,
		"both blocks can hand out the same address (INV-1)",
		"set disabled on the pool of one of the two blocks and restart the pods that have its addresses (show --addresses)",
	},
	DuplicateAddress: {
		SeverityProblem,
		"two owners may be using one address: traffic reaches either of them (INV-1)",
		"delete one of the two pods now, so that it gets another address; then see to the overlap of the blocks",
	},
	PoolMissing: {
		SeverityProblem,
		"no pool selects the block: nothing new is assigned from it, and show counts its addresses under no pool",
		"apply the pool again with the cidr and blockSize it had",
	},
	BlockOutsidePool: {
		SeverityProblem,
		"the pool's arithmetic does not cover the block, so its usage is wrong and the block can overlap others",
		"give the pool the blockSize the block has, or disable the pool and restart the pods that have addresses of the block",
	},
	LabelsDisagree: {
		SeverityProblem,
		"lookups go by label: what the labels leave out is not found, so an address may be leaked or taken for exhausted",
		"the next assignment or release in the block writes the labels anew; if it stays, " + restore,
	},
	AffinityMissing: {
		SeverityProblem,
		"the owner is not known to hold the block: another host may claim it and no route leads to it",
		"the next claim of the node takes the block up again; if it stays, restart the pods that have its addresses",
	},
	AffinityReleasing: {
		SeverityProblem,
		"a claim that is being given up does not count for ownership or routes, yet the block still names it (INV-6)",
		"the next claim of the node confirms it again; if it stays, report it",
	},
	AffinityAhead: {
		SeverityProblem,
		"the block was re-created below a sequence already given, so an old release could match a new allocation (INV-15)",
		"was an older copy of the store put back? Compare show --addresses with the pods alive before you let anything be deleted",
	},
	AffinityAmbiguous: {
		SeverityProblem,
		"routes to the block lead to an owner that the block does not name",
		"restart the pods of the node that the block does not name and that have addresses of it; if it stays, report it",
	},
	AffinityPool: {
		SeverityProblem,
		"the claim counts for a pool that the block does not belong to",
		"report it; the pool of the block is the right one",
	},
	BlockMissing: {
		SeverityProblem,
		"the record of the addresses is gone: addresses still in use on that node could be handed out again",
		"compare the pods of the node with show --addresses: restart those whose address is not listed",
	},
	AffinityPending: {
		SeverityNotice,
		"a claim was begun and not finished: the block does not count as the owner's yet",
		"nothing: the next claim of the node finishes it",
	},
	AffinityStale: {
		SeverityNotice,
		"the owner gave the block up or another took it over; the claim routes nothing",
		"nothing: its owner removes it",
	},
	GatewayInUse: {
		SeverityProblem,
		"the gateway and a pod have the same address: neither can be reached reliably (INV-1)",
		"delete the pod, or give the pool another gateway",
	},
	PoolInvalid: {
		SeverityProblem,
		"the pool cannot be used as it is stored",
		"apply a corrected pool",
	},
	PoolNotAllocatable: {
		SeverityProblem,
		"the pool hands out nothing",
		"change or remove what it conflicts with; nothing of the pool is lost meanwhile",
	},
	PoolStatusOutdated: {
		SeverityProblem,
		"what was decided about the pool is not what holds now: until that is decided anew it hands out nothing, or what it should not",
		"\"allod-agent apply -f\" with the manifest of ippool/NAME, the same one will do: that decides anew; if it stays, report it",
	},
	PoolTerminating: {
		SeverityProblem,
		"the deletion was asked for and nobody carries it out: the pool hands out nothing and stays",
		"\"allod-agent delete ippool/NAME\" completes it, or says what holds the pool",
	},
	PoolUnprotected: {
		SeverityProblem,
		"kubectl can delete the pool while its blocks stay; they then count for the next pool that has the range",
		"enable the pool, which puts the finalizer back, or \"allod-agent delete ippool/NAME\", which waits for its blocks",
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

// embedded are the actions that are others for an embedded store.
var embedded = map[Code]string{
	PoolStatusOutdated: "\"allod-agent apply -f\" with a manifest of ippool/NAME that changes a field: that decides anew; if it stays, report it",
}

// ofOneObject are the kinds of problems that one object shows by itself; the others are
// between objects.
var ofOneObject = map[Code]bool{
	UnreadableObject: true, UnreadableLine: true, BlockInvalid: true, NewerFormat: true, UnknownOwner: true,
	PoolInvalid: true, ReservationInvalid: true, ConfigurationFaulty: true,
}

// Kinds returns a Problem of each kind, by code, without object and finding.
func Kinds() []Problem {
	var out []Problem
	for _, code := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[code]
		action := k.action
		if e, ok := embedded[code]; ok {
			action += "; with bolt: " + e
		}
		out = append(out, Problem{Code: code, Severity: k.severity, Why: k.why, Action: action})
	}
	return out
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
