// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UnmarshalJSON reads conditions as [DecodeCondition] does.
func (s *IPPoolStatus) UnmarshalJSON(data []byte) error {
	type plain IPPoolStatus // without this method
	var out struct {
		plain      `json:",inline"`
		Conditions []json.RawMessage `json:"conditions"`
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return err
	}
	*s = IPPoolStatus(out.plain)
	for _, raw := range out.Conditions {
		c, err := DecodeCondition(raw)
		if err != nil {
			return err
		}
		s.Conditions = append(s.Conditions, c)
	}
	return nil
}

// DecodeCondition reads a condition, also with a time that API servers take and
// [metav1.Time] does not: "2026-12-01t10:00:00z". One in another form still is no time;
// a pool does not become unreadable by it.
func DecodeCondition(raw []byte) (metav1.Condition, error) {
	var c struct {
		metav1.Condition   `json:",inline"`
		LastTransitionTime json.RawMessage `json:"lastTransitionTime"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return metav1.Condition{}, err
	}
	var at metav1.Time
	if len(c.LastTransitionTime) > 0 && at.UnmarshalJSON(bytes.ToUpper(c.LastTransitionTime)) == nil {
		c.Condition.LastTransitionTime = at
	}
	return c.Condition, nil
}
