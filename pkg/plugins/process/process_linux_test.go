package process_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/test/must"
)

const (
	stopSignal = syscall.SIGSTOP
	killSignal = syscall.SIGKILL
)

func signal(t testing.TB, pid int, s syscall.Signal) {
	t.Helper()
	must.Succeed(t, syscall.Kill(pid, s))
}

// gone waits until a process does not exist any more, or is a zombie of another parent.
func gone(t testing.TB, pid int) {
	t.Helper()
	eventually(t, "the process ends", func() bool {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid)
	})
}

func pidOf(t testing.TB, b *bench) (pid int) {
	t.Helper()
	text := strings.TrimPrefix(b.handle("pid")[0], "ok ")
	if err := json.Unmarshal([]byte(text), &pid); err != nil {
		t.Fatal(text, err)
	}
	return pid
}

func ended(t testing.TB, b *bench, reason string) float64 {
	t.Helper()
	return testutil.ToFloat64(b.env.Metrics.(*metrics.Metrics).GuestsEnded.WithLabelValues(b.env.Name, reason))
}

// lost returns the number of lost processes.
func (b *bench) lost() (n float64) {
	for _, reason := range []string{"exit", "timeout", "connection", "health", "start"} {
		n += ended(b.t, b, reason)
	}
	return n
}

// eventually waits for an effect of another process.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); !is(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func zombie(pid int) bool { return stateOf(pid) == "Z" }

// stateOf returns the letter of a process's state; empty: there is none.
func stateOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))[0]
}

// TestMemoryIsCounted shows that the memory of the process is in the metrics as long as it runs.
func TestMemoryIsCounted(t *testing.T) {
	b := newSharedBench(t)
	b.open("limits: {health: 10ms}")
	memory := func() float64 {
		_, memory := b.env.Metrics.(*metrics.Metrics).Guests(b.env.Name)
		return memory
	}
	eventually(t, "its memory is counted", func() bool { return memory() > 1<<20 })
	b.close()
	if left := memory(); left != 0 {
		t.Errorf("%v bytes are counted after its end", left)
	}
}
