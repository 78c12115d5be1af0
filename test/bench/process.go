package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	native "github.com/deltarouter/deltarouter/pkg/plugins/process"
	sdk "github.com/deltarouter/deltarouter/sdk/process"
	"github.com/deltarouter/deltarouter/test/bench/report"
)

const (
	pluginRole  = "plugin" // the argument that makes this command the plugin
	pluginDelta = 2 << 10  // bytes of an object
	pluginTime  = 2 * time.Second
)

// servePlugin answers each delta with one small event.
func servePlugin() {
	sdk.Serve(sdk.Plugin{Name: "bench", Setup: sdk.Handle(func(_ context.Context, d sdk.Delta) ([]sdk.Event, error) {
		return []sdk.Event{{Data: []byte(`{"pod":"` + d.Name + `"}`)}}, nil
	})})
}

// compareBatches measures the cost of a delta in a native plugin: in batches of 64, and one per
// call.
func compareBatches(out *report.Report, rounds int) error {
	handler, err := openPlugin()
	if err != nil {
		return err
	}
	defer handler.Close(context.Background())
	sizes := []int{1, 64}
	took := make(map[int][]float64) // µs per delta
	for range rounds {
		for _, size := range sizes {
			each, err := timeBatches(handler, size)
			if err != nil {
				return err
			}
			took[size] = append(took[size], each)
		}
	}
	same := func(f float64) float64 { return f }
	one, many := median(took[1], same), median(took[64], same)
	return out.Add(report.Table{
		Part: "process", Title: "Batches of a native plugin",
		Text:   fmt.Sprintf("Time of a delta of %d bytes in a native plugin with AutoMTLS and one worker, %d rounds.", pluginDelta, rounds),
		Labels: []string{"deltas per call"},
		Columns: []report.Column{
			{Name: "µs/delta", Format: "%.1f"}, {Name: "time per delta", Format: "%.2f", Ratio: true},
		},
		Rows: []report.Row{
			{Labels: []string{"1"}, Figures: []float64{one, 1}},
			{Labels: []string{"64"}, Figures: []float64{many, many / one}},
		},
	})
}

func openPlugin() (plugins.Handler, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(self)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	yaml := fmt.Sprintf("{command: [%q, %s], sha256: %s}", self, pluginRole, hex.EncodeToString(sum[:]))
	node, problems := config.ParseNode("bench", []byte(yaml))
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return native.Kind().Open(context.Background(), node, plugins.HandlerEnv{Env: plugins.Env{
		Name: "bench", Log: slog.New(slog.DiscardHandler), Metrics: metrics.New(),
	}, Workers: 1})
}

// timeBatches returns the time per delta in µs.
func timeBatches(handler plugins.Handler, size int) (float64, error) {
	pods := &event.Resource{Cluster: "bench", Kind: "Pod"}
	pods.Version, pods.Resource = "v1", "pods"
	batch := make([]*event.Delta, size)
	for i := range batch {
		o, err := event.ParseObject(pods, fmt.Sprintf(`{"metadata":{"name":"p%d","namespace":"default","uid":"u%d","resourceVersion":"1"},"x":%q}`,
			i, i, strings.Repeat("x", pluginDelta-100)))
		if err != nil {
			return 0, err
		}
		batch[i] = &event.Delta{Source: "pods", Op: event.Added, New: o, Seen: time.Now()}
	}
	began, n := time.Now(), 0
	for time.Since(began) < pluginTime {
		results, err := handler.Handle(context.Background(), batch)
		if err != nil {
			return 0, err
		}
		for _, r := range results {
			if r.Verdict != plugins.OK || len(r.Events) != 1 {
				return 0, fmt.Errorf("%s: %w", r.Verdict, r.Err)
			}
		}
		n += size
	}
	return float64(time.Since(began).Microseconds()) / float64(n), nil
}
