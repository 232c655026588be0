// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/allod/allod/ipam/datastore"
	"github.com/allod/allod/ipam/datastore/v1alpha1"
)

// The verbs of RBAC.
const (
	verbGet    = "get"
	verbList   = "list"
	verbWatch  = "watch"
	verbCreate = "create"
	verbUpdate = "update"
	verbDelete = "delete"
)

// certain are the answers to a write that say it was not applied and will not be.
var certain = []int32{
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
	http.StatusNotAcceptable, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
}

// failed translates what a call ended with. name is "" for LIST and WATCH.
func (t *table[K, V]) failed(verb, name string, err error) error {
	if err == nil {
		return nil
	}
	what := strings.TrimSpace(t.codec.Kind + " " + name)
	switch {
	case name != "" && isMissing(err, t.resource, name):
		return fmt.Errorf("%s: %w", what, datastore.ErrNotFound)
	case verb == verbCreate && apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s: %w", what, datastore.ErrExists)
	case verb == verbUpdate && isGone(err):
		return fmt.Errorf("%s: %w", what, datastore.ErrNotFound)
	case (verb == verbUpdate || verb == verbDelete) && apierrors.IsConflict(err):
		return fmt.Errorf("%s: %w", what, datastore.ErrConflict)
	}
	out := fmt.Errorf("%s %s: %w%s", verb, what, err, t.advice(verb, err))
	if verb != verbGet && verb != verbList && verb != verbWatch && isCertain(err) {
		return datastore.Refused(out)
	}
	return out
}

// isMissing reports whether err says that this object is not there. A 404 without
// the object's name is none: the CRD is missing, or what answered is no API server,
// and neither proves absence (INV-10).
func isMissing(err error, resource, name string) bool {
	s, ok := statusOf(err)
	return ok && s.Reason == metav1.StatusReasonNotFound && s.Details != nil && s.Details.Kind == resource && s.Details.Name == name
}

// isGone reports whether a precondition on the UID failed because no object is
// there: an API server answers an update so. The text is its only sign; without it
// the answer is a conflict like any other, and reading again tells.
func isGone(err error) bool {
	return apierrors.IsConflict(err) && strings.HasSuffix(strings.TrimSpace(err.Error()), "UID in object meta:")
}

func isCertain(err error) bool {
	s, ok := statusOf(err)
	return ok && slices.Contains(certain, s.Code)
}

func statusOf(err error) (metav1.Status, bool) {
	var s apierrors.APIStatus // no error itself: errors.AsType does not take it
	if !errors.As(err, &s) {
		return metav1.Status{}, false
	}
	return s.Status(), true
}

// advice says what to do about an error that an operator can do something about.
func (t *table[K, V]) advice(verb string, err error) string {
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot "+verb+" resource"):
		return fmt.Sprintf("; RBAC is missing: a ClusterRole bound to this account needs the verb %s on %s in group %s",
			verb, t.resource, v1alpha1.Group)
	case apierrors.IsUnauthorized(err):
		return "; the credential is unknown or has expired: renew the token in the kubeconfig"
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("; the API server does not serve %s of %s: install manifests/crds, and check the server's address",
			t.resource, v1alpha1.APIVersion)
	}
	return ""
}
