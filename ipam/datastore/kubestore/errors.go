// SPDX-License-Identifier: Apache-2.0

package kubestore

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

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
	verbPatch  = "patch"
	verbDelete = "delete"
)

// certain are the answers to a write that say it was not applied and will not be.
var certain = []int32{
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
	http.StatusNotAcceptable, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
}

// failed translates what a call ended with. name is "" for LIST and WATCH.
func (t *table[K, V]) failed(verb, name string, err error) error {
	return failed(verb, t.codec.Kind, name, err)
}

func failed(verb, kind, name string, err error) error { return failedSub(verb, kind, name, "", err) }

// failedSub is failed for a call to a subresource, "" for none.
func failedSub(verb, kind, name, subresource string, err error) error {
	if err == nil {
		return nil
	}
	what := strings.TrimSpace(kind + " " + name)
	switch {
	case apierrors.IsUnexpectedServerError(err):
		// Not the API server's own answer, or not about this object: client-go has made
		// it up from the number. A 404 says that the CRD is missing, or that what
		// answered is no API server, and neither proves absence (INV-10).
	case name != "" && verb != verbCreate && apierrors.IsNotFound(err):
		return fmt.Errorf("%s: %w", what, datastore.ErrNotFound)
	case verb == verbCreate && apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s: %w", what, datastore.ErrExists)
	case (verb == verbUpdate || verb == verbPatch || verb == verbDelete) && apierrors.IsConflict(err):
		return fmt.Errorf("%s: %w", what, datastore.ErrConflict)
	}
	resource := v1alpha1.Resource(kind).Resource
	if subresource != "" {
		resource += "/" + subresource
	}
	out := fmt.Errorf("%s %s: %w%s", verb, what, err, advice(verb, resource, err))
	if verb != verbGet && verb != verbList && verb != verbWatch && isCertain(err) {
		return datastore.Refused(out)
	}
	return out
}

func isCertain(err error) bool {
	var s apierrors.APIStatus // no error itself: errors.AsType does not take it
	return errors.As(err, &s) && slices.Contains(certain, s.Status().Code)
}

// advice says what to do about an error that an operator can do something about.
func advice(verb, resource string, err error) string {
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot "+verb+" resource"):
		return fmt.Sprintf("; RBAC is missing: a ClusterRole bound to this account needs the verb %s on %s in group %s",
			verb, resource, v1alpha1.Group)
	case apierrors.IsUnauthorized(err):
		return "; the credential is unknown or has expired: renew the token in the kubeconfig"
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("; the API server does not serve %s of %s: install manifests/crds, and check the server's address",
			resource, v1alpha1.APIVersion)
	}
	return ""
}
