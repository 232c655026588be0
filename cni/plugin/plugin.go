// SPDX-License-Identifier: Apache-2.0

// Package plugin is the CNI side of Allod: it decodes the network configuration
// and CNI_ARGS, asks a Backend, and prints the result. The small binary allod and
// direct mode (allod-agent cni) run this same code over different backends. It
// decides masks and nothing else about addresses, opens no store, and never logs
// or repeats its input.
package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/allod/allod/cni/agentapi"
)

// How long a verb may take in all. The time spent waiting for other requests of
// the node is in it, so each is a multiple of what the backend allows itself; a
// runtime that gives up earlier kills the process.
const (
	requestTimeout = 90 * time.Second
	statusTimeout  = 10 * time.Second
)

// oldestVersion is the first CNI version whose results we can make.
const oldestVersion = "0.3.1"

// Plugin is one CNI IPAM plugin.
type Plugin struct {
	// Version is the program's, for the about text.
	Version string
	// Backend gives the backend that serves one request under configuration c. It
	// is not called for VERSION. Its error ends the request like a backend's own.
	Backend func(ctx context.Context, c Conf) (agentapi.Backend, error)
}

// Main serves the one request that environment and stdin describe, prints result
// or error to stdout, and returns the exit code. Without CNI_COMMAND it prints the
// about text to stderr.
func (p Plugin) Main(ctx context.Context) int {
	verbs := skel.CNIFuncs{
		Add: func(args *skel.CmdArgs) error {
			res, err := p.add(ctx, args)
			if err != nil {
				return cniError(err)
			}
			return res.Print()
		},
		Check:  func(args *skel.CmdArgs) error { return cniError(p.check(ctx, args)) },
		Del:    func(args *skel.CmdArgs) error { return cniError(p.del(ctx, args)) },
		GC:     func(args *skel.CmdArgs) error { return cniError(p.gc(ctx, args)) },
		Status: func(args *skel.CmdArgs) error { return cniError(statusError(p.status(ctx, args))) },
	}
	e := skel.PluginMainFuncsWithError(verbs, version.VersionsStartingFrom(oldestVersion), p.about())
	if e == nil {
		return 0
	}
	return printError(e)
}

// Refuse prints err to stdout as a CNI error and returns the exit code. It is for
// what ends a plugin before Main can.
func Refuse(err error) int {
	e := agentapi.AsError(err)
	return printError(types.NewError(e.Code, e.Msg, e.Details))
}

func printError(e *types.Error) int {
	if err := e.Print(); err != nil {
		slog.Error("print CNI error", "err", err) // stderr is all that is left
	}
	return 1
}

func (p Plugin) about() string { return "CNI IPAM plugin allod " + p.Version }

// add serves ADD. The result has the configuration's version.
func (p Plugin) add(ctx context.Context, args *skel.CmdArgs) (types.Result, error) {
	c, a, err := parse(args, strict)
	if err != nil {
		return nil, err
	}
	r, err := addRequest(args, c, a)
	if err != nil {
		return nil, err
	}
	var reply agentapi.AddReply
	err = p.with(ctx, c, requestTimeout, func(ctx context.Context, b agentapi.Backend) error {
		var err error
		reply, err = b.Add(ctx, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := answers(r, reply); err != nil {
		return nil, err
	}
	res, err := result(c, reply)
	if err != nil {
		return nil, err
	}
	return res.GetAsVersion(c.CNIVersion)
}

func (p Plugin) check(ctx context.Context, args *skel.CmdArgs) error {
	c, a, err := parse(args, strict)
	if err != nil {
		return err
	}
	r, err := checkRequest(args, c, a)
	if err != nil {
		return err
	}
	return p.with(ctx, c, requestTimeout, func(ctx context.Context, b agentapi.Backend) error { return b.Check(ctx, r) })
}

func (p Plugin) del(ctx context.Context, args *skel.CmdArgs) error {
	c, a, err := parse(args, lenient)
	if err != nil {
		return err
	}
	r := agentapi.DelRequest{Attachment: attachment(args, c), Pod: a.pod}
	return p.with(ctx, c, requestTimeout, func(ctx context.Context, b agentapi.Backend) error { return b.Del(ctx, r) })
}

func (p Plugin) gc(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parseConf(args.StdinData, lenient)
	if err != nil {
		return err
	}
	if c.badNode != nil {
		return badConf(fmt.Errorf("%w; nothing was released: it would be another node's", c.badNode))
	}
	r, err := gcRequest(c)
	if err != nil {
		return err
	}
	return p.with(ctx, c, requestTimeout, func(ctx context.Context, b agentapi.Backend) error { return b.GC(ctx, r) })
}

func (p Plugin) status(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parseConf(args.StdinData, strict)
	if err != nil {
		return err
	}
	return p.with(ctx, c, statusTimeout, func(ctx context.Context, b agentapi.Backend) error {
		return b.Status(ctx, statusRequest(c))
	})
}

func parse(args *skel.CmdArgs, how strictness) (Conf, cniArgs, error) {
	c, err := parseConf(args.StdinData, how)
	if err != nil {
		return Conf{}, cniArgs{}, err
	}
	a, err := parseArgs(args.Args, how)
	return c, a, err
}

// with runs one request against the configuration's backend.
func (p Plugin) with(ctx context.Context, c Conf, limit time.Duration, do func(context.Context, agentapi.Backend) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b, err := p.Backend(ctx, c)
	if err != nil {
		return err
	}
	return do(ctx, b)
}

// statusError gives an error of STATUS the code that says "no ADD can be served",
// unless it has a narrower one already: a configuration in error stays one, since
// waiting does not mend it.
func statusError(err error) error {
	if err == nil {
		return nil
	}
	e := *agentapi.AsError(err)
	switch e.Code {
	case agentapi.CodeLimited, agentapi.CodeBadConfig, agentapi.CodeUndecodable, agentapi.CodeBadEnvironment:
	default:
		e.Code = agentapi.CodeNotAvailable
	}
	return &e
}

// cniError is err as the CNI library prints it.
func cniError(err error) error {
	if err == nil {
		return nil
	}
	e := agentapi.AsError(err)
	return types.NewError(e.Code, e.Msg, e.Details)
}
