// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// stays reads the answer to a DELETE: a Status when the object is gone, the object
// itself when finalizers hold it. Ours goes when admission takes it away, which is how
// a pool is deleted; those of others are an error that names them.
func (t *table[K, V]) stays(name string, answer []byte) error {
	var o struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(answer, &o); err != nil {
		return fmt.Errorf("%s %s %s: answer: %w", verbDelete, t.codec.Kind, name, err)
	}
	holders := slices.DeleteFunc(o.Metadata.Finalizers, func(f string) bool { return f == v1alpha1.PoolFinalizer })
	if o.Metadata.DeletionTimestamp == nil || len(holders) == 0 {
		return nil
	}
	return &HeldError{Finalizers: holders, text: fmt.Sprintf("%s %s %s: it only becomes marked as deleted and stays until %s; %s",
		verbDelete, t.codec.Kind, name, heldBy(holders), howToFree(t.resource, name))}
}

// HeldError is the error of a deletion that the API server took, while finalizers of
// others keep the object.
type HeldError struct {
	Finalizers []string
	text       string
}

func (e *HeldError) Error() string { return e.text }

func heldBy(finalizers []string) string {
	if len(finalizers) == 0 {
		return "the API server has removed it"
	}
	return "its finalizers are removed: " + strings.Join(finalizers, ", ")
}

func howToFree(resource, name string) string {
	return fmt.Sprintf("who set them does that, or an operator with kubectl edit %s.%s %s", resource, v1alpha1.Group, name)
}

// lost says why v must not be written over an object that is being deleted: what was
// given in it anew would vanish with the object (INV-1). What only takes away, a
// release, may be written.
func (t *table[K, V]) lost(from *origin, name string, v V) error {
	if !from.deleting || t.codec.Grows == nil || t.codec.Grows(v) <= from.grown {
		return nil
	}
	return datastore.Refused(errors.New("the object is being deleted, and nothing new is written into it; it stays until " +
		heldBy(from.holders) + "; " + howToFree(t.resource, name)))
}
