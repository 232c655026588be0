// SPDX-License-Identifier: Apache-2.0

package kv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// head is the part of an object's metadata that queries and watches look at.
type head struct {
	UID             string            `json:"uid"`
	ResourceVersion string            `json:"resourceVersion"`
	Labels          map[string]string `json:"labels"`
}

// headOf reads the metadata of an object and stops there: what follows is as big
// as a block and of no interest to a query that does not select it.
func headOf(raw []byte) (head, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return head{}, fmt.Errorf("not a JSON object")
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return head{}, err
		}
		if key == "metadata" {
			var h head
			err := dec.Decode(&h)
			return h, err
		}
		var skipped json.RawMessage
		if err := dec.Decode(&skipped); err != nil {
			return head{}, err
		}
	}
	return head{}, fmt.Errorf("no metadata")
}

// cidrOf reads the CIDR of a block or an affinity and nothing else of its spec.
func cidrOf(raw []byte) (netip.Prefix, error) {
	var o struct {
		Spec struct {
			CIDR netip.Prefix `json:"cidr"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return netip.Prefix{}, err
	}
	return o.Spec.CIDR, nil
}

// put writes o at the revision this transaction will commit.
func put(tx Tx, table, name string, o metav1.Object) error {
	o.SetResourceVersion(strconv.FormatUint(tx.Rev()+1, 10))
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // what this version does not know stays byte for byte
	if err := enc.Encode(o); err != nil {
		return fmt.Errorf("encode %s %s: %w", table, name, err)
	}
	return tx.Put(table, name, bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// inherit gives o what an update does not change: identity, and the marks of
// other writers.
func inherit(o, old metav1.Object) {
	o.SetUID(old.GetUID())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	o.SetGeneration(old.GetGeneration())
	o.SetLabels(v1alpha1.Adopt(o.GetLabels(), old.GetLabels()))
	o.SetAnnotations(v1alpha1.Adopt(o.GetAnnotations(), old.GetAnnotations()))
}

func revOf(o metav1.Object) datastore.Rev { return datastore.Rev(o.GetResourceVersion()) }
