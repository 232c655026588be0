// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const secret = "s3cr3t-t0ken"

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func kubeconfig(user string) string {
	return `{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"k","cluster":{"server":"https://127.0.0.1:6443"}}],
"contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],
"users":[{"name":"u","user":` + user + `}]}`
}

func TestConfig(t *testing.T) {
	cfg, err := Config(write(t, "kubeconfig", kubeconfig(`{"token":"`+secret+`"}`)), "agent/1")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Host != "https://127.0.0.1:6443" || cfg.BearerToken != secret || cfg.UserAgent != "agent/1" || cfg.QPS != -1 {
		t.Errorf("got %s, %s, QPS %v", cfg.Host, cfg.UserAgent, cfg.QPS)
	}
}

// A token in a file of its own is found beside the kubeconfig.
func TestConfigTokenFile(t *testing.T) {
	path := write(t, "kubeconfig", kubeconfig(`{"tokenFile":"token"}`))
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "token"), []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Config(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := token(cfg); err != nil || got != secret {
		t.Errorf("got %q, %v", got, err)
	}
}

// What is wrong with a kubeconfig is said without what is in it.
func TestConfigErrors(t *testing.T) {
	whole := kubeconfig(`{"token":"` + secret + `"}`)
	for name, text := range map[string]string{
		"empty": "", "garbled": "token: " + secret + "\n\t{", "cut short": whole[:len(whole)-20], "not a kubeconfig": `["` + secret + `"]`,
		"no such context":   strings.Replace(whole, `"current-context":"c"`, `"current-context":"d"`, 1),
		"no server":         strings.Replace(whole, "https://127.0.0.1:6443", "", 1),
		"password in a URL": strings.Replace(whole, `"server":"https://127.0.0.1:6443"`, `"server":"https://h","proxy-url":"ftp://bob:`+secret+`@h"`, 1),
	} {
		path := write(t, "kubeconfig", text)
		_, err := Config(path, "")
		if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v; want an error that names the file and quotes nothing of it", name, err)
		}
	}
	if _, err := Config(filepath.Join(t.TempDir(), "none"), ""); !errors.Is(err, ErrNoKubeconfig) {
		t.Errorf("no file: %v", err)
	}
}
