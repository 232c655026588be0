// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// Server is a running API server with its etcd. Its methods may be called from
// several goroutines.
type Server struct {
	dir        string
	url        string
	ca         []byte
	adminToken string
	etcd       *process
	binary     string   // of the API server
	args       []string // and what it is started with

	mu  sync.Mutex // guards api
	api *process
}

const (
	startTimeout = 2 * time.Minute // a start takes 4 s; CI's machine may be busy
	startTries   = 5               // a free port may be taken by another process before it is used
)

// Start runs etcd and kube-apiserver with their data and logs in dir, which must
// exist, and returns when the API server is ready. Each server has ports of its
// own. The caller stops it; a test that is killed takes it along.
func Start(ctx context.Context, dir string) (*Server, error) {
	etcd, err := program("ETCD", "etcd")
	if err != nil {
		return nil, err
	}
	api, err := program("KUBE_APISERVER", "kube-apiserver")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for try := 1; ; try++ {
		run, err := os.MkdirTemp(dir, "apiserver-")
		if err != nil {
			return nil, err
		}
		s := &Server{dir: run, adminToken: rand.Text()}
		if err = s.start(ctx, etcd, api); err == nil {
			return s, nil
		}
		taken := s.etcd.portTaken() || s.process().portTaken()
		s.Stop()
		if !taken || try == startTries {
			return nil, fmt.Errorf("start an API server in %s: %w", run, err)
		}
	}
}

// program returns the path that the Makefile put into the environment.
func program(variable, target string) (string, error) {
	path := os.Getenv(variable)
	if path == "" {
		return "", fmt.Errorf("%s is not set to a built %s: run `make test-kube`, or build it with `make etcd kube-apiserver` and set it", variable, target)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s: %w: run `make etcd kube-apiserver`", variable, err)
	}
	return path, nil
}

func (s *Server) start(ctx context.Context, etcd, api string) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	client, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	s.url = "https://127.0.0.1:" + ports[2]
	if err := s.writeSecrets(); err != nil {
		return err
	}
	s.etcd, err = launch(s.dir, etcd, "--name=test", "--data-dir="+s.path("etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=test="+peer,
		"--unsafe-no-fsync", "--log-level=warn")
	if err != nil {
		return err
	}
	s.binary, s.args = api, []string{
		"--etcd-servers=" + client,
		"--bind-address=127.0.0.1", "--secure-port=" + ports[2], "--cert-dir=" + s.path("certs"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.path("sa.key"), "--service-account-signing-key-file=" + s.path("sa.key"),
		"--token-auth-file=" + s.path("tokens.csv"), "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", "--service-cluster-ip-range=10.96.0.0/16",
		"--endpoint-reconciler-type=none", "--profiling=false",
	}
	if err := s.launchAPI(); err != nil {
		return err
	}
	return s.waitReady(ctx)
}

func (s *Server) launchAPI() error {
	p, err := launch(s.dir, s.binary, s.args...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.api = p
	return nil
}

// process returns the API server that runs, or ran last.
func (s *Server) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.api
}

// Kill ends the API server at once, as a power cut would; etcd and its data stay.
func (s *Server) Kill() { s.process().kill() }

// Restart starts the API server again after Kill, at the same address with the same
// certificate and tokens, and returns when it is ready.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := s.launchAPI()
		if err == nil {
			err = s.waitReady(ctx)
		}
		if err == nil || ctx.Err() != nil || !s.process().portTaken() {
			return err
		}
	}
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// writeSecrets writes the administrator's token and the key of service accounts.
// The API server makes its certificate itself.
func (s *Server) writeSecrets() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return errors.Join(
		os.WriteFile(s.path("sa.key"), text, 0o600),
		os.WriteFile(s.path("tokens.csv"), fmt.Appendf(nil, "%s,admin,admin,system:masters\n", s.adminToken), 0o600))
}

// waitReady waits until /readyz is ok, which includes the bootstrap RBAC roles, and
// the namespaces that every cluster has are there.
func (s *Server) waitReady(ctx context.Context) error {
	last := errors.New("it has not answered")
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, p := range []*process{s.etcd, s.process()} {
			if err := p.ended(); err != nil {
				return false, err
			}
		}
		last = s.probe(ctx)
		return last == nil, nil
	})
	if ctx.Err() != nil {
		return fmt.Errorf("%s is not ready: %w (%w): %s", s.url, err, last, s.process().lastLines(15))
	}
	return err
}

func (s *Server) probe(ctx context.Context) error {
	if s.ca == nil { // a restart keeps it, while others read it
		ca, err := os.ReadFile(s.path("certs/apiserver.crt"))
		if err != nil {
			return err
		}
		s.ca = ca
	}
	client, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		return err
	}
	var code int
	if err := client.RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&code).Error(); err != nil {
		return err
	}
	if code != http.StatusOK {
		return fmt.Errorf("/readyz answers %d", code)
	}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		if _, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends both programs at once and waits for their end. Their files stay for
// whoever owns the folder.
func (s *Server) Stop() {
	s.process().kill()
	s.etcd.kill()
}

// CPUTime returns the processor time that the API server has used until now,
// without etcd's. It is exact to 10 ms.
func (s *Server) CPUTime() (time.Duration, error) { return s.process().cpuTime() }

// LogFile is the path of what the API server wrote to standard error.
func (s *Server) LogFile() string { return s.process().log }
