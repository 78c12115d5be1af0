package router

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/internal/trace/export"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// tracing is the export of traces, which a reload replaces.
type tracing struct {
	tracer   trace.Tracer
	exporter *export.Exporter // nil: tracing is off
	content  string           // the configuration of exporter
}

// use makes the section of a configuration the present one. Spans that have begun are exported by
// it, too.
func (t *tracing) use(ctx context.Context, c *config.Traces, env export.Env) error {
	content := ""
	if c != nil {
		text, err := c.JSON()
		if err != nil {
			return err
		}
		content = string(text)
	}
	// An unchanged section keeps its exporter, with the spans that wait in it.
	if content == t.content {
		return nil
	}
	var next *export.Exporter
	if c != nil {
		var err error
		if next, err = export.New(ctx, c, env); err != nil {
			return err
		}
		t.tracer.Use(next)
	} else {
		t.tracer.Use(nil)
	}
	// After the change, so that no span goes to a closed exporter.
	err := t.close(ctx)
	t.exporter, t.content = next, content
	return err
}

// close exports the spans that wait, until ctx is done.
func (t *tracing) close(ctx context.Context) error {
	if t.exporter == nil {
		return nil
	}
	err := t.exporter.Close(ctx)
	t.exporter = nil
	return err
}

// useTraces starts, replaces or ends the export of traces.
func (r *router) useTraces(ctx context.Context, cfg *config.Config) error {
	return r.tracing.use(ctx, cfg.Traces, export.Env{Version: r.opts.Version, Cluster: cfg.Cluster.Name, Metrics: r.Metrics, Log: r.Log})
}
