// Package child runs other programs for tests that kill and pause them. They end with the process
// that started them, also if it panics or is killed (on Linux).
package child

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Process is a program that is started, and started again after its end. The zero value has not
// been started. Its methods may be called from several goroutines.
type Process struct {
	mu    sync.Mutex
	cmd   *exec.Cmd     // nil: not started
	ended chan struct{} // closed when cmd has ended
	asked bool          // to end
}

// Start starts a command, which the caller has not started. The former one must have ended.
func (p *Process) Start(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd.SysProcAttr = attributes()
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The kernel kills the child when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.cmd, p.ended, p.asked = cmd, ended, false
	return nil
}

// Kill ends the process with SIGKILL, also if it is paused, and waits for its end.
func (p *Process) Kill() {
	if ended := p.end(syscall.SIGKILL); ended != nil {
		<-ended
	}
}

// Terminate asks the process to end with SIGTERM, and waits for its end. After some time it kills
// the process and returns an error.
func (p *Process) Terminate(patience time.Duration) error {
	ended := p.end(syscall.SIGTERM)
	if ended == nil {
		return nil
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-ended:
		return nil
	case <-timeout.C:
		p.Kill()
		return fmt.Errorf("%s did not end within %v after SIGTERM", p.cmd.Path, patience)
	}
}

func (p *Process) end(number syscall.Signal) (ended chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.asked = true
		_ = p.cmd.Process.Signal(number) // an error means that it has ended
	}
	return p.ended
}

// Pause stops the process with SIGSTOP. Its connections stay open.
func (p *Process) Pause() { p.Signal(syscall.SIGSTOP) }

// Continue ends Pause.
func (p *Process) Continue() { p.Signal(syscall.SIGCONT) }

// Signal sends a signal, if the process runs.
func (p *Process) Signal(number syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(number) // an error means that it has ended
	}
}

// Running reports whether the process runs; a paused one does.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

func (p *Process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Crashed reports whether the process was started, and has ended without Kill or Terminate.
func (p *Process) Crashed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil && !p.running() && !p.asked
}

// Code returns the exit code of a process that has ended; -1 if a signal ended it.
func (p *Process) Code() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.ProcessState.ExitCode()
}
