// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// DryRun returns cfg for a store whose writes the API server judges, by its rules,
// RBAC and admission, and answers as if it had made them, but does not make.
func DryRun(cfg *rest.Config) *rest.Config {
	c := rest.CopyConfig(cfg)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return dryRun{next} })
	return c
}

type dryRun struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper. The options of a DELETE are in its body, and
// then those of its URL do not count.
func (d dryRun) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return d.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	q := r.URL.Query()
	q.Set("dryRun", "All")
	r.URL.RawQuery = q.Encode()
	if r.Method == http.MethodDelete && r.Body != nil {
		if err := markBody(r); err != nil {
			return nil, fmt.Errorf("dry run of DELETE %s: %w", r.URL.Path, err)
		}
	}
	return d.next.RoundTrip(r)
}

// markBody sets dryRun in the options that r carries.
func markBody(r *http.Request) error {
	text, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return err
	}
	options := fields{}
	if err := json.Unmarshal(text, &options); err != nil {
		return err
	}
	options["dryRun"] = json.RawMessage(`["All"]`)
	if text, err = json.Marshal(options); err != nil {
		return err
	}
	r.ContentLength = int64(len(text))
	r.Body = io.NopCloser(bytes.NewReader(text))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	return nil
}
