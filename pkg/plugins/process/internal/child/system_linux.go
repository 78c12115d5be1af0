package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// seal creates an immutable file in memory. If the system has none, or does not execute one, the
// error is errors.ErrUnsupported.
func seal(name string, fill func(io.Writer) error) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	// Linux before 6.3 does not know MFD_EXEC, and executes every such file
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := fill(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := addSeals(f); err != nil {
		return nil, errors.Join(fmt.Errorf("seal: %w", err), f.Close())
	}
	return f, nil
}

// sealPatience is the approximate maximum wait for a busy file, in addition to the wait of the
// kernel.
const sealPatience = 5 * time.Second

// addSeals makes the file immutable. The kernel refuses while one of its pages is in use, also by
// the kernel itself on a busy machine.
func addSeals(f *os.File) error {
	const all = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	for pause := 5 * time.Millisecond; ; pause *= 2 {
		_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, all)
		if !errors.Is(err, unix.EBUSY) || pause > sealPatience/2 {
			return err
		}
		<-time.After(pause)
	}
}

// attributes makes the child the leader of a process group. The kernel kills it when its starting
// thread ends: see child.run.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit waits until a process has ended, and leaves it a zombie until reap is called. Until
// then its number, which is also that of its group, is not reused.
func awaitExit(cmd *exec.Cmd) (reap func() error) {
	for errors.Is(unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	return cmd.Wait
}

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }
func terminate(pid int) error { return syscall.Kill(pid, syscall.SIGTERM) }

func lockFile(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
