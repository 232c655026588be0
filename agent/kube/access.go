// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// Access is what a mode does with one resource.
type Access struct {
	Group, Resource string
	Verbs           []string
}

// String is for messages: "get, list on ippools.ipam.allod.io".
func (a Access) String() string {
	name := a.Resource
	if a.Group != "" {
		name += "." + a.Group
	}
	return strings.Join(a.Verbs, ", ") + " on " + name
}

// askAtOnce is how many rights are asked about at the same moment.
const askAtOnce = 4

// Missing asks the API server what the account of cfg may do, and returns what of need
// it may not. One call (SelfSubjectRulesReview) lists the rules of the account. Where an
// authorizer cannot list its rules (Node, a webhook), one more call
// (SelfSubjectAccessReview) for each verb that no rule gives says whether it does.
func Missing(ctx context.Context, cfg *rest.Config, need []Access) ([]Access, error) {
	client, err := authorization.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of the API server %s: %w", Redact(cfg.Host), err)
	}
	review, err := client.SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: metav1.NamespaceDefault},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask the API server %s what this account may do: %w", Redact(cfg.Host), err)
	}
	lacks := lacking(need, func(a Access, verb string) bool { return given(review.Status.ResourceRules, a, verb) })
	if !review.Status.Incomplete || len(lacks) == 0 {
		return lacks, nil
	}
	allowed, err := ask(ctx, client.SelfSubjectAccessReviews(), lacks)
	if err != nil {
		return nil, fmt.Errorf("ask the API server %s what this account may do: %w", Redact(cfg.Host), err)
	}
	return lacking(lacks, func(a Access, verb string) bool { return allowed[right{a.Group, a.Resource, verb}] }), nil
}

// lacking returns what of need may does not grant.
func lacking(need []Access, may func(a Access, verb string) bool) []Access {
	var out []Access
	for _, n := range need {
		lacks := Access{Group: n.Group, Resource: n.Resource}
		for _, verb := range n.Verbs {
			if !may(n, verb) {
				lacks.Verbs = append(lacks.Verbs, verb)
			}
		}
		if len(lacks.Verbs) > 0 {
			out = append(out, lacks)
		}
	}
	return out
}

// given reports whether rules give a verb on all objects of a resource.
func given(rules []authorizationv1.ResourceRule, a Access, verb string) bool {
	return slices.ContainsFunc(rules, func(r authorizationv1.ResourceRule) bool {
		return len(r.ResourceNames) == 0 && has(r.Verbs, verb) && has(r.APIGroups, a.Group) && has(r.Resources, a.Resource)
	})
}

// right is one verb on one resource.
type right struct{ group, resource, verb string }

// ask asks about each verb of what alone.
func ask(ctx context.Context, client authorization.SelfSubjectAccessReviewInterface, what []Access) (map[right]bool, error) {
	var (
		g       errgroup.Group
		mu      sync.Mutex // guards allowed
		allowed = map[right]bool{}
	)
	g.SetLimit(askAtOnce)
	for _, a := range what {
		for _, verb := range a.Verbs {
			g.Go(func() error {
				review, err := client.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{
						ResourceAttributes: &authorizationv1.ResourceAttributes{Group: a.Group, Resource: a.Resource, Verb: verb},
					},
				}, metav1.CreateOptions{})
				if err != nil {
					return fmt.Errorf("%s: %w", Access{a.Group, a.Resource, []string{verb}}, err)
				}
				mu.Lock()
				defer mu.Unlock()
				allowed[right{a.Group, a.Resource, verb}] = review.Status.Allowed
				return nil
			})
		}
	}
	return allowed, g.Wait()
}

func has(list []string, s string) bool { return slices.Contains(list, s) || slices.Contains(list, "*") }
