// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/allod/allod/cni/agentapi"
	"github.com/allod/allod/cni/plugin"
)

// agentName is the agent's file name, beside allod unless configured.
const agentName = "allod-agent"

// execAgent replaces this process by `allod-agent cni` with the same environment
// and the same stdin, which has been read and is played back. It returns only if
// that fails, with an error to be tried again: DEL too, as nothing was released.
func execAgent(c plugin.Conf, agentGone error) error {
	path, err := agentPath(c)
	if err == nil {
		err = replayStdin(c.Raw)
	}
	if err == nil {
		err = &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, []string{path, "cni"}, os.Environ())}
	}
	return &agentapi.Error{
		Code:    agentapi.CodeTryAgain,
		Msg:     fmt.Sprintf("%v; and direct mode: %v", agentGone, err),
		Details: "start the node agent, or install allod-agent beside allod, or set ipam.agentBinary to its path",
	}
}

func agentPath(c plugin.Conf) (string, error) {
	if c.AgentBinary != "" {
		return c.AgentBinary, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find allod's own path: %w", err)
	}
	return filepath.Join(filepath.Dir(self), agentName), nil
}

// replayStdin makes data the process's stdin, from an anonymous file: a pipe
// could hold only so much with nobody to write the rest after exec.
func replayStdin(data []byte) error {
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "stdin")
	defer f.Close() // file descriptor 0 keeps the file
	if _, err := f.Write(data); err != nil {
		return err
	}
	if _, err := f.Seek(0, 0); err != nil {
		return err
	}
	return os.NewSyscallError("dup3", unix.Dup3(fd, 0, 0))
}
