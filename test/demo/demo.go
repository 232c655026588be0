// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/allod/allod/test/fixture"
)

//go:embed pools.yaml
var pools string

//go:embed network.json
var network string

// pingLimit is for one ping, with the time that a fresh IPv6 link needs.
const pingLimit = 20 * time.Second

// demo is the stage: a node with its store, and the pods on it.
type demo struct {
	options
	work    *fixture.Workspace
	agent   fixture.Agent
	list    *libcni.NetworkConfigList
	runtime *fixture.Runtime
	pods    []*pod
}

// pod is a namespace and what the runtime knows about it.
type pod struct {
	fixture.Sandbox
	ns    *fixture.Netns
	addrs []netip.Addr
}

func newDemo(w *fixture.Workspace, o options) (*demo, error) {
	list, err := fixture.Network([]byte(strings.ReplaceAll(network, "${DIR}", w.Dir)))
	if err != nil {
		return nil, err
	}
	agent := fixture.Agent{Binary: filepath.Join(o.bin, "allod-agent"), Store: filepath.Join(w.Dir, "ipam.db")}
	return &demo{options: o, work: w, agent: agent, list: list}, nil
}

// run plays the steps. What they leave behind is the workspace's to remove.
func (d *demo) run(ctx context.Context) error {
	steps := []struct {
		title string
		play  func(context.Context) error
	}{
		{"apply: an operator puts pools into the store, one file that the plugin processes of a host share", d.apply},
		{"namespaces: one plays the node, three play pods", d.makeNamespaces},
		{"ADD: the runtime runs ptp, ptp runs allod; allod picks addresses, ptp puts them on the pod's eth0", d.add},
		{"show: the store knows who has what", d.show},
		{"ping: every pod reaches every other, in both families", d.ping},
		{"CHECK: ptp and allod confirm that each pod still has what it was given", d.check},
		{"DEL: the runtime takes the pods down, allod takes the addresses back", d.del},
		{"show: what is left in the store", d.left},
	}
	for i, s := range steps {
		fmt.Printf("\n[%d/%d] %s\n", i+1, len(steps), s.title)
		err := s.play(ctx)
		if ctx.Err() != nil {
			return context.Canceled
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return d.verdict(ctx)
}

func (d *demo) apply(ctx context.Context) error {
	fmt.Printf("  $ allod-agent apply -f test/demo/pools.yaml\n")
	out, err := d.command(ctx, pools, "apply", "-f", "-")
	indent(out)
	return err
}

func (d *demo) makeNamespaces(context.Context) error {
	node, err := d.work.NewNetns("node")
	if err != nil {
		return err
	}
	// Not os.Stderr itself: with a pipe in between, an interrupted call is over only
	// when every process it started is, and nobody writes to the store any more.
	stderr := struct{ io.Writer }{os.Stderr}
	d.runtime = fixture.NewRuntime(node, []string{d.bin, d.plugins}, filepath.Join(d.work.Dir, "results"), stderr)
	fmt.Printf("  node   %s\n", node.Path)
	for i, name := range []string{"red", "green", "blue"} {
		ns, err := d.work.NewNetns(name)
		if err != nil {
			return err
		}
		d.pods = append(d.pods, &pod{ns: ns, Sandbox: fixture.Sandbox{
			ContainerID: fmt.Sprintf("%s-sandbox", name), Netns: ns.Path,
			Namespace: "demo", Pod: name, UID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i+1),
		}})
		fmt.Printf("  %-6s %s\n", name, ns.Path)
	}
	return nil
}

func (d *demo) add(ctx context.Context) error {
	for _, p := range d.pods {
		res, err := d.runtime.Add(ctx, d.list, p.Sandbox)
		if err != nil {
			return err
		}
		for _, ip := range res.IPs {
			a, ok := netip.AddrFromSlice(ip.Address.IP)
			if !ok {
				return fmt.Errorf("ADD %s: result with the address %v", p.Pod, ip.Address)
			}
			p.addrs = append(p.addrs, a.Unmap())
			fmt.Printf("  %-6s %-22s gateway %s\n", p.Pod, ip.Address.String(), ip.Gateway)
		}
	}
	return nil
}

func (d *demo) show(ctx context.Context) error {
	fmt.Printf("  $ allod-agent show --addresses\n")
	out, err := d.command(ctx, "", "show", "--addresses")
	indent(out)
	return err
}

func (d *demo) ping(ctx context.Context) error {
	var errs []error
	for _, from := range d.pods {
		for _, to := range d.pods {
			if from == to {
				continue
			}
			for _, a := range to.addrs {
				limited, cancel := context.WithTimeout(ctx, pingLimit)
				took, err := fixture.Ping(limited, from.ns, a)
				cancel()
				if err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Printf("  %-6s -> %-6s %-14s answered in %v\n", from.Pod, to.Pod, a, took.Round(time.Microsecond))
			}
		}
	}
	return errors.Join(errs...)
}

func (d *demo) check(ctx context.Context) error {
	for _, p := range d.pods {
		if err := d.runtime.Check(ctx, d.list, p.Sandbox); err != nil {
			return err
		}
		fmt.Printf("  %-6s as it should be\n", p.Pod)
	}
	return nil
}

// del takes every pod down, also after one has failed.
func (d *demo) del(ctx context.Context) error {
	var errs []error
	for i, p := range d.pods {
		if d.plant && i == 1 {
			fmt.Printf("  %-6s its DEL is skipped (PLANT=1): a leftover is planted\n", p.Pod)
			continue
		}
		if err := d.runtime.Del(ctx, d.list, p.Sandbox); err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Printf("  %-6s gone\n", p.Pod)
	}
	return errors.Join(errs...)
}

func (d *demo) left(ctx context.Context) error {
	for _, args := range [][]string{{"show"}, {"check"}} {
		fmt.Printf("  $ allod-agent %s\n", args[0])
		out, err := d.command(ctx, "", args...)
		indent(out)
		if err != nil {
			return err
		}
	}
	return nil
}

// verdict counts what the store holds in the end and says it on the last line.
func (d *demo) verdict(ctx context.Context) error {
	used, err := d.agent.Usage(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\n%d allocated\n", used.Allocated)
	if used.Allocated == 0 {
		return nil
	}
	holdings, err := d.agent.Holdings(ctx)
	if err != nil {
		return err
	}
	errs := []error{fmt.Errorf("%d addresses are left", used.Allocated)}
	for _, h := range holdings {
		if h.State == fixture.Allocated {
			errs = append(errs, fmt.Errorf("  %s belongs to %s (container %s)", h.Address, h.Pod, h.ContainerID))
		}
	}
	return errors.Join(errs...)
}

// command runs allod-agent and returns what it printed.
func (d *demo) command(ctx context.Context, stdin string, args ...string) (string, error) {
	out, err := d.agent.Run(ctx, stdin, args...)
	if err != nil {
		return "", err
	}
	if out.Exit != 0 {
		return out.Stdout, fmt.Errorf("allod-agent %s: exit %d: %s", args[0], out.Exit, out.Stderr)
	}
	return out.Stdout, nil
}

func indent(text string) {
	for line := range strings.Lines(text) {
		fmt.Print("    " + line)
	}
}
