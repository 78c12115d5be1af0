package process_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestMalformedAnswers: a malformed answer decides about no delta. The batch is halved until only
// the faulty delta has failed, with a short reason. The process continues.
func TestMalformedAnswers(t *testing.T) {
	b := newBench(t)
	b.openRole("raw", "tls: false")
	for _, tt := range []struct {
		name string
		want []string
	}{
		{"none", []string{"ok"}},
		{"other", []string{"fail", "malformed answer: result 0 is about delta 1 of 1, or about one that was answered"}},
		{"far", []string{"fail", "malformed answer: result 0 is about delta 4294967295 of 1"}},
		{"twice", []string{"fail", "malformed answer: result 1 is about delta 0 of 1, or about one that was answered"}},
		{"verdict", []string{"fail", "malformed answer: there is no verdict 9"}},
		{"eventful", []string{"fail", "malformed answer: 1 events with VERDICT_FAIL"}},
		{"long", []string{"fail", "long \uFFFD[31m\nlong", "…"}},
		{"latin", []string{"fail", "the plugin fails: Internal: ", "invalid UTF-8"}},
		{"noise", []string{"fail", "the plugin fails: Internal: "}},
		{"badjson", []string{"fail", "event 0 of the plugin: ", "not UTF-8"}},
		{"status", []string{"fail", "the plugin fails: Internal: status \uFFFD", "…"}},
		{"early", []string{"fail", "the plugin fails: DeadlineExceeded: a deadline of the plugin's own"}},
	} {
		got := b.handle("a", "b", tt.name, "c")
		contains(t, got[2], tt.want...)
		if len(got[2]) > 5000 || strings.Contains(got[2], "\x1b") {
			t.Errorf("%s: an error of %d bytes: %.200s", tt.name, len(got[2]), got[2])
		}
		for i, name := range map[int]string{0: "a", 1: "b", 3: "c"} {
			if want := `ok "` + name + `"`; got[i] != want {
				t.Errorf("beside %s: got %s, want %s", tt.name, got[i], want)
			}
		}
	}
	if lost := b.lost(); lost != 0 {
		t.Errorf("%v processes were lost over answers", lost)
	}
	b.close()
}

// TestStatusBeyondHeaders: an error that is too long for gRPC's stream fails its delta.
func TestStatusBeyondHeaders(t *testing.T) {
	if effort.Race {
		t.Skip("gRPC takes 20 s to send so large headers under the race detector")
	}
	b := newSharedBench(t)
	b.openRole("raw", "tls: false\nlimits: {breaker: 0}")
	got := b.handle("a", "toolong")
	contains(t, got[0], `ok "a"`)
	contains(t, got[1], "fail ")
	if len(got[1]) > 5000 {
		t.Errorf("an error of %d bytes", len(got[1]))
	}
	b.close()
}

// TestClosedSocket: a plugin without a connection is restarted, with and without a call.
func TestClosedSocket(t *testing.T) {
	// Guarantee: plugin-crash
	b := newSharedBench(t)
	b.openRole("raw", "tls: false\nlimits: {breaker: 0, health: 1h, timeout: 1h}")
	got := b.handle("unlisten", "a")
	contains(t, got[0], "fail ", "the plugin was lost: Unavailable: ")
	contains(t, got[1], `ok "a"`)
	if n := ended(t, b, "connection"); n < 2 {
		t.Errorf("%v processes were lost", n)
	}
	b.close()
}

// TestIll: a plugin that reports bad health is restarted.
func TestIll(t *testing.T) {
	// Guarantee: plugin-crash
	b := newSharedBench(t)
	b.openRole("raw", "tls: false\nlimits: {health: 3s}")
	contains(t, b.handle("ill")[0], `ok "ill"`)
	eventually(t, "it is started again", func() bool { return ended(t, b, "health") > 0 })
	contains(t, b.handle("a")[0], `ok "a"`)
	contains(t, b.log.String(), "health: the plugin says NOT_SERVING")
	b.close()
}

// TestStubborn: a plugin that ignores SIGTERM and the end of its standard input is killed after the
// timeout.
func TestStubborn(t *testing.T) {
	// Guarantee: plugin-crash
	b := newSharedBench(t)
	b.openRole("raw, stubborn", "tls: false\nlimits: {stopTimeout: 300ms}")
	contains(t, b.handle("a")[0], `ok "a"`)
	b.close()
	contains(t, b.log.String(), "plugin did not stop in time; it is killed")
}

// TestToldTwice: a plugin is stopped by a signal and by the end of its standard input, and may
// react to either.
func TestToldTwice(t *testing.T) {
	for _, role := range []string{"raw, deaf to signals", "bare"} {
		b := newBench(t)
		b.openRole(role, "tls: "+map[bool]string{true: "true", false: "false"}[role == "bare"]+"\nlimits: {stopTimeout: 1m}")
		b.close()
		if strings.Contains(b.log.String(), "is killed") {
			t.Errorf("%s was killed", role)
		}
	}
}

// TestEndsAtConfigure: a plugin that fails Configure after a restart is restarted too. Meanwhile
// deltas are postponed and not rejected.
func TestEndsAtConfigure(t *testing.T) {
	// Guarantee: plugin-crash
	b := newBench(t)
	h := b.openRole("raw, ends at the second Configure", "tls: false\nenv: {ONCE: "+b.folder+"/once}\nlimits: {breaker: 2}")
	for _, pid := range children(t) {
		signal(t, pid, killSignal)
	}
	eventually(t, "callers are turned away", func() bool {
		results, err := h.Handle(t.Context(), deltas(t, "a"))
		return err == nil && results[0].Verdict == plugins.Retry && plugins.ClassOf(results[0].Err) == plugins.Postponed &&
			strings.Contains(results[0].Err.Error(), "starting it: the plugin has ended: exit status 8")
	})
	b.close()
}

// TestExactSizes: messages up to exactly limits.input and limits.output pass. A larger one does not
// end the process.
func TestExactSizes(t *testing.T) {
	b := newBench(t)
	b.openRole("raw", "tls: false\nlimits: {input: 8Mi, output: 5Mi}")
	got := b.handle("a", "size.5242880", "size.5242881", "b")
	for i, want := range []string{`ok "a"`, `ok "xxxx`, "fail ", `ok "b"`} {
		if !strings.HasPrefix(got[i], want) {
			t.Errorf("%d: got %.300s, want %s", i, got[i], want)
		}
	}
	contains(t, got[2], "5242881 bytes of events, at most 5242880 (limits.output)")
	const limit = 8 << 20
	give := func(size int) plugins.Result {
		results, err := b.handler.Handle(t.Context(), []*event.Delta{{Source: "pods", Op: event.Added, New: plugintest.Pod(t, "a", 1, size)}})
		must.Succeed(t, err)
		return results[0]
	}
	var is, most int // without the bytes of a delta beside its x's
	refused := give(limit).Err
	if _, err := fmt.Sscanf(refused.Error()[strings.Index(refused.Error(), "it has "):], "it has %d bytes, at most %d (limits.input)", &is, &most); err != nil || most != limit {
		t.Fatal(refused)
	}
	if r := give(2*limit - is); r.Verdict != plugins.OK {
		t.Errorf("a delta of just as many bytes: %v", r.Err)
	}
	if r := give(2*limit - is + 1); r.Verdict != plugins.Fail || plugins.ClassOf(r.Err) != plugins.Rejected {
		t.Errorf("a delta of a byte more: %v", r)
	}
	if lost := b.lost(); lost != 0 {
		t.Errorf("%v processes were lost over sizes", lost)
	}
	b.close()
}

// TestLargeDescription: the description of a plugin is logged up to a limit, and an invalid schema
// does not prevent its start.
func TestLargeDescription(t *testing.T) {
	b := newBench(t)
	b.openRole("raw, large description", "tls: false")
	contains(t, b.handle("a")[0], `ok "a"`)
	b.close()
	contains(t, b.log.String(), "the plugin's configuration is not checked, because its schema cannot be used")
	if n := len(b.log.String()); n > 5000 {
		t.Errorf("%d bytes are logged", n)
	}
}

// TestEndlessLines: output without a line end is read, and logged as one truncated line.
func TestEndlessLines(t *testing.T) {
	b := newBench(t)
	b.open("limits: {logLine: 100}")
	contains(t, b.handle("endless")[0], "ok ")
	contains(t, b.handle("a")[0], "ok ")
	b.close()
	for _, from := range []string{"stdout", "stderr"} {
		if n := strings.Count(b.log.String(), "from="+from+" text=\"\uFFFD"); n != 1 {
			t.Errorf("%d lines of %s", n, from)
		}
	}
	if n := len(b.log.String()); n > 5000 {
		t.Errorf("%d bytes are logged", n)
	}
}

// TestDaemon: a process that leaves the plugin's group and keeps its output open delays nothing.
func TestDaemon(t *testing.T) {
	// Guarantee: plugin-crash
	b := newBench(t)
	b.open("")
	pid := strings.TrimPrefix(b.handle("daemon")[0], "ok ")
	var of int
	if _, err := fmt.Sscan(pid, &of); err != nil {
		t.Fatal(pid, err)
	}
	defer signal(t, of, killSignal)
	contains(t, b.handle("crash")[0], "fail ")
	contains(t, b.handle("a")[0], "ok ")
	b.close()
	if stateOf(of) == "" {
		t.Error("it was no such thing")
	}
}
