package child

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestThreadsMayEnd: a plugin does not end with a thread of the router. The kernel's parent-death
// signal concerns the thread that forked, and Go ends a thread when a goroutine returns that is
// locked to it.
func TestThreadsMayEnd(t *testing.T) {
	// Guarantee: plugin-ends
	program, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal("there is no cat: ", err)
	}
	plugin := &exec.Cmd{Path: program, Args: []string{program}}
	c := New(plugin, t.TempDir(), lines.New(slog.New(slog.DiscardHandler), 1, 16))
	thread := make(chan int)
	var start func()
	start = func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // the first thread never ends
			go start()
			runtime.UnlockOSThread()
			return
		}
		if err := c.Start(t.Context()); err != nil { // and never unlocks it
			t.Error(err)
		}
		thread <- unix.Gettid()
	}
	go start()
	threadEnds(t, <-thread)
	if _, err := c.stdin.WriteString("alive\n"); err != nil {
		t.Error(err)
	}
	if said, err := bufio.NewReader(c.Stdout()).ReadString('\n'); said != "alive\n" {
		t.Errorf("it says %q (%v): it ended with the thread", said, err)
	}
	// A goroutine that is not locked keeps its thread most of the time, but not if it is
	// interrupted between forking and waiting. So the test checks the lock in the goroutine's
	// stack.
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	waiting := regexp.MustCompile(`(?m)^goroutine \d+ [^\n]*locked to thread\]:\n(?:[^\n]+\n)*?[^\n]*child\.awaitExit\(`)
	if !waiting.Match(stacks) {
		t.Errorf("who waits for the process is not locked to the thread that forked it:\n%s", stacks)
	}
	must.Report(t, c.kill())
}

// threadEnds waits until a thread of this process has ended.
func threadEnds(t *testing.T, id int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); ; {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", id)); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the thread does not end")
		}
	}
}
