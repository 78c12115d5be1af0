package simulate_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/simulate"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/must"
)

// part is a sink and a handler that does nothing.
type part struct{}

func (part) Write(context.Context, []event.Event) []error { return nil }
func (part) Handle(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	return make([]plugins.Result, len(batch)), nil
}
func (part) Close(context.Context) error { return nil }

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestReplayWithoutNetwork shows that handlers send requests only in a replay with Deliver.
func TestReplayWithoutNetwork(t *testing.T) {
	for _, deliver := range []bool{false, true} {
		sends := false
		all := compile.Components{
			Sinks: []plugins.SinkKind{fakekind.Sink{Definition: fakekind.Define("stdout"), OpenFunc: func(context.Context, config.Node, plugins.SinkEnv) (plugins.Sink, error) {
				return part{}, nil
			}}},
			Handlers: []plugins.HandlerKind{fakekind.Handler{Definition: fakekind.Define("fake"), OpenFunc: func(_ context.Context, _ config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
				if sends = env.HTTP == nil; !sends {
					if _, err := (&http.Client{Transport: env.HTTP}).Get("http://127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "there is no network here") {
						t.Errorf("a request had the error %v", err)
					}
				}
				return part{}, nil
			}}},
		}
		log := slog.New(slog.DiscardHandler)
		o, problems := simulate.NewOffline(t.Context(), write(t, `version: 1
sources: {pods: {resource: v1/pods}}
handlers: {h: {fake: {}}}
sinks: {out: {stdout: {}}}
routes: [{name: r, from: pods, handler: h, to: out}]
`), "", all, "", log)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		recorded := strings.NewReader(`{"format":"deltarouter-recording","version":1,"cluster":"here","time":"2026-01-02T03:04:05Z","sources":{}}` + "\n" + `{"at":0,"op":"end"}`)
		_, err := o.Replay(t.Context(), simulate.ReplayOptions{Recording: recorded, Deliver: deliver, Stdout: io.Discard, Drain: time.Second})
		if err != nil || sends != deliver {
			t.Errorf("deliver %v: requests are sent: %v, %v", deliver, sends, err)
		}
	}
}
