package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/pkg/lines"
)

const (
	// longestHandshake is how many bytes the line has at most with which a plugin says where it listens.
	longestHandshake = 8 << 10
	// drainTime is how long it may take to read what a process wrote before it ended. Somebody whom it started, and who left its
	// group, may hold its output open for ever.
	drainTime = time.Second
)

// child is a program as the operating system has it. It implements go-plugin's runner.Runner, because go-plugin's own stops reading at a
// line that is too long, starts its processes on threads that may end, and kills only the process itself.
type child struct {
	cmd    *exec.Cmd
	folder string // where the plugin may listen
	lines  *lines.Log
	tail   *tail // of what it wrote to stderr

	stdin     *os.File // open as long as the router wants the plugin to run
	output    []*os.File
	handshake *io.PipeReader // the first line of stdout, for go-plugin
	spoke     bool           // there was one; is written before go-plugin gets it, or there is none
	secured   bool           // it had a certificate; likewise

	exited  chan struct{} // is closed when the process is gone
	err     error         // how it ended; after exited
	drained sync.WaitGroup

	mu      sync.Mutex
	started bool // what is above is set
	killed  bool // it is not to be started any more
	over    bool // its number is not its own any more
}

func newChild(cmd *exec.Cmd, folder string, l *lines.Log) *child {
	return &child{cmd: cmd, folder: folder, lines: l, tail: &tail{}, exited: make(chan struct{})}
}

// Start starts the process. It implements runner.Runner.
func (c *child) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed {
		return context.Canceled
	}
	stdin, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	stdout, toStdout, errOut := os.Pipe()
	stderr, toStderr, errErr := os.Pipe()
	theirs := []*os.File{stdin, toStdout, toStderr}
	if err = errors.Join(errOut, errErr); err == nil {
		c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr, c.cmd.SysProcAttr = stdin, toStdout, toStderr, attributes()
		err = c.run()
	}
	closeAll(theirs)
	if err != nil {
		closeAll([]*os.File{ours, stdout, stderr})
		return err
	}
	c.started, c.stdin, c.output = true, ours, []*os.File{stdout, stderr}
	reader, writer := io.Pipe()
	c.handshake = reader
	ctx = context.WithoutCancel(ctx)
	c.drained.Go(func() { c.drainStdout(ctx, stdout, writer) })
	c.drained.Go(func() {
		to := c.lines.Writer(ctx, "stderr", slog.LevelWarn)
		_, _ = io.Copy(io.MultiWriter(c.tail, to), stderr)
		to.Flush()
	})
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// run starts the process on a thread that lives as long as the process: the kernel kills the process when the thread ends that started
// it, which is meant for the end of the router and must not happen before.
func (c *child) run() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		if errors.Is(err, fs.ErrPermission) && filepath.Dir(c.cmd.Path) == c.folder {
			err = fmt.Errorf("%w: if %s is mounted noexec, set TMPDIR to a folder that is not", err, filepath.Dir(c.folder))
		}
		started <- err
		if err != nil {
			return
		}
		reap := awaitExit(c.cmd)
		c.mu.Lock()
		_ = killGroup(c.cmd.Process.Pid) // what it started must not outlive it
		c.err = reap()
		c.over = true
		c.mu.Unlock()
		close(c.exited)
	}()
	return <-started
}

// signal sends something to the process, unless it is gone.
func (c *child) signal(send func(pid int) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started && !c.over {
		_ = send(c.cmd.Process.Pid)
	}
}

// stop asks the process to end: its standard input ends, and it gets SIGTERM.
func (c *child) stop() {
	c.signal(terminate)
	_ = c.stdin.Close()
}

// kill kills the process with all that it started, and waits until it is gone and what it said is read. The error is that it does not go.
func (c *child) kill() error {
	c.mu.Lock()
	c.killed = true
	started := c.started
	c.mu.Unlock()
	if !started {
		return nil
	}
	c.signal(killGroup)
	timer := time.NewTimer(killTime)
	defer timer.Stop()
	select {
	case <-c.exited:
	case <-timer.C:
		return fmt.Errorf("process %s does not end although it was killed", c.ID())
	}
	_ = c.stdin.Close()
	c.drain()
	return nil
}

// drain waits until what the process wrote is read.
func (c *child) drain() {
	done := make(chan struct{})
	go func() {
		c.drained.Wait()
		close(done)
	}()
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-done:
		closeAll(c.output)
	case <-timer.C:
		closeAll(c.output)
		<-done
	}
}

// drainStdout gives the first line to go-plugin and logs the rest.
func (c *child) drainStdout(ctx context.Context, stdout io.Reader, handshake *io.PipeWriter) {
	defer handshake.Close()
	buffered := bufio.NewReaderSize(stdout, longestHandshake)
	line, err := buffered.ReadSlice('\n')
	if len(line) > 0 {
		c.spoke = true
		c.secured = strings.Count(string(line), "|") >= 5 && len(line)-strings.LastIndexByte(string(line), '|') > 50
		if err != nil || !strings.Contains(string(line), "|") {
			line = []byte(lines.Clean(strings.TrimSpace(string(line)), 100) + "\n") // it will be quoted
		}
		if _, err := handshake.Write(line); err != nil {
			return
		}
	}
	to := c.lines.Writer(ctx, "stdout", slog.LevelInfo)
	_, _ = io.Copy(to, buffered)
	to.Flush()
}

// Diagnose implements runner.Runner.
func (c *child) Diagnose(context.Context) string {
	return "The first line on stdout must say where the plugin listens: see docs/PLUGINS.md"
}

// Stdout returns what go-plugin reads. It implements runner.Runner.
func (c *child) Stdout() io.ReadCloser { return c.handshake }

// Stderr returns nothing: it is drained here. It implements runner.Runner.
func (*child) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (c *child) Name() string { return c.cmd.Args[0] }

// Wait implements runner.AttachedRunner.
func (c *child) Wait(context.Context) error {
	<-c.exited
	return c.err
}

// Kill implements runner.AttachedRunner.
func (c *child) Kill(context.Context) error { return c.kill() }

// ID implements runner.AttachedRunner.
func (c *child) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		return ""
	}
	return strconv.Itoa(c.cmd.Process.Pid)
}

// PluginToHost checks where the plugin listens: where nobody else can. It implements runner.AddrTranslator.
func (c *child) PluginToHost(network, address string) (string, string, error) {
	inside, err := filepath.Rel(c.folder, address)
	if network != "unix" || err != nil || !filepath.IsLocal(inside) {
		return "", "", fmt.Errorf("the plugin listens on %s %s: it must be a unix socket in the folder that PLUGIN_UNIX_SOCKET_DIR names",
			lines.Clean(network, 10), lines.Clean(address, 100))
	}
	return network, address, nil
}

// HostToPlugin implements runner.AddrTranslator.
func (*child) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
