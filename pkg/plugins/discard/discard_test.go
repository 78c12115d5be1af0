package discard_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/discard"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

func TestContract(t *testing.T) {
	plugintest.RunSink(t, plugintest.Sink{
		Factory: discard.Factory(),
		Env:     plugins.Env{Name: "none", Log: slog.New(slog.DiscardHandler), Metrics: metrics.New()},
	})
}

func TestCounts(t *testing.T) {
	var log bytes.Buffer
	sink, err := discard.Factory().Open(t.Context(), plugintest.Node(t, "{}"), plugins.Env{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	events := plugintest.Events(t)
	sink.Write(t.Context(), events)
	sink.Write(t.Context(), events[:1])
	if err := sink.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "count=8") {
		t.Errorf("the log does not say count=8: %s", log.String())
	}
}
