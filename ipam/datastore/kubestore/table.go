// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/codec"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

const defaultPage = 500

// base is what all tables share.
type base struct {
	api  rest.Interface
	page int
	log  *slog.Logger
}

type table[K comparable, V any] struct {
	base
	codec    codec.Codec[K, V]
	resource string
	known    map[string]bool // fields of the spec; nil: the value has them all
	lenient  bool            // leave out of lists what cannot be read, see the package comment
}

func newTable[K comparable, V any](b base, c codec.Codec[K, V], lenient bool, spec reflect.Type) *table[K, V] {
	return &table[K, V]{base: b, codec: c, resource: v1alpha1.Resource(c.Kind).Resource, known: knownFields(spec), lenient: lenient}
}

// entry reads an object.
func (t *table[K, V]) entry(raw []byte) (datastore.Entry[K, V], error) {
	k, v, o, err := t.codec.Decode(raw)
	if err == nil && t.codec.Name(k) != o.GetName() {
		err = fmt.Errorf("holds %v, whose name is %s", k, t.codec.Name(k))
	}
	var from *origin
	if err == nil {
		from, err = originOf(raw, o, t.known)
	}
	if err != nil {
		err = fmt.Errorf("%s %s: stored object: %w", t.codec.Kind, NameOf(raw), err)
		return t.husk(raw), &datastore.UnreadableError{Err: err}
	}
	if t.codec.Writable != nil {
		from.refusal = t.codec.Writable(v)
	}
	if t.codec.Grows != nil {
		from.grown = t.codec.Grows(v)
	}
	return datastore.Entry[K, V]{Key: k, Value: v, Rev: datastore.Rev(o.GetResourceVersion()), UID: string(o.GetUID()), Origin: from}, nil
}

// husk is the entry, without a value, of an object that cannot be read: enough to write
// or delete it. There is none of the kinds that the library writes, which nobody must
// overwrite unread.
func (t *table[K, V]) husk(raw []byte) datastore.Entry[K, V] {
	var o metav1.PartialObjectMetadata
	var e datastore.Entry[K, V]
	k, named := any(NameOf(raw)).(K) // an operator's objects have their name as the key
	if t.lenient || !named || json.Unmarshal(raw, &o) != nil {
		return e
	}
	from, err := originOf(raw, &o, t.known)
	if err != nil { // a spec that is no object has nothing to keep
		from, err = originOf(raw, &o, nil)
	}
	if err != nil {
		return e
	}
	return datastore.Entry[K, V]{Key: k, Rev: datastore.Rev(o.ResourceVersion), UID: string(o.UID), Origin: from}
}

// NameOf returns the name of an object, of [Store.Raw] for example, that may be
// readable no further; "" if not even that.
func NameOf(raw []byte) string {
	var o struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(raw, &o) // as far as it goes
	return o.Metadata.Name
}

// call makes one call and returns the body of the answer. client-go repeats one that
// was answered with Retry-After, or whose connection broke; a write must not be.
func call(ctx context.Context, r *rest.Request, writes bool) ([]byte, error) {
	if writes {
		r = r.MaxRetries(0).SetHeader("Content-Type", runtime.ContentTypeJSON)
	}
	res := r.Do(ctx)
	if err := res.Error(); err != nil {
		return nil, err
	}
	return res.Raw()
}

// result reads the answer to a call for one object.
func (t *table[K, V]) result(verb, name string, raw []byte, err error) (datastore.Entry[K, V], error) {
	if err != nil {
		return datastore.Entry[K, V]{}, t.failed(verb, name, err)
	}
	return t.entry(raw)
}

// Get implements datastore.Table.
func (t *table[K, V]) Get(ctx context.Context, key K) (datastore.Entry[K, V], error) {
	name := t.codec.Name(key)
	raw, err := call(ctx, t.api.Get().Resource(t.resource).Name(name), false)
	e, err := t.result(verbGet, name, raw, err)
	if err == nil && t.codec.Compare(e.Key, key) != 0 {
		return datastore.Entry[K, V]{}, fmt.Errorf("%s %s: holds %v, not %v", t.codec.Kind, name, e.Key, key)
	}
	return e, err
}

// List implements datastore.Table.
func (t *table[K, V]) List(ctx context.Context, q datastore.Query) ([]datastore.Entry[K, V], error) {
	items, _, err := t.list(ctx, t.resource, v1alpha1.LabelSelector(t.codec.Kind, q), q.MayBeStale, nil)
	if err != nil {
		return nil, t.failed(verbList, "", err)
	}
	var out []datastore.Entry[K, V]
	var unreadable []error
	for _, raw := range items {
		e, err := t.entry(raw)
		switch {
		case err == nil:
			out = append(out, e)
		case t.lenient && !q.Strict:
			t.leftOut(ctx, err)
		default:
			unreadable = append(unreadable, err)
		}
	}
	switch n := len(unreadable); n {
	case 0:
	case 1:
		return nil, unreadable[0]
	default:
		return nil, fmt.Errorf("%w (and %d more that cannot be read)", unreadable[0], n-1)
	}
	slices.SortFunc(out, func(a, b datastore.Entry[K, V]) int { return t.codec.Compare(a.Key, b.Key) })
	return out, nil
}

func (t *table[K, V]) leftOut(ctx context.Context, why error) {
	t.log.WarnContext(ctx, "a stored object cannot be read and is left out", "error", why)
}

// Create implements datastore.Table.
func (t *table[K, V]) Create(ctx context.Context, key K, v V) (datastore.Entry[K, V], error) {
	key, v, err := t.codec.Accept(key, v)
	if err != nil {
		return datastore.Entry[K, V]{}, err
	}
	name := t.codec.Name(key)
	var from *origin
	body, err := from.render(t.codec.Encode(key, v), "", "")
	if err != nil {
		return datastore.Entry[K, V]{}, datastore.Refused(fmt.Errorf("%s %s: encode: %w", t.codec.Kind, name, err))
	}
	raw, err := call(ctx, t.api.Post().Resource(t.resource).Body(body), true)
	return t.result(verbCreate, name, raw, err)
}

// Update implements datastore.Table.
func (t *table[K, V]) Update(ctx context.Context, e datastore.Entry[K, V]) (datastore.Entry[K, V], error) {
	key, v, err := t.codec.Accept(e.Key, e.Value)
	if err != nil {
		return datastore.Entry[K, V]{}, err
	}
	o := t.codec.Encode(key, v)
	from, ok := e.Origin.(*origin)
	switch {
	case !ok:
		err = datastore.Refused(errors.New("update of an entry without its Origin: pass on what the table returned"))
	case from.refusal != nil:
		err = from.refusal
	case e.Rev == "" || e.UID == "":
		err = datastore.ErrConflict // an API server takes either for "any"
	default:
		err = t.lost(from, o.GetName(), v)
	}
	if err != nil {
		return datastore.Entry[K, V]{}, fmt.Errorf("%s %s: %w", t.codec.Kind, o.GetName(), err)
	}
	out, err := t.put(ctx, o, from, e)
	if err != nil || out.Rev != e.Rev {
		return out, err
	}
	marks := map[string]string{v1alpha1.AnnotationFence: string(e.Rev)}
	for k, v := range o.GetAnnotations() {
		marks[k] = v
	}
	o.SetAnnotations(marks)
	return t.put(ctx, o, from, e)
}

func (t *table[K, V]) put(ctx context.Context, o metav1.Object, from *origin, e datastore.Entry[K, V]) (datastore.Entry[K, V], error) {
	name := o.GetName()
	body, err := from.render(o, e.UID, e.Rev)
	if err != nil {
		return datastore.Entry[K, V]{}, datastore.Refused(fmt.Errorf("%s %s: encode: %w", t.codec.Kind, name, err))
	}
	raw, err := call(ctx, t.api.Put().Resource(t.resource).Name(name).Body(body), true)
	return t.result(verbUpdate, name, raw, err)
}

// Delete implements datastore.Table.
func (t *table[K, V]) Delete(ctx context.Context, e datastore.Entry[K, V]) error {
	name := t.codec.Name(e.Key)
	from, _ := e.Origin.(*origin)
	switch {
	case from != nil && from.refusal != nil:
		return fmt.Errorf("%s %s: %w", t.codec.Kind, name, from.refusal)
	case e.Rev == "" || e.UID == "":
		return fmt.Errorf("%s %s: %w", t.codec.Kind, name, datastore.ErrConflict)
	}
	uid, rev := types.UID(e.UID), string(e.Rev)
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rev},
	})
	if err != nil {
		return err
	}
	answer, err := call(ctx, t.api.Delete().Resource(t.resource).Name(name).Body(body), true)
	if err != nil {
		return t.failed(verbDelete, name, err)
	}
	return t.stays(name, answer)
}
