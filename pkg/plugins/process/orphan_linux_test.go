package process_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/process"
	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
	"github.com/deltarouter/deltarouter/test/must"
)

// asRouter is the role of a process that opens a handler, prints the number of its plugin and waits
// to be killed.
func asRouter() {
	t := &testing.T{}
	env := plugins.HandlerEnv{Env: plugins.Env{Name: "legacy", Log: slog.New(slog.DiscardHandler)}, Workers: 1}
	h, err := process.Kind().Open(context.Background(), plugintest.Node(t, programYAML(os.Args[2], "limits: {health: 1h}")), env)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	results, err := h.Handle(context.Background(), []*event.Delta{{Op: event.Added, New: plugintest.Pod(t, "pid", 1, 1)}})
	if err != nil || len(results[0].Events) != 1 {
		fmt.Println(results, err)
		os.Exit(1)
	}
	fmt.Println(string(results[0].Events[0].Data))
	wait()
}

// TestNoOrphans: a plugin ends with a killed router, even if it ignores its standard input, by a
// signal of Linux. The next router removes the files of the killed one.
func TestNoOrphans(t *testing.T) {
	// Guarantee: plugin-ends
	for _, role := range []string{"sdk", "bare"} {
		t.Run(role, func(t *testing.T) {
			b := newBench(t)
			file, _ := self()
			cmd := exec.Command(file, "router", role)
			stdin, err := cmd.StdinPipe()
			must.Succeed(t, err)
			defer stdin.Close()
			stdout, err := cmd.StdoutPipe()
			must.Succeed(t, err)
			must.Succeed(t, cmd.Start())
			line, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil && err != io.EOF { //nolint:errorlint // it is not wrapped
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			signal(t, cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
			gone(t, pid)
			left := folders(t, b.folder)
			if len(left) != 1 {
				t.Fatalf("it leaves the folders %q", left)
			}
			must.Succeed(t, os.Chtimes(left[0], longAgo, longAgo))
			b.open("")
			if now := folders(t, b.folder); len(now) != 1 || now[0] == left[0] {
				t.Errorf("the next router leaves the folders %q", now)
			}
			b.close()
		})
	}
}

// TestEndOfStandardInput: a plugin ends by itself after its router, on systems without such a
// signal.
func TestEndOfStandardInput(t *testing.T) {
	// Guarantee: plugin-ends
	b := newBench(t)
	file, _ := self()
	cmd := exec.Command(file, "sdk")
	cmd.Env = []string{pluginv1.CookieKey + "=" + pluginv1.CookieValue, "PLUGIN_PROTOCOL_VERSIONS=1", "PLUGIN_UNIX_SOCKET_DIR=" + b.folder}
	stdin, err := cmd.StdinPipe()
	must.Succeed(t, err)
	stdout, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "1|1|unix|"+b.folder) {
		t.Errorf("%q, %v", line, err)
	}
	_ = stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
}
