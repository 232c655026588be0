// SPDX-License-Identifier: Apache-2.0

package kv

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzHead: the short way to the metadata gives what decoding all of it gives.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		`{"metadata":{"uid":"u","resourceVersion":"7","labels":{"a":"b"}},"spec":{}}`,
		`{"kind":{"metadata":{"uid":"no"}},"metadata":{}}`, `{"metadata":7}`, `{}`, `[]`, ``, `{"metadata":null}`, `{"metadata"`,
		`{"metadata":{"uid":"a"},"metadata":{"uid":"b"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := headOf(data)
		var keys map[string]json.RawMessage
		if json.Unmarshal(data, &keys) != nil || keys["metadata"] == nil {
			return // what the short way makes of it does not matter, but it must not panic
		}
		if twice(data) {
			return // the short way takes the first, decoding the last; nobody writes both
		}
		var want head
		wantErr := json.Unmarshal(keys["metadata"], &want)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("error %v; want %v", err, wantErr)
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v; want %+v", got, want)
		}
	})
}

// twice reports whether an object has more than one "metadata".
func twice(object []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(object))
	_, _ = dec.Token()
	n := 0
	for dec.More() {
		key, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			break
		}
		if key == "metadata" {
			n++
		}
	}
	return n > 1
}
