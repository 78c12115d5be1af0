package stdio_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdio"
	"github.com/deltarouter/deltarouter/test/handlertest"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestContract(t *testing.T) {
	plugintest.RunHandler(t, plugintest.Handler{Kind: stdio.Kind(), Config: mode(t, "names", "]"), Env: newRouter(t).env})
}

// TestFields: the configuration or the module declares the fields.
func TestFields(t *testing.T) {
	// Guarantee: handler-fields
	text, err := os.ReadFile(module(t))
	must.Succeed(t, err)
	const name, content = "deltarouter.fields", "status.phase\n"
	section := slices.Concat([]byte{byte(len(name))}, []byte(name), []byte(content))
	declaring := filepath.Join(t.TempDir(), "guest.wasm")
	must.Succeed(t, os.WriteFile(declaring, slices.Concat(text, []byte{0}, binary.AppendUvarint(nil, uint64(len(section))), section), 0o600))
	for _, config := range []string{
		mode(t, "objects", "], fields: [status.phase]"), fmt.Sprintf("{module: %q, args: [objects]}", declaring),
	} {
		handlertest.Fields(t, newRouter(t).open(t, config), "web")
	}
}

// TestAnswers shows the results of lines.
func TestAnswers(t *testing.T) {
	const malformed = `fail stdio "audit": malformed answer: `
	for _, tt := range []struct{ name, line, want string }{
		{"no events", `{"events": []}`, "ok"},
		{"two events", `{"events":[{"data":1},{"type":"t","subject":"s","data":{"a":null}}]}`, `ok 1 {"a":null}`},
		{"spaces", "  {\"events\":[{\"data\":1}]} \r", "ok 1"},
		{"drop", `{"drop":true}`, "drop"},
		{"retry", `{"retry":"not yet","afterMs":5000}`, `retry stdio "audit": not yet`},
		{"error", `{"error":"on purpose"}`, `fail stdio "audit": on purpose`},
		{"an event without data", `{"events":[{"type":"t"}]}`, `fail stdio "audit": event 0: it has no data`},
		{"two verdicts", `{"drop":true,"error":"x"}`, malformed + "it is neither a list of events nor an object with one of events, drop, retry and error"},
		{"a list", `[]`, malformed + `it asks for the next delta, but has not answered this one: print one line such as {"events": []}, and flush stdout; the log has 1 lines that are no answers`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newRouter(t).open(t, mode(t, "verdict", fmt.Sprintf(", %q]", tt.line)))
			if got := handle(t, h, "a"); got[0] != tt.want {
				t.Errorf("got %s\nwant %s", got[0], tt.want)
			}
		})
	}
}

// TestBehaviour shows how a delta fails alone, and that the command goes on or is started again.
// The third number of an event of the mode "names", and each other number, counts the deltas of
// the command since its start.
func TestBehaviour(t *testing.T) {
	// Guarantee: command-alone
	const object = `fail stdio "audit": `
	for _, tt := range []struct {
		mode, limits string
		want         []string // for the pods a, bad, b
		ended        string   // the reason in the metric; empty: the command goes on
	}{
		{mode: "names", want: []string{`ok ["a","2",1]`, `ok ["bad","3",2]`, `ok ["b","4",3]`}},
		{mode: "stray", want: []string{"ok 1", "ok 2", "ok 3"}},
		{mode: "stderr", want: []string{"ok 1", "ok 2", "ok 3"}},
		{mode: "pieces", want: []string{"ok 1", "ok 2", "ok 3"}},
		{mode: "twice", want: []string{"ok 1", object + "malformed answer: it printed 2 answers to one delta: print one line per delta", "ok 1"}, ended: "answer"},
		{mode: "never", want: []string{"ok 1", object + `malformed answer: it asks for the next delta, but has not answered this one: print one line such as {"events": []}, and flush stdout`, "ok 1"}, ended: "answer"},
		{mode: "partial", want: []string{"ok 1", object + `malformed answer: it asks for the next delta, but has not answered this one: print one line such as {"events": []}, and flush stdout; its last line has no newline`, "ok 1"}, ended: "answer"},
		{mode: "ahead", want: []string{"ok 1", object + `malformed answer: it asks for the next delta, but has not answered this one: print one line such as {"events": []}, and flush stdout`, "ok 1"}, ended: "answer"},
		{mode: "exit", want: []string{"ok 1", "ok 2", "ok 1"}, ended: "exit"},
		{mode: "exit early", want: []string{"ok 1", object + "the guest exited with code 0 before it answered", "ok 1"}, ended: "trap"},
		{mode: "exit 3", want: []string{"ok 1", object + "the guest exited with code 3", "ok 1"}, ended: "exit"},
		{mode: "panic", want: []string{"ok 1", object + "the guest exited with code 2", "ok 1"}, ended: "exit"},
		{mode: "loop", want: []string{"ok 1", object + "out of fuel: one delta takes more than 75000000 instructions: raise limits.fuel, or do less", "ok 1"}, ended: "fuel"},
		{mode: "long", limits: "output: 4Ki", want: []string{"ok 1", object + "the answer is too long: more than 4096 bytes (limits.output)", "ok 3"}},
		{mode: "endless", want: []string{"ok 1", object + "out of fuel: one delta takes more than 75000000 instructions: raise limits.fuel, or do less", "ok 1"}, ended: "fuel"},
		{mode: "memory", limits: "fuel: 1G", want: []string{"ok 1", object + "the guest exited with code 2", "ok 1"}, ended: "exit"},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			r := newRouter(t)
			h := r.open(t, mode(t, tt.mode, "], limits: {"+tt.limits+"}"))
			if got := handle(t, h, "a", "bad", "b"); strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			ended := r.env.Metrics.(*metrics.Metrics).GuestsEnded
			if n := testutil.CollectAndCount(ended); tt.ended == "" && n != 0 {
				t.Errorf("the command was replaced %d times", n)
			}
			if tt.ended != "" && testutil.ToFloat64(ended.WithLabelValues(r.env.Name, tt.ended)) != 1 {
				t.Errorf("no command ended for the reason %s", tt.ended)
			}
		})
	}
}

// TestLog: stray lines and stderr are in the log, within the rate of the handler.
func TestLog(t *testing.T) {
	for _, tt := range []struct {
		mode, limits string
		want         []string
	}{
		{"stray", "", []string{"from=stdout text=started", `from=stdout text="working on it"`, `from=stdout text="{\"level\":\"info\",\"events\":[]}"`, `text="[1, 2"`}},
		{"stderr", "", []string{`level=WARN msg="handler says" handler=audit from=stderr text="on stderr"`}},
		{"stray", "log: 1", []string{"lines left out"}},
		{"long", "logLine: 16", []string{"text=yyyyyyyyyyyyy…"}},
	} {
		t.Run(tt.mode+tt.limits, func(t *testing.T) {
			r := newRouter(t)
			r.env.Log = r.env.Log.With("handler", "audit")
			h := r.open(t, mode(t, tt.mode, "], limits: {"+tt.limits+"}"))
			handle(t, h, "a", "stray", "b")
			if err := h.Close(t.Context()); err != nil {
				t.Error(err)
			}
			for _, want := range append(tt.want, "the end of stdin") {
				if strings.HasPrefix(tt.limits, "log") && want == "the end of stdin" {
					continue
				}
				if !strings.Contains(r.log.String(), want) {
					t.Errorf("the log lacks %s:\n%s", want, r.log.String())
				}
			}
		})
	}
}

// TestFuelOfALine: the fuel of a delta is for all reads of its line, and not for each.
func TestFuelOfALine(t *testing.T) {
	// Guarantee: command-alone
	h := newRouter(t).open(t, mode(t, "small reads", "]"))
	large := pods(t, "a", "bad", "b")
	large[1].New = plugintest.Pod(t, "bad", 9, 10_000)
	results, err := h.Handle(t.Context(), large)
	must.Succeed(t, err)
	for i, want := range []string{"ok 1", `fail stdio "audit": out of fuel: one delta takes more than 75000000 instructions: raise limits.fuel, or do less`, "ok 1"} {
		if got := describe(results[i]); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}
