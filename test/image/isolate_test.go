//go:build linux

package image

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// user is the user and group of the router in the image.
const user = 65532

// The variables that make this test binary the runtime of one container: the folder with its files,
// and the two volumes.
const (
	rootVariable   = "IMAGE_TEST_ROOT"
	configVariable = "IMAGE_TEST_CONFIG"
	stateVariable  = "IMAGE_TEST_STATE"
)

// refused is the exit code of a runtime that the kernel does not let mount anything.
const refused = 77

// command returns a command that runs a program of the container: as the image's user, on a
// read-only root, with the folders config and state as volumes, without any capability.
//
// The child begins in a user namespace and a mount namespace of its own, where it has the
// capabilities to mount; become drops them.
func (c container) command(config, state string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append(c.Entrypoint[1:], args...)...)
	cmd.Args[0] = c.Entrypoint[0]
	cmd.Env = append([]string{rootVariable + "=" + c.root, configVariable + "=" + config, stateVariable + "=" + state}, c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP},
	}
	return cmd
}

// needNamespaces skips the test where the kernel does not permit the namespaces.
func (c container) needNamespaces(t *testing.T) {
	t.Helper()
	cmd := c.command(t.TempDir(), t.TempDir(), "version")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case cmd.Process == nil:
		t.Skipf("the kernel permits no user namespace (%v): see /proc/sys/user/max_user_namespaces and kernel.unprivileged_userns_clone", err)
	case errors.As(err, &exit) && exit.ExitCode() == refused:
		t.Skipf("the kernel permits no mounts in a user namespace: see kernel.apparmor_restrict_unprivileged_userns: %s", out)
	default:
		t.Fatalf("%v: %s", err, out)
	}
}

// become turns this process into the container and runs its program. It returns an exit code only
// if that failed.
func become(root string) int {
	runtime.LockOSThread() // capabilities belong to a thread
	if err := enter(root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			return refused
		}
		return 1
	}
	if err := os.WriteFile("/probe", nil, 0o600); !errors.Is(err, unix.EROFS) {
		fmt.Fprintln(os.Stderr, "the root is not read-only:", err)
		return 1
	}
	if err := dropCapabilities(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stderr, unix.Exec(os.Args[0], os.Args, os.Environ()))
	return 1
}

// enter makes the folder the read-only root of this process, with its volumes.
func enter(root string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make all mounts private: %w", err)
	}
	for _, volume := range []struct {
		from, to string
		readOnly bool
	}{
		{root, root, true},
		{os.Getenv(configVariable), filepath.Join(root, "etc/deltarouter"), true},
		{os.Getenv(stateVariable), filepath.Join(root, "var/lib/deltarouter"), false},
	} {
		if err := unix.Mount(volume.from, volume.to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", volume.to, err)
		}
		if volume.readOnly {
			if err := protect(volume.to); err != nil {
				return fmt.Errorf("mount %s read-only: %w", volume.to, err)
			}
		}
	}
	if err := unix.Chdir(root); err != nil {
		return err
	}
	// The new root is stacked over the old one, which is then unmounted.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	for _, variable := range []string{rootVariable, configVariable, stateVariable} {
		if err := os.Unsetenv(variable); err != nil {
			return err
		}
	}
	return unix.Chdir("/var/lib/deltarouter")
}

// protect makes a mount read-only. A user namespace must keep the other flags of the mount.
func protect(path string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return err
	}
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY)
	for of, flag := range map[int64]uintptr{
		unix.ST_NOSUID: unix.MS_NOSUID, unix.ST_NODEV: unix.MS_NODEV, unix.ST_NOEXEC: unix.MS_NOEXEC,
		unix.ST_NOATIME: unix.MS_NOATIME, unix.ST_NODIRATIME: unix.MS_NODIRATIME, unix.ST_RELATIME: unix.MS_RELATIME,
	} {
		if int64(fs.Flags)&of != 0 {
			flags |= flag
		}
	}
	return unix.Mount("", path, "", flags, "")
}

// dropCapabilities gives up all capabilities for this thread and the programs that it executes.
func dropCapabilities() error {
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear the ambient capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	none := [2]unix.CapUserData{}
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
}
