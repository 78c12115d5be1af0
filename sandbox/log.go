package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// redirectStderr points file descriptor 2 at DIR/log, because kube-apiserver and etcd each
// bring several loggers, and each has its own way to stderr. It returns the stderr of
// before, for what a person should read; a crash is written to both.
func redirectStderr(opts options) (*os.File, error) {
	if opts.verbose {
		return os.Stderr, nil
	}
	if err := os.MkdirAll(opts.dir, 0o700); err != nil {
		return nil, err
	}
	// O_APPEND: both halves, and the next start, write to the same file.
	log, err := os.OpenFile(filepath.Join(opts.dir, logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	old, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("keep stderr: %w", err)
	}
	terminal := os.NewFile(uintptr(old), "stderr")
	if err := unix.Dup2(int(log.Fd()), 2); err != nil {
		return nil, fmt.Errorf("redirect stderr: %w", err)
	}
	return terminal, debug.SetCrashOutput(terminal, debug.CrashOptions{})
}
