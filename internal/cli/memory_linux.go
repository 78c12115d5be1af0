package cli

import (
	"errors"

	"golang.org/x/sys/unix"
)

// ProtectMemory keeps the memory of the process, which holds credentials and the data of Secrets,
// from other processes of its user and from core dumps. Native plugins, which run as the same user,
// inherit the limit of core dumps.
func ProtectMemory() error {
	return errors.Join(
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0),
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
	)
}
