// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"

	"github.com/allod/allod/ipam/datastore"
)

// SetConfig stores the configuration, whole. A value that breaks a rule is
// refused with ErrInvalid before anything is written; storing what is there
// already writes nothing.
func (c *Client) SetConfig(ctx context.Context, cfg datastore.Config) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("IPAM configuration: %w: %w", ErrInvalid, err)
	}
	t, key := c.store.Config, datastore.DefaultConfig
	set := func(e datastore.Entry[string, datastore.Config]) (datastore.Config, bool, error) {
		return cfg, e.Value != cfg, nil
	}
	_, err := update(ctx, c.backoff, t, key, nil, set)
	if errors.Is(err, datastore.ErrNotFound) {
		if _, err = t.Create(ctx, key, cfg); err != nil {
			// Someone else created it, or the outcome is unknown: both are
			// settled by reading it again.
			if _, again := update(ctx, c.backoff, t, key, nil, set); again != nil {
				err = errors.Join(err, again)
			} else {
				err = nil
			}
		}
	}
	if err != nil {
		return fmt.Errorf("store IPAM configuration %q: %w", key, err)
	}
	return nil
}
