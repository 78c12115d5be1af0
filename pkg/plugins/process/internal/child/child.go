package child

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
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/internal/printable"
)

const (
	// longestHandshake is how many bytes the line has at most with which a plugin says where it
	// listens.
	longestHandshake = 8 << 10
	// killTime is how long a process that was killed may take to be gone. It is long when the disk
	// does not answer.
	killTime = 10 * time.Second
	// DrainTime is how long it may take to read what a process wrote before it ended. Somebody whom
	// it started, and who left its group, may hold its output open for ever.
	DrainTime = time.Second
)

// Child is a program as the operating system has it. It implements go-plugin's runner.Runner,
// because go-plugin's own stops reading at a line that is too long, starts its processes on threads
// that may end, and kills only the process itself.
type Child struct {
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

// New returns a child that is not started. It may listen in the folder.
func New(cmd *exec.Cmd, folder string, l *lines.Log) *Child {
	return &Child{cmd: cmd, folder: folder, lines: l, tail: &tail{}, exited: make(chan struct{})}
}

// Start starts the process. It implements runner.Runner.
func (c *Child) Start(ctx context.Context) error {
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

// run starts the process on a thread that lives as long as the process: the kernel kills the
// process when the thread ends that started it, which is meant for the end of the router and must
// not happen before.
func (c *Child) run() error {
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
func (c *Child) signal(send func(pid int) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started && !c.over {
		_ = send(c.cmd.Process.Pid)
	}
}

// Stop asks the process to end: its standard input ends, and it gets SIGTERM.
func (c *Child) Stop() {
	c.signal(terminate)
	_ = c.stdin.Close()
}

// kill kills the process with all that it started, and waits until it is gone and what it said is
// read. The error is that it does not go.
func (c *Child) kill() error {
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
	c.Drain()
	return nil
}

// Drain waits until what the process wrote is read.
func (c *Child) Drain() {
	done := make(chan struct{})
	go func() {
		c.drained.Wait()
		close(done)
	}()
	timer := time.NewTimer(DrainTime)
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
func (c *Child) drainStdout(ctx context.Context, stdout io.Reader, handshake *io.PipeWriter) {
	defer handshake.Close()
	buffered := bufio.NewReaderSize(stdout, longestHandshake)
	line, err := buffered.ReadSlice('\n')
	if len(line) > 0 {
		c.spoke = true
		c.secured = strings.Count(string(line), "|") >= 5 && len(line)-strings.LastIndexByte(string(line), '|') > 50
		if err != nil || !strings.Contains(string(line), "|") {
			// it will be quoted
			line = []byte(printable.Clean(strings.TrimSpace(string(line)), 100) + "\n")
		}
		if _, err := handshake.Write(line); err != nil {
			return
		}
	}
	to := c.lines.Writer(ctx, "stdout", slog.LevelInfo)
	_, _ = io.Copy(to, buffered)
	to.Flush()
}

// KillGroup kills the process with all that it started, and does not wait.
func (c *Child) KillGroup() { c.signal(killGroup) }

// Exited returns a channel that is closed when the process is gone.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Err returns how the process ended, once Exited is closed.
func (c *Child) Err() error { return c.err }

// Said returns the last that the process wrote to stderr, on one line.
func (c *Child) Said() string { return c.tail.String() }

// Silent reports whether the process was started and wrote no line to stdout. It may be called when
// go-plugin has read the line, or has given up.
func (c *Child) Silent() bool { return c.started && !c.spoke }

// Secured reports whether the first line had a certificate. It may be called when Silent may be.
func (c *Child) Secured() bool { return c.secured }

// Diagnose implements runner.Runner.
func (c *Child) Diagnose(context.Context) string {
	return "The first line on stdout must say where the plugin listens: see docs/PLUGINS.md"
}

// Stdout returns what go-plugin reads. It implements runner.Runner.
func (c *Child) Stdout() io.ReadCloser { return c.handshake }

// Stderr returns nothing: it is drained here. It implements runner.Runner.
func (*Child) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (c *Child) Name() string { return c.cmd.Args[0] }

// Wait implements runner.AttachedRunner.
func (c *Child) Wait(context.Context) error {
	<-c.exited
	return c.err
}

// Kill implements runner.AttachedRunner.
func (c *Child) Kill(context.Context) error { return c.kill() }

// ID implements runner.AttachedRunner.
func (c *Child) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		return ""
	}
	return strconv.Itoa(c.cmd.Process.Pid)
}

// PluginToHost checks where the plugin listens: where nobody else can. It implements
// runner.AddrTranslator.
func (c *Child) PluginToHost(network, address string) (string, string, error) {
	inside, err := filepath.Rel(c.folder, address)
	if network != "unix" || err != nil || !filepath.IsLocal(inside) {
		return "", "", fmt.Errorf("the plugin listens on %s %s: it must be a unix socket in the folder that PLUGIN_UNIX_SOCKET_DIR names",
			printable.Clean(network, 10), printable.Clean(address, 100))
	}
	return network, address, nil
}

// HostToPlugin implements runner.AddrTranslator.
func (*Child) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// TailSize is how many bytes are told of what a plugin last said.
const TailSize = 500

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p[max(0, len(p)-TailSize):]...)
	t.text = t.text[max(0, len(t.text)-TailSize):]
	return len(p), nil
}

// String returns it on one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.FieldsFunc(printable.Text(t.text, len(string(utf8.RuneError))*TailSize), func(r rune) bool { return r == '\n' }), "; ")
}
