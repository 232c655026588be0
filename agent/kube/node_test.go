// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/base64"
	"strings"
	"testing"
)

func jwt(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

func TestNodeClaim(t *testing.T) {
	bound := jwt(`{"kubernetes.io":{"namespace":"kube-system","node":{"name":"node-a","uid":"u"}}}`)
	for name, tt := range map[string]struct{ token, want string }{
		"bound":                    {bound, "node-a"},
		"not bound":                {jwt(`{"kubernetes.io":{"namespace":"kube-system"}}`), ""},
		"another issuer":           {jwt(`{"sub":"me"}`), ""},
		"no object":                {jwt(`[]`), ""},
		"a node that is no object": {jwt(`{"kubernetes.io":{"node":"node-a"}}`), ""},
		"opaque":                   {"0123456789abcdef.x", ""},
		"padded":                   {strings.Replace(bound, ".c2ln", "==.c2ln", 1), ""},
		"none":                     {"", ""},
	} {
		if got := nodeClaim(tt.token); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func FuzzNodeClaim(f *testing.F) {
	f.Add(jwt(`{"kubernetes.io":{"node":{"name":"node-a"}}}`))
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, token string) {
		if name := nodeClaim(token); name != "" && strings.Count(token, ".") != 2 {
			t.Errorf("%q of what is no JWT: %q", name, token)
		}
	})
}
