// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ErrNoKubeconfig says that the file is not there: it may be in a moment, when the
// installation has written it.
var ErrNoKubeconfig = errors.New("kubeconfig not found")

// Config reads the kubeconfig at path. Calls carry userAgent and are not limited in
// rate: a process makes few, and the API server's own priority and fairness knows
// better. It makes no call. The error never quotes the file, which holds a secret.
func Config(path, userAgent string) (*rest.Config, error) {
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s", ErrNoKubeconfig, path)
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, fmt.Errorf("kubeconfig %s: it is empty", path)
	}
	file, err := clientcmd.Load(raw)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: it is no kubeconfig, or cut short", path)
	}
	for _, c := range file.Clusters { // relative to the file, as kubectl reads them
		c.LocationOfOrigin = path
	}
	for _, a := range file.AuthInfos {
		a.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("kubeconfig %s: it names no cluster", path)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %s", path, Redact(err.Error()))
	}
	cfg.UserAgent, cfg.QPS = userAgent, -1
	return cfg, nil
}

var userinfo = regexp.MustCompile(`://[^/\s"'@]*@`)

// Redact returns text without the user and password of URLs in it.
func Redact(text string) string { return userinfo.ReplaceAllString(text, "://***@") }

// token returns the bearer token that cfg authenticates with; "" if it uses another
// kind of credential.
func token(cfg *rest.Config) (string, error) {
	if cfg.BearerTokenFile == "" {
		return cfg.BearerToken, nil
	}
	raw, err := os.ReadFile(cfg.BearerTokenFile)
	if err != nil {
		return "", fmt.Errorf("token of the kubeconfig: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}
