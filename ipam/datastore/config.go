// SPDX-License-Identifier: Apache-2.0

package datastore

import (
	"errors"
	"fmt"
	"time"
)

// MaxIPCooldown is the longest cooldown that may be configured.
const MaxIPCooldown = 1200 * time.Second

// Validate returns every rule that c breaks, joined; each error begins with the
// path of the field in an IPAMConfiguration.
func (c Config) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !c.AutoAllocateBlocks && !c.StrictAffinity {
		fail("spec.autoAllocateBlocks: false needs spec.strictAffinity true: every address would be borrowed")
	}
	if c.MaxBlocksPerHost < 0 {
		fail("spec.maxBlocksPerHost: %d is negative; 0 means %d", c.MaxBlocksPerHost, DefaultMaxBlocksPerHost)
	}
	if c.IPCooldown < 0 || c.IPCooldown > MaxIPCooldown {
		fail("spec.ipCooldownSeconds: %v is outside 0 to %d seconds", c.IPCooldown, int(MaxIPCooldown.Seconds()))
	} else if c.IPCooldown%time.Second != 0 {
		fail("spec.ipCooldownSeconds: %v is not a whole number of seconds", c.IPCooldown)
	}
	if c.LeakGracePeriod < 0 {
		fail("spec.leakGracePeriod: %v is negative; 0s turns the collection of leaked addresses off", c.LeakGracePeriod)
	}
	return errors.Join(errs...)
}
