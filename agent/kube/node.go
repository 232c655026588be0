// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"k8s.io/client-go/rest"
)

// BoundNode returns the node that the credential of cfg is bound to; "" when it is
// bound to none, as a token of the administrator is.
func BoundNode(cfg *rest.Config) (string, error) {
	t, err := token(cfg)
	if err != nil {
		return "", err
	}
	return nodeClaim(t), nil
}

// nodeClaim reads the private claim kubernetes.io/node of a service account token,
// which TokenRequest sets for a token that is bound to a Node, or to a Pod that runs
// on one (KEP-4193). The signature is not looked at: the token is our own, and the
// API server judges it at every call. "" for anything but such a token.
func nodeClaim(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Kubernetes struct {
			Node struct {
				Name string `json:"name"`
			} `json:"node"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return ""
	}
	return claims.Kubernetes.Node.Name
}
