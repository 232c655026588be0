// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// The sizes that the CRDs allow, see the markers of the types: an API server refuses
// more, and so does Validate.
const (
	maxSelector     = 4096 // characters
	maxDuration     = 64
	maxNodeUID      = 128
	maxSequence     = 20
	maxReserved     = 4096 // items
	maxHostRoutes   = 4096
	maxNumberDigits = 18 // of a number in a selector; each of that length fits 64 bits
)

func tooLong(field, text string, most int) error {
	if n := utf8.RuneCountInString(text); n > most {
		return fmt.Errorf("spec.%s: has %d characters; at most %d are read", field, n, most)
	}
	return nil
}

func tooMany(field string, n, most int) error {
	if n > most {
		return fmt.Errorf("spec.%s: has %d entries; at most %d are read", field, n, most)
	}
	return nil
}

// selectorLimits checks what a parser of selectors does not. What does not parse is
// refused elsewhere.
func selectorLimits(field string, s Selector) error {
	if err := tooLong(field, string(s), maxSelector); err != nil {
		return err
	}
	parsed, err := labels.ParseToRequirements(string(s))
	if err != nil {
		return nil
	}
	var errs []error
	for _, r := range parsed {
		if op := r.Operator(); op != selection.GreaterThan && op != selection.LessThan {
			continue
		}
		for number := range r.Values() {
			if len(number) > maxNumberDigits {
				errs = append(errs, fmt.Errorf("spec.%s: not a label selector; %s has more than %d digits", field, number, maxNumberDigits))
			}
		}
	}
	return errors.Join(errs...)
}
