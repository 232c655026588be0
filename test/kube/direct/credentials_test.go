// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/allod/allod/test/fixture"
)

// editKubeconfig changes what the installation wrote.
func (n *node) editKubeconfig(edit func(c *api.Config, user *api.AuthInfo)) {
	n.t.Helper()
	c, err := clientcmd.LoadFromFile(n.kubeconfig)
	must(n.t, err)
	for _, user := range c.AuthInfos {
		edit(c, user)
	}
	must(n.t, clientcmd.WriteToFile(*c, n.kubeconfig))
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// eachVerb wants every verb refused: STATUS with 50, the others with 11, and with a
// message that holds words and none of secrets.
func (n *node) eachVerb(s fixture.Sandbox, secrets []string, words ...string) {
	n.t.Helper()
	top := object{
		"prevResult":                object{"cniVersion": "1.1.0", "ips": []object{{"address": "10.1.0.1/24"}}},
		"cni.dev/valid-attachments": []object{},
	}
	for _, verb := range []string{"ADD", "CHECK", "DEL", "GC", "STATUS"} {
		code := uint(11)
		if verb == "STATUS" {
			code = 50
		}
		a := n.call(verb, n.conf(nil, top), s)
		wantRefusal(n.t, verb, a, code, words...)
		for _, secret := range secrets {
			if strings.Contains(string(a.Stdout)+string(a.Stderr), secret) {
				n.t.Errorf("%s repeats %q of the kubeconfig:\n%s\n%s", verb, secret, a.Stdout, a.Stderr)
			}
		}
	}
}

// A kubeconfig that is missing, or that no client can be made from, is an error that
// names the file, to be tried again, and never repeats what is in it.
func TestUnusableKubeconfig(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.1.0.0/24"))
	n := c.node("node-a", nil)
	whole, err := os.ReadFile(n.kubeconfig)
	must(t, err)
	token := n.token()
	secrets := []string{"hunter2", token[:20], strings.Split(token, ".")[2]}
	text := strings.Replace(string(whole), "token: ", "token: hunter2", 1)
	for name, content := range map[string]string{
		"empty":            "",
		"blank":            " \n\n",
		"no YAML":          "{{hunter2",
		"a list":           "[hunter2]",
		"a secret alone":   "hunter2",
		"cut short":        text[:strings.Index(text, "hunter2")-len("tok")],
		"no cluster":       "apiVersion: v1\nkind: Config\nusers: [{name: test, user: {token: hunter2}}]\ncurrent-context: test\n",
		"of another kind":  "apiVersion: v1\nkind: Secret\nstringData: {token: hunter2}\n",
		"garbled in parts": strings.ReplaceAll(text, "certificate-authority-data: ", "certificate-authority-data: %"),
	} {
		t.Run(name, func(t *testing.T) {
			writeFile(t, n.kubeconfig, content)
			n.in(t).eachVerb(c.in(t).pod("web-"+fixture.Digest(name)[:8], nil), secrets, n.kubeconfig)
		})
	}
	t.Run("missing", func(t *testing.T) {
		must(t, os.Remove(n.kubeconfig))
		n.in(t).eachVerb(c.in(t).pod("web-missing", nil), nil, n.kubeconfig, "not found", "ipam.datastore.kubeconfig")
	})
	t.Run("a folder", func(t *testing.T) {
		must(t, os.Mkdir(n.kubeconfig, 0o700))
		n.in(t).eachVerb(c.in(t).pod("web-folder", nil), nil, n.kubeconfig)
		must(t, os.Remove(n.kubeconfig))
	})
	if calls := n.log.all(t); len(calls) != 0 {
		t.Errorf("calls %v; want none", calls)
	}
	writeFile(t, n.kubeconfig, string(whole))
	n.add(n.conf(nil, nil), c.pod("web-whole", nil))
}

// A credential that the API server does not take is told from a right that is missing.
func TestUnusableToken(t *testing.T) {
	c := newCluster(t)
	c.pools(poolManifest("v4", "cidr: 10.1.0.0/24"))
	n := c.node("node-a", nil)
	s := c.pod("web-0", nil)
	good := n.token()
	parts := strings.Split(good, ".")
	for name, token := range map[string]string{
		"expired":                     n.expired(good),
		"signed by somebody else":     parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 64)),
		"of a node that is not there": c.tokenOfGoneNode("node-gone"),
	} {
		t.Run(name, func(t *testing.T) {
			n := n.in(t)
			must(t, c.server.Kubeconfig(n.kubeconfig, token))
			n.eachVerb(s, []string{token}, "expired", "renew")
		})
	}
	if held := c.held(); len(held) != 0 {
		t.Errorf("allocated without a credential: %v", held)
	}
	must(t, c.server.Kubeconfig(n.kubeconfig, good))
	n.add(n.conf(nil, nil), s)
}

// expired is the token of an hour ago, which nobody could tell from a renewed one but
// by its time.
func (n *node) expired(token string) string {
	n.t.Helper()
	parts := strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(n.t, err)
	var claims object
	must(n.t, unmarshalNumbers(payload, &claims))
	then := time.Now().Add(-time.Hour).Unix()
	claims["exp"], claims["iat"], claims["nbf"] = then, then-3600, then-3600
	text := parts[0] + "." + base64.RawURLEncoding.EncodeToString(mustJSON(n.t, claims))

	// The key that the API server signs with lies beside its log.
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(n.c.server.LogFile()), "sa.key"))
	must(n.t, err)
	der, _ := pem.Decode(raw)
	key, err := x509.ParseECPrivateKey(der.Bytes)
	must(n.t, err)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	must(n.t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// tokenOfGoneNode is a token bound to a Node that has been deleted since.
func (c *cluster) tokenOfGoneNode(name string) string {
	c.t.Helper()
	token := c.node(name, nil).token()
	must(c.t, c.core.CoreV1().Nodes().Delete(c.t.Context(), name, metav1.DeleteOptions{}))
	return token
}
