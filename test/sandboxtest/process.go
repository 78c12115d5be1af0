package sandboxtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// The time limits of a half; generous, since machines may be slow and busy.
const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 20 * time.Second
)

// process is one half of a sandbox. It has no goroutine, so that leak checks of tests pass. A nil
// process does not run.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer // its end makes the process stop with this one
	stdout *os.File  // stays open, because a write would otherwise kill the process
}

// startProcess starts bin/sandbox and waits until it reports that it is ready.
func startProcess(bin, dir string, args ...string) (*process, error) {
	stdout, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	cmd := exec.Command(bin, append([]string{"-dir", dir, "-stdin"}, args...)...)
	cmd.Stdout = w
	cmd.Stderr = os.Stderr // one line, if the start fails; the log goes to a file
	stdin, err := cmd.StdinPipe()
	if err != nil {
		_ = stdout.Close()
		return nil, err
	}
	p := &process{cmd: cmd, stdin: stdin, stdout: stdout}
	if err := cmd.Start(); err != nil {
		_ = stdin.Close()
		_ = stdout.Close()
		return nil, err
	}
	_ = w.Close() // the child has its own copy, and only its end may keep the pipe open
	if err := p.waitReady(); err != nil {
		p.kill()
		return nil, fmt.Errorf("sandbox %v: %w; end of its log:\n%s", args, err, logTail(dir))
	}
	return p, nil
}

func (p *process) waitReady() error {
	if err := p.stdout.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	line, err := bufio.NewReader(p.stdout).ReadString('\n')
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("ended before it was ready")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("not ready after %v", startTimeout)
	case err != nil:
		return err
	case line != "ready\n":
		return fmt.Errorf("said %q instead of ready", line)
	}
	return nil
}

// kill ends the process without a chance to clean up.
func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // an error means that it has ended
	_ = p.cmd.Wait()         // always an error: killed
	_ = p.stdin.Close()
	_ = p.stdout.Close()
}

// stop asks the process to end, and waits for its end.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	defer p.stdin.Close()
	defer p.stdout.Close()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return errors.Join(err, p.cmd.Wait())
	}
	timer := time.AfterFunc(stopTimeout, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("stop sandbox: %w", err)
	}
	return nil
}
