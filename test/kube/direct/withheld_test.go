// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/allod/allod/test/fixture"
)

// withhold takes one right from the nodes' role and returns when the API server
// acts on it. give brings the role back.
func (n *node) withhold(r right) (give func()) {
	n.t.Helper()
	role := clusterRole(n.t, rbacFile())
	for i, rule := range role.Rules {
		if !grants(rule.APIGroups, r.group) || !grants(rule.Resources, r.resource) {
			continue
		}
		less := rule
		less.Resources = without(rule.Resources, r.resource)
		only := rule
		only.Resources, only.Verbs = []string{r.resource}, without(rule.Verbs, r.verb)
		role.Rules[i] = less
		if len(less.Resources) == 0 {
			role.Rules[i] = only
		} else if len(only.Verbs) > 0 {
			role.Rules = append(role.Rules, only)
		}
		break
	}
	kept := role.Rules[:0]
	for _, rule := range role.Rules {
		if len(rule.Verbs) > 0 {
			kept = append(kept, rule)
		}
	}
	role.Rules = kept
	_, err := n.c.core.RbacV1().ClusterRoles().Update(n.t.Context(), role, metav1.UpdateOptions{})
	must(n.t, err)
	n.awaitRight(r, false)
	return func() {
		n.t.Helper()
		must(n.t, n.c.server.ApplyFile(n.t.Context(), rbacFile()))
		n.awaitRight(r, true)
	}
}

func grants(list []string, s string) bool { return len(without(list, s)) < len(list) }

func without(list []string, s string) []string {
	var out []string
	for _, l := range list {
		if l != s {
			out = append(out, l)
		}
	}
	return out
}

// awaitRight waits until the API server says of the nodes' account what is said here.
func (n *node) awaitRight(r right, has bool) {
	n.t.Helper()
	client, err := kubernetes.NewForConfig(n.c.server.ConfigFor(n.token()))
	must(n.t, err)
	err = wait.PollUntilContextTimeout(n.t.Context(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		got, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: r.verb, Group: r.group, Resource: r.resource,
			}},
		}, metav1.CreateOptions{})
		return err == nil && got.Status.Allowed == has, err
	})
	if err != nil {
		n.t.Fatalf("%s: the API server does not say %v: %v", r, has, err)
	}
}

// Case C6: whatever right is missing, STATUS says which, and so does the call that
// needed it. What it had begun is undone, as far as the account may; when the right is
// there again everything works, and nothing has leaked.
func TestWithheldRights(t *testing.T) {
	t.Cleanup(func() { must(t, shared.ApplyFile(context.Background(), rbacFile())) })
	for _, r := range rightsOf(t, rbacFile()) {
		t.Run(r.String(), func(t *testing.T) {
			c := newCluster(t)
			c.pools(poolManifest("v4", "cidr: 10.0.0.0/29, blockSize: 30"))
			n := c.node("node-a", nil)
			n.log.mayLack = true
			s, warm := c.pod("a", nil), c.pod("warm", nil)
			lacks := fmt.Sprintf("%s on %s", r.verb, r.resource)
			give := n.withhold(r)
			n.refused("STATUS", n.conf(nil, nil), fixture.Sandbox{}, 50, lacks)
			n.log.take(t)
			refused := 0
			for _, step := range []struct {
				verb string
				s    fixture.Sandbox
			}{{"ADD", s}, {"ADD", warm}, {"DEL", warm}, {"DEL", s}} {
				refused += n.okOrLacks(step.verb, step.s, lacks)
			}
			if forbidden := answered(n.log.take(t), http.StatusForbidden); (forbidden > 0) != (refused > 0) {
				t.Errorf("%d calls were forbidden, and %d requests say so", forbidden, refused)
			}
			give()
			n.ok("STATUS", n.conf(nil, nil), fixture.Sandbox{})
			for _, s := range []fixture.Sandbox{s, warm} {
				n.ok("DEL", n.conf(nil, nil), s)
			}
			c.counts(0)
			n.add(n.conf(nil, nil), s)
			n.ok("DEL", n.conf(nil, nil), s)
			c.counts(0)
			c.settled()
		})
	}
}

// okOrLacks executes a verb that succeeds, or else says what it lacks, and returns how
// often it was refused. An ADD that is leaves the pod without an address.
func (n *node) okOrLacks(verb string, s fixture.Sandbox, lacks string) (refused int) {
	n.t.Helper()
	a := n.call(verb, n.conf(nil, nil), s)
	if a.Err() == nil {
		return 0
	}
	var e *types.Error
	if !errors.As(a.Err(), &e) || e.Code != 11 || !strings.Contains(e.Msg+e.Details, lacks) {
		n.t.Errorf("%s %s: %v; want code 11 and %q", verb, s.Pod, a.Err(), lacks)
	}
	if verb == "ADD" {
		for addr, id := range n.c.held() {
			if id == s.ContainerID {
				n.t.Errorf("a refused ADD left %s", addr)
			}
		}
	}
	return 1
}
