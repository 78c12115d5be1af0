package child

import "syscall"

// attributes makes the kernel kill the process when the thread that started it ends, which includes
// the end of the process by a panic or SIGKILL.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
