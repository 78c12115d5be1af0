//go:build unix && !linux

package child

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// seal is supported on Linux only.
func seal(string, func(io.Writer) error) (*os.File, error) { return nil, errors.ErrUnsupported }

// attributes makes the child the leader of a process group. The end of its standard input shows the
// child that the router has ended.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit waits until a process has ended.
func awaitExit(cmd *exec.Cmd) (reap func() error) {
	err := cmd.Wait()
	return func() error { return err }
}

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }
func terminate(pid int) error { return syscall.Kill(pid, syscall.SIGTERM) }

func lockFile(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
