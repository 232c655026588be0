// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

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
	metav1.TypeMeta
	Metadata metav1.ListMeta    `json:"metadata"`
	Items    *[]json.RawMessage `json:"items"`
}

// pageOf reads one page. What is not exactly a list of ours is an error, with whatever
// status it came: read as an empty one it would prove that nothing is there (INV-10).
func pageOf(raw []byte) (items []json.RawMessage, meta metav1.ListMeta, err error) {
	var p page
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, p.Metadata, fmt.Errorf("answer: %w", err)
	}
	switch {
	case p.APIVersion != v1alpha1.APIVersion || !strings.HasSuffix(p.Kind, "List"):
		return nil, p.Metadata, fmt.Errorf("answer: it is no list of %s (apiVersion %.40q, kind %.40q); check the server's address", v1alpha1.APIVersion, p.APIVersion, p.Kind)
	case p.Items == nil || p.Metadata.ResourceVersion == "":
		return nil, p.Metadata, errors.New("answer: a list without items or resourceVersion; something between here and the API server has changed it")
	}
	for _, item := range *p.Items {
		if len(item) == 0 || item[0] != '{' {
			return nil, p.Metadata, errors.New("answer: an item of the list is no object; something between here and the API server has changed it")
		}
	}
	return *p.Items, p.Metadata, nil
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
		more, meta, err := pageOf(raw)
		if err != nil {
			return nil, "", err
		}
		items = append(items, more...)
		if progress != nil {
			progress(len(items))
		}
		if next = meta.Continue; next == "" {
			return items, meta.ResourceVersion, nil
		}
	}
}
