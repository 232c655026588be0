// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
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
	var hint *datastore.Entry[string, datastore.Config]
	if e, err := c.store.Config.Get(ctx, datastore.DefaultConfig); err == nil {
		hint = &e
	}
	_, err := ensure(ctx, c.backoff, c.store.Config, datastore.DefaultConfig, hint, cfg,
		func(e datastore.Entry[string, datastore.Config]) (datastore.Config, bool, error) {
			return cfg, e.Value != cfg, nil
		})
	if err != nil {
		return fmt.Errorf("store IPAM configuration %q: %w", datastore.DefaultConfig, err)
	}
	return nil
}
