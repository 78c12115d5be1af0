package discard_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/discard"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestContract(t *testing.T) {
	plugintest.RunSink(t, plugintest.Sink{
		Kind: discard.Kind(),
		Env:  plugins.SinkEnv{Env: plugins.Env{Name: "none", Log: slog.New(slog.DiscardHandler)}},
	})
}

func TestCounts(t *testing.T) {
	var log bytes.Buffer
	sink, err := discard.Kind().Open(t.Context(), plugintest.Node(t, "{}"), plugins.SinkEnv{Env: plugins.Env{Log: slog.New(slog.NewTextHandler(&log, nil))}})
	must.Succeed(t, err)
	events := plugintest.Events(t)
	sink.Write(t.Context(), events)
	sink.Write(t.Context(), events[:1])
	must.Succeed(t, sink.Close(t.Context()))
	if !strings.Contains(log.String(), "count=8") {
		t.Errorf("the log does not say count=8: %s", log.String())
	}
}

func TestMain(m *testing.M) { leaks.Main(m) }
