// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// Raw returns every object of a kind as the API server has it, by name, also what
// the tables leave out because it cannot be read. It is consistent. progress, unless
// nil, is told after each page how many there are so far.
func (s *Store) Raw(ctx context.Context, kind string, progress func(n int)) ([]json.RawMessage, error) {
	resource := v1alpha1.Resource(kind).Resource
	if resource == "" {
		return nil, fmt.Errorf("list %s: no kind of %s", kind, v1alpha1.Group)
	}
	items, _, err := s.base.list(ctx, resource, "", false, progress)
	if err != nil {
		return nil, failed(verbList, kind, "", err)
	}
	return items, nil
}

// page is the part of a list that we look at.
type page struct {
	Metadata metav1.ListMeta   `json:"metadata"`
	Items    []json.RawMessage `json:"items"`
}

// list reads every object of a resource that a selector selects, and the revision of
// the list. A stale list is one call whatever its size: the API server's cache does
// not page. progress, unless nil, is told after each page how many there are so far.
func (b base) list(
	ctx context.Context, resource, selector string, stale bool, progress func(n int),
) (items []json.RawMessage, rev string, err error) {
	limit, next := b.page, ""
	for {
		r := b.api.Get().Resource(resource)
		if selector != "" {
			r = r.Param("labelSelector", selector)
		}
		switch {
		case stale:
			r = r.Param("resourceVersion", "0")
		case limit > 0:
			r = r.Param("limit", strconv.Itoa(limit))
			if next != "" {
				r = r.Param("continue", next)
			}
		}
		raw, err := call(ctx, r, false)
		if apierrors.IsResourceExpired(err) && next != "" {
			items, limit, next = nil, 0, "" // the pages' revision is compacted: all at once
			continue
		}
		if err != nil {
			return nil, "", err
		}
		var p page
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, "", fmt.Errorf("answer: %w", err)
		}
		items = append(items, p.Items...)
		if progress != nil {
			progress(len(items))
		}
		if next = p.Metadata.Continue; next == "" {
			return items, p.Metadata.ResourceVersion, nil
		}
	}
}
