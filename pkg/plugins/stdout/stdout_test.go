package stdout_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	cloudevent "github.com/cloudevents/sdk-go/v2/event"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestContract(t *testing.T) {
	for _, config := range []string{"format: json", "format: text"} {
		t.Run(config, func(t *testing.T) {
			plugintest.RunSink(t, plugintest.Sink{Kind: stdout.Kind(), Config: config, Env: env(io.Discard)})
		})
	}
}

func env(out io.Writer) plugins.SinkEnv {
	return plugins.SinkEnv{Env: plugins.Env{Name: "out", Log: slog.New(slog.DiscardHandler)}, Stdout: out}
}

func open(t *testing.T, config string, out io.Writer) plugins.Sink {
	t.Helper()
	sink, err := stdout.Kind().Open(t.Context(), plugintest.Node(t, config), env(out))
	must.Succeed(t, err)
	return sink
}

func TestUnknownFormat(t *testing.T) {
	if stdout.Kind().Check(plugintest.Node(t, "format: xml")) == nil {
		t.Error("format: xml is accepted")
	}
}

func sample() event.Event {
	return event.Event{
		ID: "0a1b", Type: "io.deltarouter.updated", Source: "/clusters/c/sources/pods", Subject: "default/web-0",
		Time: time.Date(2026, 3, 1, 15, 4, 5, 600_000, time.UTC), Data: []byte(`{"restarts":4}`),
		Route: "restarts", K8sUID: "u-1", K8sResourceVersion: "42",
	}
}

func TestJSON(t *testing.T) {
	full := sample()
	full.Redelivered = true
	tests := []struct {
		name string
		edit func(*event.Event)
		want string
	}{
		{"everything", func(*event.Event) {}, `{"specversion":"1.0","id":"0a1b","source":"/clusters/c/sources/pods","type":"io.deltarouter.updated",` +
			`"subject":"default/web-0","time":"2026-03-01T15:04:05.0006Z","route":"restarts","k8suid":"u-1","k8sresourceversion":"42",` +
			`"redelivered":true,"datacontenttype":"application/json","data":{"restarts":4}}`},
		{"little", func(e *event.Event) { *e = event.Event{ID: "1", Type: "t", Source: "s"} }, `{"specversion":"1.0","id":"1","source":"s","type":"t"}`},
		{"escapes", func(e *event.Event) {
			*e = event.Event{ID: "1", Type: "a\"b\\c\n<é>", Source: "s", Data: []byte("{\n \"a\": \"b c\",\r\n \"d\": 1 }")}
		}, `{"specversion":"1.0","id":"1","source":"s","type":"a\"b\\c\n<é>","datacontenttype":"application/json","data":{"a":"b c","d":1}}`},
		{
			"no JSON", func(e *event.Event) { *e = event.Event{ID: "1", Type: "t", Source: "s", Data: []byte("{\n")} },
			`{"specversion":"1.0","id":"1","source":"s","type":"t","datacontenttype":"application/json","data":null}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := full
			tt.edit(&e)
			var out bytes.Buffer
			if errs := open(t, "{}", &out).Write(t.Context(), []event.Event{e}); errs != nil {
				t.Fatal(errs)
			}
			if got := strings.TrimSuffix(out.String(), "\n"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Another implementation can parse the output as CloudEvents.
func TestCloudEvent(t *testing.T) {
	var out bytes.Buffer
	events := append(plugintest.Events(t), sample())
	open(t, "{}", &out).Write(t.Context(), events)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(events) {
		t.Fatalf("%d lines for %d events", len(lines), len(events))
	}
	for i, line := range lines {
		var ce cloudevent.Event
		must.Succeed(t, json.Unmarshal([]byte(line), &ce))
		must.Report(t, ce.Validate())
		if ce.ID() != events[i].ID || !ce.Time().Equal(events[i].Time) || string(ce.Data()) != string(events[i].Data) {
			t.Errorf("line %d is not the event that was written: %s", i, line)
		}
	}
}

func TestText(t *testing.T) {
	// Guarantee: no-terminal-escapes
	at := sample().Time.Local().Format(time.TimeOnly)
	delta := plugintest.Deltas(t)[1]
	tests := []struct {
		name string
		edit func(*event.Event)
		want string
	}{
		{"a handler's event", func(*event.Event) {}, at + ` updated  pods default/web-0  restarts  {"restarts":4}`},
		{"its own type", func(e *event.Event) { e.Type = "com.example.restart" }, at + ` com.example.restart pods default/web-0  restarts  {"restarts":4}`},
		{"redelivered", func(e *event.Event) { e.Redelivered = true }, at + ` updated  pods default/web-0  restarts (redelivered)  {"restarts":4}`},
		{"the delta itself", func(e *event.Event) { e.Data = event.Payload(delta) }, at + ` updated  pods default/web-0  restarts`},
		{"no data", func(e *event.Event) { e.Data = nil }, at + ` updated  pods default/web-0  restarts`},
		{"terminal control", func(e *event.Event) { e.Data = []byte("\"a\u009b2Jb\x7f\"") }, at + " updated  pods default/web-0  restarts  \"a\\u009b2Jb\\u007f\""},
		{
			"long", func(e *event.Event) { e.Data = []byte(`"` + strings.Repeat("é", 2000) + `"`) },
			at + ` updated  pods default/web-0  restarts  "` + strings.Repeat("é", 499) + "…",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := sample()
			tt.edit(&e)
			var out bytes.Buffer
			open(t, "format: text", &out).Write(t.Context(), []event.Event{sample(), e})
			_, got, _ := strings.Cut(strings.TrimSuffix(out.String(), "\n"), "\n")
			if got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// lineCheck is a writer that fails if a write does not consist of complete lines.
type lineCheck struct {
	t  *testing.T
	mu sync.Mutex
}

func (l *lineCheck) Write(p []byte) (int, error) {
	if !l.mu.TryLock() {
		l.t.Error("two writes at the same time")
		return len(p), nil
	}
	defer l.mu.Unlock()
	if !bytes.HasSuffix(p, []byte("\n")) || bytes.Count(p, []byte("\n")) != 2 {
		l.t.Errorf("a batch of two is not written as two lines at once: %q", p)
	}
	return len(p), nil
}

func TestOneWritePerBatch(t *testing.T) {
	sink := open(t, "{}", &lineCheck{t: t})
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 20 {
				sink.Write(t.Context(), []event.Event{sample(), sample()})
			}
		})
	}
	writers.Wait()
}

// failing accepts a number of bytes, then fails once.
type failing struct {
	bytes.Buffer
	room int
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	if f.room < len(p) && f.err != nil {
		err := f.err
		f.err = nil
		n, _ := f.Buffer.Write(p[:f.room])
		return n, err
	}
	return f.Buffer.Write(p)
}

// After a partial write the complete lines are delivered. The next write ends the partial line
// first.
func TestTornWrite(t *testing.T) {
	var whole bytes.Buffer
	open(t, "{}", &whole).Write(t.Context(), []event.Event{sample()})
	out := &failing{room: whole.Len() + 20, err: errors.New("disk full")}
	sink := open(t, "{}", out)
	events := []event.Event{sample(), sample(), sample()}

	errs := sink.Write(t.Context(), events)
	if len(errs) != 3 || errs[0] != nil || errs[1] == nil || errs[2] == nil || plugins.ClassOf(errs[1]) == plugins.Rejected {
		t.Fatalf("got %v", errs)
	}
	if errs := sink.Write(t.Context(), events[1:]); errs != nil {
		t.Fatal(errs)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || lines[0] != lines[2] || lines[0] != lines[3] || len(lines[1]) != 20 {
		t.Errorf("got %q", lines)
	}
}

// A reader that does not read delays a write no longer than its context.
func TestNobodyReads(t *testing.T) {
	r, w := io.Pipe()
	sink := open(t, "{}", w)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	for range 2 { // the first blocks in the write, the second waits for the first
		if errs := sink.Write(ctx, []event.Event{sample()}); len(errs) != 1 || !errors.Is(errs[0], context.DeadlineExceeded) {
			t.Errorf("got %v", errs)
		}
	}
	if err := sink.Close(ctx); err == nil {
		t.Error("Close does not say that a write is stuck")
	}
	must.Succeed(t, r.Close())
	must.Report(t, sink.Close(t.Context()))
}

func TestMain(m *testing.M) { leaks.Main(m) }
