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

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/internal/printable"
)

const (
	// longestHandshake is the maximum length of the handshake line, in which a plugin names its
	// address.
	longestHandshake = 8 << 10
	// killTime is the maximum time for the end of a killed process. It is long because a disk may
	// not answer.
	killTime = 10 * time.Second
	// DrainTime is the maximum time to read the output of an ended process. A descendant that left
	// its group may keep the output open.
	DrainTime = time.Second
)

// Child is a process of a program. It implements go-plugin's runner.Runner. The one of go-plugin
// stops reading after a line that is too long, starts processes on threads that may end, and kills
// only the process itself.
type Child struct {
	cmd    *exec.Cmd
	folder string // the folder for the plugin's socket
	lines  *lines.Log
	tail   *tail // of stderr

	stdin     *os.File // open while the plugin may run
	output    []*os.File
	handshake *io.PipeReader // the first line of stdout, for go-plugin
	spoke     bool           // there was one; is written before go-plugin gets it, or there is none
	secured   bool           // it contained a certificate; likewise

	exited  chan struct{} // closed when the process has ended
	err     error         // its exit error; set before exited is closed
	drained sync.WaitGroup

	mu      sync.Mutex
	started bool // the fields above are set
	killed  bool // it must not be started any more
	over    bool // its number may belong to another process
}

// New returns a child that is not started. The plugin may listen in the folder.
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

// run starts the process on a thread that exists as long as the process. The kernel kills the
// process when its starting thread ends. This is intended for the end of the router, and must not
// happen before.
func (c *Child) run() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- c.explain(err)
		if err != nil {
			return
		}
		reap := awaitExit(c.cmd)
		c.mu.Lock()
		_ = killGroup(c.cmd.Process.Pid) // its descendants must not outlive it
		c.err = reap()
		c.over = true
		c.mu.Unlock()
		close(c.exited)
	}()
	return <-started
}

// explain adds the remedy to the error of a start.
func (c *Child) explain(err error) error {
	if err == nil {
		return nil
	}
	remedy := ""
	switch {
	case errors.Is(err, fs.ErrPermission) && filepath.Dir(c.cmd.Path) == c.folder:
		remedy = fmt.Sprintf(": if %s is mounted noexec, set TMPDIR to a folder that is not", filepath.Dir(c.folder))
	case errors.Is(err, fs.ErrNotExist):
		remedy = ": the interpreter or the dynamic linker that it needs may be missing"
	}
	return fmt.Errorf("it cannot be started: %w%s", fileerr.Cause(err), remedy)
}

// signal sends a signal to the process, unless it has ended.
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

// kill kills the process with its descendants, waits until it has ended, and reads its output. The
// error means that it does not end.
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

// Drain waits until the output of the process has been read.
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

// drainStdout passes the first line to go-plugin and logs the rest.
func (c *Child) drainStdout(ctx context.Context, stdout io.Reader, handshake *io.PipeWriter) {
	defer handshake.Close()
	buffered := bufio.NewReaderSize(stdout, longestHandshake)
	line, err := buffered.ReadSlice('\n')
	if len(line) > 0 {
		c.spoke = true
		c.secured = strings.Count(string(line), "|") >= 5 && len(line)-strings.LastIndexByte(string(line), '|') > 50
		if err != nil || !strings.Contains(string(line), "|") {
			// an error may quote it
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

// KillGroup kills the process with its descendants, without waiting.
func (c *Child) KillGroup() { c.signal(killGroup) }

// Exited returns a channel that is closed when the process has ended.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Err returns the exit error of the process. It is valid after Exited is closed.
func (c *Child) Err() error { return c.err }

// Said returns the end of the process's stderr, on one line.
func (c *Child) Said() string { return c.tail.String() }

// Silent reports whether the process was started and wrote no line to stdout. It is valid after
// go-plugin has read the line or given up.
func (c *Child) Silent() bool { return c.started && !c.spoke }

// Secured reports whether the first line contained a certificate. It is valid when Silent is.
func (c *Child) Secured() bool { return c.secured }

// Diagnose implements runner.Runner.
func (c *Child) Diagnose(context.Context) string {
	return "The first line on stdout must name the address of the plugin: see docs/ABI.md"
}

// Stdout returns the handshake line for go-plugin. It implements runner.Runner.
func (c *Child) Stdout() io.ReadCloser { return c.handshake }

// Stderr returns an empty reader, because Child reads stderr itself. It implements runner.Runner.
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

// PluginToHost checks that the plugin listens in its private folder. It implements
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

// TailSize is the maximum length of the quoted end of stderr, in bytes.
const TailSize = 500

// tail keeps the end of the text that is written to it. It is safe for concurrent use.
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

// String returns the end on one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.FieldsFunc(printable.Text(t.text, len(string(utf8.RuneError))*TailSize), func(r rune) bool { return r == '\n' }), "; ")
}
