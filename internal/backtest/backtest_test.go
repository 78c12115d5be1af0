package backtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/backtest"
	"github.com/deltarouter/deltarouter/internal/cases"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/emit"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/internal/simulate"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/discard"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// asker is a handler that sends a request for each object.
type asker struct{ env plugins.HandlerEnv }

func (a asker) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	results := make([]plugins.Result, len(batch))
	for i, d := range batch {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://example.com/"+d.Key().Name+"?token=secret", nil)
		if err != nil {
			return nil, err
		}
		response, err := a.env.HTTP.RoundTrip(request)
		if err != nil {
			results[i] = plugins.Result{Verdict: plugins.Fail, Err: err}
			continue
		}
		body, err := io.ReadAll(response.Body)
		if err = errors.Join(err, response.Body.Close()); err != nil {
			return nil, err
		}
		results[i] = plugins.Result{Events: []plugins.Emit{{Data: body}}}
	}
	return results, nil
}

func (a asker) Close(context.Context) error { return nil }

func components() compile.Components {
	ask := fakekind.Handler{Definition: fakekind.Define("ask"), OpenFunc: func(_ context.Context, _ config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
		return asker{env}, nil
	}}
	return compile.Components{Handlers: []plugins.HandlerKind{ask}, Sinks: []plugins.SinkKind{discard.Kind()}, Emit: emit.New}
}

// TestRequests: a handler gets the answers of test cases. A request without one fails, and the
// report says so without the path, which may have a secret.
func TestRequests(t *testing.T) {
	o := offline(t, `version: 1
sources: {pods: {resource: v1/pods}}
handlers: {ask: {ask: {}}}
sinks: {out: {discard: {}}}
routes: [{name: asks, from: pods, handler: ask, to: out}]
`)
	answers, problems := cases.Answers("a_test.yaml", []byte(`cases:
  - {name: a, given: {http: [{url: "https://example.com/a*", json: {is: a}}], deltas: []}, expect: none}
`), backtest.ErrNoAnswer)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	lines := `{"format":"deltarouter-recording","version":1,"cluster":"here","time":"2026-01-02T17:00:00Z","sources":{"pods":{"resource":"v1/pods"}}}
{"at":0,"op":"synced","source":"pods"}
{"at":1,"op":"added","source":"pods","object":{"metadata":{"name":"a","uid":"u1","resourceVersion":"1"}}}
{"at":2,"op":"added","source":"pods","object":{"metadata":{"name":"b","uid":"u2","resourceVersion":"2"}}}
{"at":9,"op":"end"}
`
	r, err := backtest.Run(t.Context(), backtest.Options{
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(lines)), nil }, New: o, Answers: answers,
	})
	must.Succeed(t, err)
	want := []string{"handler ask sends GET https://example.com: 4 requests without an answer, so the handler got an error: give one with -answers"}
	if len(r.Events) != 2 || string(r.Events[0].Data) != `{"is":"a"}` || r.Events[1].Error == "" || !slices.Equal(r.Notes, want) {
		t.Errorf("got %+v, notes %q, want %q", r.Events, r.Notes, want)
	}
	if s := r.Routes[0]; s.Told != 1 || s.Failed != 1 {
		t.Errorf("got %+v", s)
	}
}

const rules = `version: 1
sources: {pods: {resource: v1/pods, indexes: {byNode: object.spec.nodeName}}}
sinks: {out: {discard: {}}}
routes:
  - {name: moves, from: pods, to: out, filter: 'op == "updated" && object.status.phase != oldObject.status.phase && object.metadata.name == "p-7"', emit: '{"name": object.metadata.name}'}
  - {name: unready, from: pods, to: out, when: 'object.status.phase == "Pending"', for: 5m, emit: '{"name": object.metadata.name, "neighbours": count("pods.byNode", object.spec.nodeName)}'}
`

// week returns a recording of a cluster with 1,000 pods, in which each pod changes once a minute:
// as long as hours.
func week(tb testing.TB, hours int) []byte {
	tb.Helper()
	var out bytes.Buffer
	begin := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	w, err := recording.NewWriter(&out, true, recording.Header{Cluster: "test", Time: begin, Sources: map[string]recording.Source{"pods": {Resource: "v1/pods"}}})
	must.Succeed(tb, err)
	filler := strings.Repeat("x", 4000)
	version := 0
	line := func(op recording.Op, at time.Duration, i int) {
		version++
		must.Succeed(tb, w.Write(recording.Line{Op: op, At: at, Source: "pods", Kind: "Pod", Object: fmt.Sprintf(
			`{"metadata":{"namespace":"shop","name":"p-%d","uid":"u-%d","resourceVersion":"%d"},"spec":{"nodeName":"n-%d","filler":%q},"status":{"phase":%q,"reason":"%d"}}`,
			i, i, version, i%50, filler, []string{"Running", "Running", "Running", "Pending"}[(version/1000+i)/7%4], version)}))
	}
	for i := range 1000 {
		line(recording.Existing, 0, i)
	}
	must.Succeed(tb, w.Write(recording.Line{Op: recording.Synced, Source: "pods"}))
	for minute := range hours * 60 {
		for i := range 1000 {
			line(recording.Updated, time.Duration(minute)*time.Minute+time.Duration(i)*60*time.Millisecond, i)
		}
	}
	must.Succeed(tb, w.Write(recording.Line{Op: recording.End, At: time.Duration(hours) * time.Hour}))
	must.Succeed(tb, w.Close())
	return out.Bytes()
}

func offline(tb testing.TB, rules string) *simulate.Offline {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "config.yaml")
	must.Succeed(tb, os.WriteFile(path, []byte(rules), 0o600))
	o, problems := simulate.NewOffline(tb.Context(), path, "", components(), "", slog.New(slog.DiscardHandler))
	if len(problems) > 0 {
		tb.Fatal(problems)
	}
	return o
}

// BenchmarkBacktest shows the hours of a cluster with 1,000 pods, each of which changes once a
// minute, that a backtest runs per second.
func BenchmarkBacktest(b *testing.B) {
	const hours = 1
	text, o := week(b, hours), offline(b, rules)
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	for b.Loop() {
		r, err := backtest.Run(b.Context(), backtest.Options{Open: open, New: o})
		if err != nil || r.Changes != hours*60_000 || r.Routes[0].Told == 0 || r.Routes[1].Told == 0 {
			b.Fatalf("%+v, %v", r.Routes, err)
		}
	}
	b.ReportMetric(float64(hours*b.N)/b.Elapsed().Seconds(), "hours/s")
	b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N*hours*60_000), "µs/change")
}
