package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	restartAfter = time.Second // of a process that has ended by itself, as a container would
	restartsMost = 20
	stopPatience = 10 * time.Second
	listenWithin = 20 * time.Second
)

// processes are those of one program.
type processes struct {
	place    *place
	commands []command

	mu       sync.Mutex
	live     []*exec.Cmd
	spent    time.Duration // CPU of processes that have ended
	restarts int
	failed   error // a process ends again and again
	stopping bool
	ended    sync.WaitGroup
}

// environment is the same for all programs.
func environment(p *place) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "TMPDIR=" + p.dir, "KUBECONFIG=" + p.kubeconfig}
}

// start starts the processes in their order.
func (p *processes) start(ctx context.Context) error {
	p.mu.Lock()
	p.stopping, p.live = false, make([]*exec.Cmd, len(p.commands))
	p.mu.Unlock()
	for i, c := range p.commands {
		if err := p.run(i); err != nil {
			return err
		}
		if c.address != "" {
			if err := listens(ctx, c.address); err != nil {
				return fmt.Errorf("%s: %w", filepath.Base(c.path), err)
			}
		}
	}
	return nil
}

// run starts a process, and starts it again when it ends by itself.
func (p *processes) run(i int) error {
	c := p.commands[i]
	log, err := os.OpenFile(p.log(i), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.path, c.args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.place.dir, append(environment(p.place), c.env...), log, log
	// A group of its own, with the processes that it starts.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return nil
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.live[i] = cmd
	p.ended.Go(func() { p.wait(i, cmd) })
	return nil
}

func (p *processes) log(i int) string {
	return filepath.Join(p.place.dir, fmt.Sprintf("%s-%d.log", filepath.Base(p.commands[i].path), i))
}

// wait waits for the end of a process.
func (p *processes) wait(i int, cmd *exec.Cmd) {
	_ = cmd.Wait()
	p.mu.Lock()
	p.live[i] = nil
	p.spent += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	stopping := p.stopping
	if !stopping {
		if p.restarts++; p.restarts > restartsMost {
			p.failed = fmt.Errorf("%s ends again and again:\n%s", filepath.Base(cmd.Path), tail(p.log(i)))
			stopping = true
		}
	}
	p.mu.Unlock()
	if stopping {
		return
	}
	time.Sleep(restartAfter)
	if err := p.run(i); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failed = err
	}
}

// problem returns the error of a process that cannot run.
func (p *processes) problem() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// signal ends all processes with a signal, and waits for them.
func (p *processes) signal(s syscall.Signal) {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	p.each(func(group int) { _ = syscall.Kill(-group, s) })
	kill := time.AfterFunc(stopPatience, func() { p.each(func(group int) { _ = syscall.Kill(-group, syscall.SIGKILL) }) })
	defer kill.Stop()
	p.ended.Wait()
}

// each calls f with the pids of the running processes.
func (p *processes) each(f func(pid int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cmd := range p.live {
		if cmd != nil {
			f(cmd.Process.Pid)
		}
	}
}

// cpu returns the CPU of all processes so far, with that of the processes that they have started
// and that have ended.
func (p *processes) cpu() time.Duration {
	p.mu.Lock()
	used := p.spent
	p.mu.Unlock()
	p.each(func(pid int) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		used += cpuOf(string(text))
	})
	return used
}

// cpuOf reads the file stat of a process.
func cpuOf(stat string) time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ is 100
	_, rest, _ := strings.Cut(stat, ") ")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return 0
	}
	var user, system, childUser, childSystem int
	_, _ = fmt.Sscan(strings.Join(fields[11:15], " "), &user, &system, &childUser, &childSystem)
	return time.Duration(user+system+childUser+childSystem) * tick
}

// memory returns the resident memory of all processes in MiB.
func (p *processes) memory() (rss float64) {
	p.each(func(pid int) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, rest, _ := strings.Cut(string(text), "VmRSS:")
		var kibibytes float64
		_, _ = fmt.Sscan(rest, &kibibytes)
		rss += kibibytes / 1024
	})
	return rss
}

// listens waits until a process accepts connections.
func listens(ctx context.Context, address string) error {
	for until := time.Now().Add(listenWithin); ; {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(until) {
			return err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// logs returns the last lines of all processes.
func (p *processes) logs() (text string) {
	for i := range p.commands {
		text += tail(p.log(i)) + "\n"
	}
	return text
}

// tail returns the last lines of a file.
func tail(file string) string {
	const most = 1500
	text, _ := os.ReadFile(file)
	return string(text[max(0, len(text)-most):])
}
