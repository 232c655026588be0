// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program that dies with this one.
type process struct {
	name string
	log  string // file with what it wrote
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// launch starts binary with a log file in dir.
func launch(dir, binary string, args ...string) (*process, error) {
	name := filepath.Base(binary)
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(binary, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, out, out
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go func() {
		// The kernel sends the signal when the thread that forked ends, so that
		// thread waits here for the whole life of the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer out.Close()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // ProcessState says how it ended
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// kill ends the process at once and waits for its end. SIGTERM would take the API
// server a minute while watches are open.
func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // an error says that it has ended
	<-p.done
}

// ended returns why the process is gone, with the end of its log, nil while it runs.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s has ended (%s): %s", p.name, p.cmd.ProcessState, p.lastLines(15))
	default:
		return nil
	}
}

// portTaken reports whether the process ended because another one had got its port.
func (p *process) portTaken() bool {
	if p == nil || p.ended() == nil {
		return false
	}
	text, _ := os.ReadFile(p.log)
	return bytes.Contains(text, []byte("address already in use"))
}

func (p *process) lastLines(n int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// cpuTime returns the user and system time that the process has used.
func (p *process) cpuTime() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("CPU time of %s: %w", p.name, err)
	}
	// The second field is the name in parentheses; utime and stime are 14 and 15.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("CPU time of %s: %q has too few fields", p.name, text)
	}
	user, errU := strconv.ParseInt(fields[11], 10, 64)
	system, errS := strconv.ParseInt(fields[12], 10, 64)
	const tick = time.Second / 100 // USER_HZ, the same on every Linux Go runs on
	return time.Duration(user+system) * tick, errors.Join(errU, errS)
}

// freePorts returns n ports of loopback that nobody listens on now.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // held until all are known, so that they differ
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}
