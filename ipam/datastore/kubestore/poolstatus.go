// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
	"github.com/allod/allod/ipam/pool"
)

// poolStatus writes what admission decided of a pool. Each write is a merge patch
// that carries UID and resourceVersion, hence compare-and-swap, and touches nothing
// but the finalizers or the conditions: the spec stays as its operator wrote it.
type poolStatus struct {
	*table[string, pool.Pool]
	clock clock.PassiveClock
}

type poolEntry = datastore.Entry[string, pool.Pool]

// store implements datastore.Store's PoolStatus. The finalizer is written first: a
// pool must not be Allocatable, for whoever comes in between, without it.
func (t poolStatus) store(ctx context.Context, e poolEntry) (poolEntry, error) {
	from, ok := e.Origin.(*origin)
	switch {
	case !ok:
		return poolEntry{}, fmt.Errorf("%s %s: %w", t.codec.Kind, e.Key,
			datastore.Refused(errors.New("status of an entry without its Origin: pass on what the table returned")))
	case e.Rev == "" || e.UID == "":
		return poolEntry{}, fmt.Errorf("%s %s: %w", t.codec.Kind, e.Key, datastore.ErrConflict)
	}
	want := e.Value.Status
	finalizers, err := finalizers(from, want.Finalizer)
	if err != nil {
		return poolEntry{}, fmt.Errorf("%s %s: metadata.finalizers: %w", t.codec.Kind, e.Key, err)
	}
	conditions, err := t.conditions(from, e.Value)
	if err != nil {
		return poolEntry{}, fmt.Errorf("%s %s: status.conditions: %w", t.codec.Kind, e.Key, err)
	}
	if finalizers == nil && conditions == nil {
		// Nothing to store, but what else was to be written at e.Rev must not land (INV-7).
		return t.patch(ctx, e, "", map[string]any{"annotations": map[string]any{v1alpha1.AnnotationFence: e.Rev}}, nil)
	}
	if finalizers != nil {
		next, err := t.patch(ctx, e, "", map[string]any{"finalizers": finalizers}, nil)
		if err != nil || !want.Finalizer {
			return next, err // without a finalizer the object may be gone
		}
		e.Rev, e.Origin = next.Rev, next.Origin
		if conditions == nil {
			return next, nil
		}
	}
	return t.patch(ctx, e, "status", nil, map[string]any{"conditions": conditions})
}

// patch makes one write at e's revision.
func (t poolStatus) patch(ctx context.Context, e poolEntry, subresource string, meta, status map[string]any) (poolEntry, error) {
	if meta == nil {
		meta = map[string]any{}
	}
	meta["uid"], meta["resourceVersion"] = e.UID, e.Rev
	patch := map[string]any{"metadata": meta}
	if status != nil {
		patch["status"] = status
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return poolEntry{}, datastore.Refused(fmt.Errorf("%s %s: encode: %w", t.codec.Kind, e.Key, err))
	}
	r := t.api.Patch(types.MergePatchType).Resource(t.resource).Name(e.Key)
	if subresource != "" {
		r = r.SubResource(subresource)
	}
	res := r.MaxRetries(0).Body(body).Do(ctx)
	if err := res.Error(); err != nil {
		return poolEntry{}, failedSub(verbPatch, t.codec.Kind, e.Key, subresource, err)
	}
	raw, err := res.Raw()
	return t.result(verbPatch, e.Key, raw, err)
}

// finalizers returns those that an object should have, or nil when it has them.
func finalizers(from *origin, want bool) ([]string, error) {
	have := []string{}
	if raw, ok := from.meta["finalizers"]; ok {
		if err := json.Unmarshal(raw, &have); err != nil {
			return nil, err
		}
	}
	switch has := slices.Contains(have, v1alpha1.PoolFinalizer); {
	case has == want:
		return nil, nil
	case want:
		return append(have, v1alpha1.PoolFinalizer), nil
	}
	return slices.DeleteFunc(have, func(f string) bool { return f == v1alpha1.PoolFinalizer }), nil
}

// conditions returns those that an object should have, with the fields that others
// gave theirs, or nil when ours is as it should be. The time of a condition moves only
// when its status does.
func (t poolStatus) conditions(from *origin, p pool.Pool) ([]any, error) {
	var status struct {
		Conditions []json.RawMessage `json:"conditions"`
	}
	if raw, ok := from.top["status"]; ok {
		if err := json.Unmarshal(raw, &status); err != nil {
			return nil, err
		}
	}
	decided := v1alpha1.FromPool(p).Status.Conditions
	if len(decided) == 0 {
		return nil, nil
	}
	want := decided[0]
	want.LastTransitionTime = metav1.NewTime(t.clock.Now().UTC().Truncate(time.Second))
	out := make([]any, 0, len(status.Conditions)+1)
	for _, raw := range status.Conditions {
		have, err := v1alpha1.DecodeCondition(raw)
		if err != nil {
			return nil, err
		}
		if have.Type != want.Type {
			out = append(out, raw)
			continue
		}
		now := want.LastTransitionTime
		want.LastTransitionTime = have.LastTransitionTime
		if have == want {
			return nil, nil
		}
		if have.Status != want.Status || have.LastTransitionTime.IsZero() {
			want.LastTransitionTime = now
		}
	}
	return append(out, want), nil
}
