//go:build !unix

package child

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// errSystem: a process is not started where the router cannot end it reliably.
var errSystem = errors.New("native plugins need Unix")

func seal(string, func(io.Writer) error) (*os.File, error) { return nil, errSystem }
func attributes() *syscall.SysProcAttr                     { return nil }
func awaitExit(cmd *exec.Cmd) (reap func() error)          { return cmd.Wait }
func killGroup(int) error                                  { return errSystem }
func terminate(int) error                                  { return errSystem }
func lockFile(*os.File) error                              { return errSystem }
func ownedByUs(os.FileInfo) bool                           { return false }
