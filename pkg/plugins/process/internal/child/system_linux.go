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

// seal makes a file in memory that nobody can change any more. Where the system has none, or
// forbids to execute one, the error is errors.ErrUnsupported.
func seal(name string, fill func(io.Writer) error) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	// Linux before 6.3 does not know MFD_EXEC, and lets every such file be executed
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

// sealPatience is about how long a file may be busy, beside what the kernel waits by itself.
const sealPatience = 5 * time.Second

// addSeals makes the file one that nobody can change. The kernel refuses while somebody has one of
// its pages in hand, which it may have itself for a while on a busy machine.
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

// attributes makes the child the leader of a process group, and lets the kernel kill it when the
// thread that started it ends: see child.run.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit waits until a process has ended, and leaves it a zombie until reap is called: as long
// as it is one, its number, which is that of its group, is nobody else's.
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
