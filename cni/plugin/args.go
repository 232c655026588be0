// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/allod/allod/cni/agentapi"
)

// cniArgs is what CNI_ARGS tells us.
type cniArgs struct {
	pod    agentapi.Pod
	static []netip.Addr // IP
}

// parseArgs decodes CNI_ARGS: pairs "key=value" joined by ";". By convention a key
// nobody knows is an error unless IgnoreUnknown is set, which every Kubernetes
// runtime does. Its errors are *agentapi.Error. lenient keeps what can be read.
func parseArgs(s string, how strictness) (cniArgs, error) {
	var (
		a             cniArgs
		errs          []error
		unknown       []string
		ignoreUnknown bool
	)
	for pair := range strings.SplitSeq(s, ";") {
		if strings.TrimSpace(pair) == "" {
			continue // none at all, or a ";" at an end
		}
		key, val, found := strings.Cut(pair, "=")
		if !found {
			errs = append(errs, fmt.Errorf("%s: want key=value", short(pair)))
			continue
		}
		var err error
		switch key {
		case "K8S_POD_NAMESPACE":
			err = setToken(&a.pod.Namespace, val)
		case "K8S_POD_NAME":
			err = setToken(&a.pod.Name, val)
		case "K8S_POD_UID":
			err = setToken(&a.pod.UID, val)
		case "K8S_POD_INFRA_CONTAINER_ID":
			// Says again what CNI_CONTAINERID says.
		case "IP":
			err = setStatic(&a.static, val)
		case "IgnoreUnknown":
			ignoreUnknown, err = parseBool(val)
		default:
			unknown = append(unknown, short(key))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	if len(unknown) > 0 && !ignoreUnknown {
		errs = append(errs, fmt.Errorf("unknown %s (IgnoreUnknown=1 ignores such)", strings.Join(unknown, ", ")))
	}
	if err := errors.Join(errs...); err != nil && how == strict {
		return cniArgs{}, &agentapi.Error{
			Code:    agentapi.CodeBadEnvironment,
			Msg:     "CNI_ARGS",
			Details: strings.ReplaceAll(err.Error(), "\n", "; "),
		}
	}
	return a, nil
}

// setToken stores a name or UID. Runtimes other than Kubernetes put their own
// names there, so the letters are those of a container ID. Empty is absent.
func setToken(dst *string, s string) error {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
	if len(s) > 253 || strings.Trim(s, letters) != "" {
		return fmt.Errorf("%s is not a name (letters, digits, '.', '-', '_', at most 253)", short(s))
	}
	*dst = s
	return nil
}

func setStatic(dst *[]netip.Addr, s string) error {
	if s == "" {
		return nil
	}
	if len(*dst) > 0 {
		return errors.New("is there twice; join the addresses with commas")
	}
	as, err := staticAddresses(strings.Split(s, ","))
	if err != nil {
		return err
	}
	*dst = as
	return nil
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	}
	return false, fmt.Errorf("%s, want 1, true, 0 or false", short(s))
}
