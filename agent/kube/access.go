// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// Missing asks the API server, in one call, what the account of cfg may do
// (SelfSubjectRulesReview), and returns what of need it may not. An API server that
// cannot list all rules of the account (an authorizer besides RBAC decides as well)
// proves nothing: then nothing is missing.
func Missing(ctx context.Context, cfg *rest.Config, need []Access) ([]Access, error) {
	client, err := authorization.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of the API server %s: %w", cfg.Host, err)
	}
	review, err := client.SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: metav1.NamespaceDefault},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask the API server %s what this account may do: %w", cfg.Host, err)
	}
	return missing(review.Status, need), nil
}

func missing(s authorizationv1.SubjectRulesReviewStatus, need []Access) []Access {
	if s.Incomplete {
		return nil
	}
	var out []Access
	for _, n := range need {
		lacks := Access{Group: n.Group, Resource: n.Resource}
		for _, verb := range n.Verbs {
			if !slices.ContainsFunc(s.ResourceRules, func(r authorizationv1.ResourceRule) bool {
				return len(r.ResourceNames) == 0 && has(r.Verbs, verb) && has(r.APIGroups, n.Group) && has(r.Resources, n.Resource)
			}) {
				lacks.Verbs = append(lacks.Verbs, verb)
			}
		}
		if len(lacks.Verbs) > 0 {
			out = append(out, lacks)
		}
	}
	return out
}

func has(list []string, s string) bool { return slices.Contains(list, s) || slices.Contains(list, "*") }
