package excerpt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/internal/history/excerpt"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var pods = &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod"}

func state(t *testing.T, name string, version int) *event.Object {
	t.Helper()
	o, err := event.ParseObject(pods, fmt.Sprintf(`{"metadata":{"namespace":"shop","name":%q,"uid":"u-%s","resourceVersion":"%d"}}`, name, name, version))
	must.Succeed(t, err)
	return o
}

// lines returns the lines of a recording as their op, time, name and version.
func lines(t *testing.T, text []byte) (all []string) {
	t.Helper()
	r, err := recording.NewReader(bytes.NewReader(text), recording.Limits{})
	must.Succeed(t, err)
	defer r.Close()
	for {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		must.Succeed(t, err)
		m := rawjson.Value(l.Object).Get("metadata")
		text := fmt.Sprintf("%s %s %s %s %s", l.At, l.Op, l.Source, m.Get("name").Str(), m.Get("resourceVersion").Str())
		if l.Stateless > 0 {
			text += fmt.Sprint("stateless ", l.Stateless)
		}
		if l.Stale {
			text += " stale"
		}
		all = append(all, strings.TrimSpace(text))
	}
}

// TestWrite shows that a recording of a history has the objects as they were at its begin, whether
// they have changed since or not, and then each change once.
func TestWrite(t *testing.T) {
	// Guarantee: backtest
	synctest.Test(t, func(t *testing.T) {
		settings := history.Settings{
			Keep: 24 * time.Hour, MaxSize: 512 << 20, Texts: true, Sources: map[string]history.SourceSettings{"names": {}},
		}
		l := history.Open(history.Config{Dir: t.TempDir(), Clock: timer.Real(), Log: slog.New(slog.DiscardHandler), Metrics: metrics.New()}, settings)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.Run(ctx) })
		defer running.Wait()
		defer stop()
		delta := func(source string, op event.Op, before, after *event.Object, change func(*event.Delta)) {
			d := &event.Delta{Source: source, Op: op, Old: before, New: after, Seen: time.Now()}
			change(d)
			l.Delta(d)
			time.Sleep(time.Minute)
		}
		usual := func(*event.Delta) {}
		l.Begin(&history.Begin{})
		delta("pods", event.Added, nil, state(t, "first", 1), func(d *event.Delta) { d.Initial = true })
		delta("pods", event.Updated, state(t, "early", 1), state(t, "early", 2), usual)
		begin := time.Now()
		delta("pods", event.Updated, state(t, "first", 1), state(t, "first", 3), usual)
		delta("pods", event.Added, nil, state(t, "new", 4), usual)
		delta("other", event.Updated, state(t, "x", 4), state(t, "x", 5), usual)
		delta("names", event.Updated, state(t, "name", 4), state(t, "name", 5), usual)
		delta("pods", event.Deleted, state(t, "gone", 2), nil, func(d *event.Delta) { d.Stale = true })
		// a crash: the last changes come again
		delta("pods", event.Added, nil, state(t, "new", 4), usual)
		delta("pods", event.Deleted, state(t, "gone", 2), nil, usual)
		delta("pods", event.Deselected, state(t, "new", 4), nil, usual)

		reader, err := l.Reader(t.Context())
		must.Succeed(t, err)
		delta("pods", event.Updated, state(t, "late", 5), state(t, "late", 6), usual) // behind the end
		cached := func(source string) iter.Seq[excerpt.Object] {
			all := map[string][]excerpt.Object{"pods": {
				{Key: event.Key{Namespace: "shop", Name: "early"}, Text: func() string { return string(state(t, "early", 2).Raw()) }},
				{Key: event.Key{Namespace: "shop", Name: "first"}, Text: func() string { return string(state(t, "first", 3).Raw()) }},
				{Key: event.Key{Namespace: "shop", Name: "later"}, Created: time.Now(), Text: func() string { return string(state(t, "later", 9).Raw()) }},
			}}
			return slices.Values(all[source])
		}
		header := recording.Header{Time: begin, Sources: map[string]recording.Source{"pods": {Resource: "v1/pods"}, "names": {Resource: "v1/pods"}}}
		write := func(o excerpt.Options) []string {
			t.Helper()
			var out bytes.Buffer
			w, err := recording.NewWriter(&out, true, header)
			must.Succeed(t, err)
			o.Span, o.Header, o.Cached = history.Span{From: begin, To: reader.End()}, header, cached
			must.Succeed(t, excerpt.Write(t.Context(), reader, w, o))
			must.Succeed(t, w.Close())
			return lines(t, out.Bytes())
		}
		want := []string{
			"0s existing pods first 1", "0s existing pods gone 2", "0s existing pods early 2", "0s synced names", "0s synced pods",
			"0s updated pods first 3", "1m0s added pods new 4", "4m0s deleted pods gone 2 stale", "7m0s deselected pods new 4", "8m0s end   stateless 1",
		}
		if got := write(excerpt.Options{}); !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		want = append(want[:5:5], "8m0s end")
		if got := write(excerpt.Options{Initial: true}); !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}
