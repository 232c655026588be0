// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/allod/allod/agent/config"
)

type showOptions struct {
	ds                       config.Datastore
	out                      format
	pools, blocks, addresses bool
	ip                       string
}

func showCommand() *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show pools, blocks or addresses",
		Long: `Show what the datastore holds: pools and how much of them is in use (the
default), blocks, or addresses and who has them. With bolt all figures of one call
are of one moment, on Kubernetes all of one kind are; an address whose cooldown has
passed counts as available, as it does for the next pod. show never changes the
datastore.

The STATUS of a pool says whether it hands out; AVAILABLE is arithmetic and does not
depend on it:

` + statusHelp(),
		Example: `  allod-agent show
  allod-agent show --blocks
  allod-agent show --addresses -o json
  allod-agent show --ip 10.64.0.70`,
		Args: noArgs("show takes flags: --pools, --blocks, --addresses or --ip"),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.pools, "pools", false, "one line for each pool (the default)")
	fs.BoolVar(&o.blocks, "blocks", false, "one line for each block")
	fs.BoolVar(&o.addresses, "addresses", false, "one line for each address that is allocated or cooling")
	fs.StringVar(&o.ip, "ip", "", "tell about this one address, also when it is free")
	cmd.MarkFlagsMutuallyExclusive("pools", "blocks", "addresses")
	cmd.MarkFlagsMutuallyExclusive("pools", "blocks", "ip")
	o.out.addFlag(cmd)
	withDatastore(cmd, &o.ds)
	return cmd
}

func (o *showOptions) run(cmd *cobra.Command) error {
	var ip netip.Addr
	if cmd.Flags().Changed("ip") {
		var err error
		if ip, err = parseIP(o.ip); err != nil {
			return UsageError{Err: err}
		}
	}
	st, err := open(o.ds, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	p := progressOf(cmd)
	s, err := st.snapshot(cmd.Context(), p)
	p.done()
	if err != nil {
		return err
	}
	s = s.asOf(s.At)
	w := cmd.OutOrStdout()
	switch {
	case ip.IsValid():
		err = o.writeAddresses(w, s.addressInfo(ip))
	case o.addresses:
		err = o.writeAddresses(w, s.addressRows())
	case o.blocks:
		err = o.writeBlocks(w, s.blockRows())
	default:
		err = o.writePools(w, s)
		warnPoolless(cmd.ErrOrStderr(), s.poolless())
	}
	if err != nil {
		return err
	}
	return incomplete(s)
}

func parseIP(s string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(s)
	if err != nil || ip.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("--ip: %q is not an address", s)
	}
	return ip.Unmap(), nil
}

// incomplete is the error that follows output from which objects are missing.
func incomplete(s Snapshot) error {
	if len(s.Unreadable) == 0 {
		return nil
	}
	errs := []error{errors.New("the output is incomplete, some objects cannot be read (see check)")}
	for _, u := range s.Unreadable {
		errs = append(errs, fmt.Errorf("%s: %w", u.Object, u.Err))
	}
	return errors.Join(errs...)
}

// warnPoolless says which blocks the table of pools leaves out.
func warnPoolless(w io.Writer, blocks []string) {
	const most = 5
	if len(blocks) == 0 {
		return
	}
	more := ""
	if len(blocks) > most {
		more = fmt.Sprintf(" and %d more", len(blocks)-most)
		blocks = blocks[:most]
	}
	fmt.Fprintf(w, "warning: blocks that count in no pool: %s%s (see check)\n", strings.Join(blocks, ", "), more)
}

// PoolList, BlockList and AddressList are the documents that show writes as JSON
// or YAML.
type (
	PoolList struct {
		Pools []PoolRow `json:"pools"`
		// BlocksWithoutPool count in none of the pools.
		BlocksWithoutPool []string `json:"blocksWithoutPool,omitempty"`
	}
	BlockList struct {
		Blocks []BlockRow `json:"blocks"`
	}
	AddressList struct {
		Addresses []AddressRow `json:"addresses"`
	}
)

func (o *showOptions) writePools(w io.Writer, s Snapshot) error {
	list := PoolList{Pools: s.poolRows(), BlocksWithoutPool: s.poolless()}
	return o.out.write(w, list, func(w io.Writer) {
		var rows [][]string
		for _, p := range list.Pools {
			rows = append(rows, []string{
				p.Name, p.CIDR, "/" + strconv.Itoa(p.BlockSize),
				p.Capacity, p.Allocated, p.Cooling, p.Reserved, p.Available, p.Status,
			})
		}
		columns(w, "POOL CIDR BLOCKSIZE CAPACITY ALLOCATED COOLING RESERVED AVAILABLE STATUS", rows)
	})
}

func (o *showOptions) writeBlocks(w io.Writer, list []BlockRow) error {
	return o.out.write(w, BlockList{Blocks: list}, func(w io.Writer) {
		var rows [][]string
		for _, b := range list {
			rows = append(rows, []string{
				b.CIDR, b.Affinity, b.Capacity, b.Allocated, b.Cooling, b.Reserved, b.Available, b.Pool, b.ClaimedAt,
			})
		}
		columns(w, "BLOCK AFFINITY CAPACITY ALLOCATED COOLING RESERVED AVAILABLE POOL CLAIMED", rows)
	})
}

func (o *showOptions) writeAddresses(w io.Writer, list []AddressRow) error {
	return o.out.write(w, AddressList{Addresses: list}, func(w io.Writer) {
		var rows [][]string
		for _, a := range list {
			rows = append(rows, []string{
				a.Address, a.State, a.owner(), short(a.ContainerID), a.IfName, a.Node, a.Pool, a.Since,
			})
		}
		columns(w, "ADDRESS STATE OWNER CONTAINER IF NODE POOL SINCE", rows)
	})
}

// short cuts a container ID to what runtimes show.
func short(id string) string {
	const shown = 12
	if len(id) > shown {
		return id[:shown]
	}
	return id
}
