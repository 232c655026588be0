// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/allod/allod/cni/agentapi"
)

// strictness says what becomes of a field that cannot be understood.
type strictness int

const (
	// strict refuses the configuration and names every such field.
	strict strictness = iota
	// lenient leaves the field at its default: DEL and GC give back what an ADD
	// took, and nothing that went wrong in the file since may stop that (INV-10),
	// unless it decides where that is: an unreadable datastore is refused, and for a
	// GC an unreadable node name. Absent is not unreadable.
	lenient
)

// netconf is the top level. Only what Allod uses is decoded, and raw where another
// plugin is the judge of it.
type netconf struct {
	CNIVersion       string          `json:"cniVersion"`
	Name             string          `json:"name"`
	Type             string          `json:"type"`
	IPAM             json.RawMessage `json:"ipam"`
	RuntimeConfig    json.RawMessage `json:"runtimeConfig"`
	IsGateway        json.RawMessage `json:"isGateway"`
	IsDefaultGateway json.RawMessage `json:"isDefaultGateway"`
}

// parseConf decodes stdin. Its errors are *agentapi.Error.
func parseConf(stdin []byte, how strictness) (Conf, error) {
	var n netconf
	if err := json.Unmarshal(stdin, &n); err != nil {
		return Conf{}, &agentapi.Error{Code: agentapi.CodeUndecodable, Msg: "network configuration", Details: jsonError(err)}
	}
	c := Conf{
		CNIVersion: n.CNIVersion,
		Name:       n.Name,
		Type:       n.Type,
		Families:   []Family{IPv4},
		Mask:       MaskPool,
		Socket:     DefaultSocket,
		LockFile:   DefaultLockFile,
		Datastore:  Datastore{Path: DefaultDatastorePath, Kubeconfig: DefaultKubeconfig},
		Raw:        stdin,
	}
	c.NeedGateway = n.Type == "ptp" || n.Type == "bridge" && (isTrue(n.IsGateway) || isTrue(n.IsDefaultGateway))

	err := errors.Join(c.parseIPAM(n.IPAM), c.parseRuntime(n.RuntimeConfig))
	if err != nil && how == strict {
		return Conf{}, badConf(err)
	}
	if c.badStore != nil {
		return Conf{}, badConf(fmt.Errorf("%w; nothing was released: it would be in another store", c.badStore))
	}
	return c, nil
}

func badConf(err error) *agentapi.Error {
	return &agentapi.Error{
		Code:    agentapi.CodeBadConfig,
		Msg:     "network configuration",
		Details: strings.ReplaceAll(err.Error(), "\n", "; "),
	}
}

// noting is set that also keeps its error in *e.
func noting(e *error, set setter) setter {
	return func(name string, raw json.RawMessage) error {
		*e = set(name, raw)
		return *e
	}
}

// parseIPAM fills in the fields of the ipam object. A field that is in error keeps
// its default; the error names all of them.
func (c *Conf) parseIPAM(raw json.RawMessage) error {
	if isNull(raw) {
		return errors.New("ipam: missing")
	}
	var ipamType string // checked, and then of no more use
	return object("ipam", raw, fields{
		"type":        value(&ipamType, ipamTypeOf),
		"families":    value(&c.Families, families),
		"ipv4Pools":   value(&c.IPv4Pools, pools(IPv4)),
		"ipv6Pools":   value(&c.IPv6Pools, pools(IPv6)),
		"mask":        value(&c.Mask, oneOf(MaskPool, MaskBlock, MaskHost)),
		"routes":      value(&c.Routes, routes),
		"dns":         c.DNS.parse,
		"socket":      value(&c.Socket, socketPath),
		"agentBinary": value(&c.AgentBinary, absolutePath),
		"nodeName":    noting(&c.badNode, value(&c.NodeName, nodeName)),
		"lockFile":    value(&c.LockFile, absolutePath),
		"datastore":   noting(&c.badStore, c.Datastore.parse),
	}, "type")
}

// parseRuntime reads what the runtime passes for the capability "ips". Its other
// keys are other plugins'.
func (c *Conf) parseRuntime(raw json.RawMessage) error {
	if isNull(raw) {
		return nil
	}
	var rt struct {
		IPs json.RawMessage `json:"ips"`
	}
	if err := json.Unmarshal(raw, &rt); err != nil {
		return fmt.Errorf("runtimeConfig: %s", jsonError(err))
	}
	if isNull(rt.IPs) {
		return nil
	}
	return value(&c.static, staticAddresses)("runtimeConfig.ips", rt.IPs)
}

// parse fills in the datastore object. A place without a type says the type, too.
func (d *Datastore) parse(name string, raw json.RawMessage) error {
	var path, kubeconfig string
	err := object(name, raw, fields{
		"type":       value(&d.Type, oneOf(StoreBolt, StoreKubernetes)),
		"path":       value(&path, absolutePath),
		"kubeconfig": value(&kubeconfig, absolutePath),
	})
	if d.Type == StoreUnset && (path == "") != (kubeconfig == "") {
		if d.Type = StoreBolt; path == "" {
			d.Type = StoreKubernetes
		}
	}
	d.Path, d.Kubeconfig = cmp.Or(path, d.Path), cmp.Or(kubeconfig, d.Kubeconfig)
	return err
}

// parse fills in the dns object.
func (d *DNS) parse(name string, raw json.RawMessage) error {
	return object(name, raw, fields{
		"nameservers": value(&d.Nameservers, nameservers),
		"domain":      value(&d.Domain, word),
		"search":      value(&d.Search, words),
		"options":     value(&d.Options, words),
	})
}

// setter decodes the raw value of the field called name, checks it and stores it.
// On an error it stores nothing, and the error starts with the name.
type setter func(name string, raw json.RawMessage) error

// fields is what an object may contain.
type fields map[string]setter

// object sets the fields of one JSON object. null is an absent field. All errors
// are joined.
func object(name string, raw json.RawMessage, known fields, required ...string) error {
	var got map[string]json.RawMessage
	if err := json.Unmarshal(raw, &got); err != nil {
		return fmt.Errorf("%s: %s", name, jsonError(err))
	}
	var errs []error
	for _, key := range required {
		if isNull(got[key]) {
			errs = append(errs, fmt.Errorf("%s.%s: missing", name, key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		set, ok := known[key]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%s.%s: unknown field (known: %s)",
				name, strings.Trim(short(key), `"`), strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
		case isNull(got[key]):
		default:
			errs = append(errs, set(name+"."+key, got[key]))
		}
	}
	return errors.Join(errs...)
}

// value is the setter of a field whose JSON has the shape of J and becomes the T
// that check makes of it.
func value[J, T any](dst *T, check func(J) (T, error)) setter {
	return func(name string, raw json.RawMessage) error {
		var j J
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&j); err != nil {
			return fmt.Errorf("%s: %s", name, jsonError(err))
		}
		v, err := check(j)
		if err != nil {
			return fmt.Errorf("%s%w", name, err)
		}
		*dst = v
		return nil
	}
}

func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || string(bytes.TrimSpace(raw)) == "null"
}

func isTrue(raw json.RawMessage) bool {
	var b bool
	return json.Unmarshal(raw, &b) == nil && b
}

// jsonError says what is wrong with a piece of JSON without quoting it.
func jsonError(err error) string {
	t, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	where := ""
	if t.Field != "" {
		where = t.Field + ": "
	}
	return fmt.Sprintf("%sis a JSON %s, want %s", where, t.Value, kindName(t.Type.Kind()))
}
