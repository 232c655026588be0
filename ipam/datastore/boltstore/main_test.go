// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/allod/allod/ipam/datastore/kv"
)

// The test binary runs itself for the tests that need several processes:
// "child MODE PATH NAME". A child prints a line for each thing that is done and
// certain.
const childArg = "child"

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == childArg {
		if err := child(context.Background(), os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(ctx context.Context, mode, path, name string) error {
	switch mode {
	case "write": // 25 writes
		return childWrite(ctx, path, name, 25)
	case "write-on": // until killed
		return childWrite(ctx, path, name, 1<<30)
	case "create": // once
		if err := Create(ctx, path); err == nil {
			fmt.Println("created")
		} else if !errors.Is(err, ErrExists) {
			return err
		}
		return New(path, Options{}).View(ctx, func(kv.Tx) error { return nil })
	case "create-on": // store after store, until killed
		for i := range 1 << 30 {
			if err := Create(ctx, filepath.Join(path, fmt.Sprint(i))); err != nil {
				return err
			}
			fmt.Println(i)
		}
	case "full":
		return childFull(ctx, path)
	case "limited":
		return childLimited(ctx, path)
	}
	return fmt.Errorf("unknown mode %q", mode)
}

// childWrite does what an allocation does: read, decide, write. Each write raises
// the shared counter and adds a key of its own, so that a lost one shows.
func childWrite(ctx context.Context, path, name string, n int) error {
	db := New(path, Options{})
	for i := range n {
		err := db.Update(ctx, func(tx kv.Tx) error {
			old, _ := tx.Get(kv.Config, "counter")
			count, _ := strconv.Atoi(string(old))
			return errors.Join(
				tx.Put(kv.Config, "counter", []byte(strconv.Itoa(count+1))),
				tx.Put(kv.Handles, fmt.Sprintf("%s-%d", name, i), make([]byte, 100*(i%80))))
		})
		if err != nil {
			return err
		}
		fmt.Println(i)
	}
	return nil
}

// process is a running child.
type process struct {
	cmd   *exec.Cmd
	out   io.ReadCloser
	lines *bufio.Scanner
	done  int // lines read: what the child had certainly done
	last  string
}

func start(t *testing.T, mode, path, name string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.CommandContext(t.Context(), exe, childArg, mode, path, name)}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = os.Stderr
	p.lines = bufio.NewScanner(p.out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// read waits for n more lines, or the end of the output; n < 0 is all of it.
func (p *process) read(n int) {
	for ; n != 0 && p.lines.Scan(); n-- {
		p.last = p.lines.Text()
		p.done++
	}
}

func (p *process) wait() error {
	p.read(-1)
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, p.last)
	}
	return nil
}

// kill ends the child with SIGKILL and reads what it had reported.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	p.read(-1)
	_ = p.cmd.Wait()
}
