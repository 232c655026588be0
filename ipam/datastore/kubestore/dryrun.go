// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
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

// RoundTrip implements http.RoundTripper.
func (d dryRun) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		r = r.Clone(r.Context())
		q := r.URL.Query()
		q.Set("dryRun", "All")
		r.URL.RawQuery = q.Encode()
	}
	return d.next.RoundTrip(r)
}
