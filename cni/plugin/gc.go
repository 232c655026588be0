// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/utils"

	"github.com/allod/allod/cni/agentapi"
)

// gcKeys are the names that the list of valid attachments has had in the CNI
// specification and its library. A runtime sends either or both.
func gcKeys() []string { return []string{"cni.dev/valid-attachments", "cni.dev/attachments"} }

// gcRequest makes the request of a GC: what either key names is valid. Everything
// else on this node is released, so whatever could mean "unknown" refuses the
// whole request (INV-2): no key, null, an entry that names no attachment.
func gcRequest(c Conf) (agentapi.GCRequest, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(c.Raw, &top); err != nil {
		return agentapi.GCRequest{}, &agentapi.Error{Code: agentapi.CodeUndecodable, Msg: "network configuration", Details: jsonError(err)}
	}
	r := agentapi.GCRequest{Network: c.Name}
	seen := map[agentapi.Attachment]bool{}
	for _, key := range gcKeys() {
		raw, ok := top[key]
		if !ok {
			continue
		}
		list, err := gcList(c.Name, raw)
		if err != nil {
			return agentapi.GCRequest{}, &agentapi.Error{Code: agentapi.CodeBadConfig, Msg: "network configuration", Details: key + err.Error()}
		}
		if r.Valid == nil {
			r.Valid = []agentapi.Attachment{}
		}
		for _, a := range list {
			if !seen[a] {
				seen[a] = true
				r.Valid = append(r.Valid, a)
			}
		}
	}
	if r.Valid == nil {
		return agentapi.GCRequest{}, &agentapi.Error{
			Code:    agentapi.CodeBadConfig,
			Msg:     "network configuration",
			Details: gcKeys()[0] + ": missing; where nothing is valid it is an empty list",
		}
	}
	return r, nil
}

// gcList decodes one list. Its errors continue the key's name.
func gcList(network string, raw json.RawMessage) ([]agentapi.Attachment, error) {
	if isNull(raw) {
		return nil, errors.New(": null; where nothing is valid it is an empty list")
	}
	var entries []struct {
		ContainerID string `json:"containerID"`
		IfName      string `json:"ifname"`
	}
	if err := json.Unmarshal(raw, &entries); err != nil {
		return nil, fmt.Errorf(": %s", jsonError(err))
	}
	var list []agentapi.Attachment
	for i, e := range entries {
		if err := utils.ValidateContainerID(e.ContainerID); err != nil {
			return nil, fmt.Errorf("[%d].containerID: %w", i, err)
		}
		if err := utils.ValidateInterfaceName(e.IfName); err != nil {
			return nil, fmt.Errorf("[%d].ifname: %w", i, err)
		}
		list = append(list, agentapi.Attachment{Network: network, ContainerID: e.ContainerID, IfName: e.IfName})
	}
	return list, nil
}
