// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/allod/allod/ipam/pool"
)

// notAdmitted is the status of a pool that nobody has admitted as it is now.
const notAdmitted = "NotAdmitted"

// poolStatuses are the words of [standing], each with what it means.
var poolStatuses = []struct{ status, meaning string }{
	{pool.ReasonOK, "hands out addresses"},
	{pool.ReasonTerminating, "is being deleted"},
	{pool.ReasonDisabled, "spec.disabled is set"},
	{pool.ReasonCIDROverlap, "overlaps a pool that goes first"},
	{pool.ReasonInvalid, "its spec breaks a rule"},
	{pool.ReasonBlockSizeConflict, "has blocks of another size"},
	{notAdmitted, "new, or changed since it was admitted"},
}

// standing is whether a pool hands out addresses, in a word and why. Only "OK" does.
type standing struct{ status, message string }

// serves reports whether the pool hands out addresses.
func (s standing) serves() bool { return s.status == pool.ReasonOK }

// meant reports whether the pool does what its operator asked for.
func (s standing) meant() bool {
	return s.serves() || s.status == pool.ReasonDisabled || s.status == pool.ReasonTerminating
}

// standings returns the standing of each pool by name: what [pool.Select] says of it,
// whoever asks (INV-13). show, check and apply all go by it.
func standings(pools []pool.Pool) map[string]standing {
	open := slices.Clone(pools)
	names := map[pool.Family][]string{}
	for i := range open {
		p := &open[i]
		p.Spec.NodeSelector, p.Spec.NamespaceSelector, p.Spec.AllowedUses = "", "", []pool.Use{pool.UseWorkload}
		names[p.Family()] = append(names[p.Family()], p.Name)
	}
	skipped := map[string]string{}
	for family, requested := range names {
		sel := pool.Select(open, pool.Request{Family: family, Requested: requested, Use: pool.UseWorkload})
		for _, s := range sel.Skipped {
			skipped[s.Pool] = s.Reason
		}
	}
	out := make(map[string]standing, len(pools))
	for _, p := range pools {
		out[p.Name] = standingOf(p, skipped[p.Name])
	}
	return out
}

// standingOf names the reason for which Select skips p, "" for none.
func standingOf(p pool.Pool, skipped string) standing {
	s := p.Status
	refused := skipped != "" && !s.Allocatable && s.ObservedGeneration == p.Generation && knownReason(s.Reason)
	switch {
	case skipped == "":
		return standing{pool.ReasonOK, s.Message}
	case p.Deleting:
		return standing{pool.ReasonTerminating, skipped}
	case refused:
		return standing{s.Reason, cmp.Or(s.Message, skipped)}
	case p.Spec.Disabled:
		return standing{pool.ReasonDisabled, skipped}
	case s.Reason == "":
		return standing{notAdmitted, undecided(s)}
	case s.ObservedGeneration == p.Generation && s.Allocatable && s.Finalizer:
		return standing{pool.ReasonCIDROverlap, skipped}
	}
	return standing{notAdmitted, skipped}
}

// knownReason reports whether admission refuses a pool for this reason.
func knownReason(reason string) bool {
	return reason != pool.ReasonOK && reason != notAdmitted &&
		slices.ContainsFunc(poolStatuses, func(k struct{ status, meaning string }) bool { return k.status == reason })
}

// undecided says why there is no decision about a pool.
func undecided(s pool.Status) string {
	if s.Finalizer {
		return "its status was removed, or its admission was cut short"
	}
	return "nobody has looked at it yet"
}

// statusHelp lists the statuses for people.
func statusHelp() string {
	var b strings.Builder
	for _, s := range poolStatuses {
		fmt.Fprintf(&b, "    %-17s  %s\n", s.status, s.meaning)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
