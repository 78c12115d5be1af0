package router

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// openHistory opens the history, if the configuration has one. The engine passes it the deltas of
// the sources, and the tracer the finished spans of the routes.
func (r *router) openHistory() {
	cfg := r.Set.Plan.Config
	if !cfg.History.IsOn() {
		return
	}
	l := history.Open(history.Config{
		Dir: filepath.Join(cfg.State.Dir, history.Folder), Clock: r.Clock, Log: r.Log, Metrics: r.Metrics, Room: r.State.HistoryRoom,
	}, historySettings(cfg.History))
	r.History, r.State.History = l, l
	r.Metrics.SetHistory(l.Bytes)
	r.tracing.tracer.Keep(func(record *trace.Record) { l.Decided(decisionOf(record)) })
	l.Begin(r.beginOf(cfg, false))
}

// historyCheck reports records that are being lost. It holds nothing: deltas are delivered.
func (r *router) historyCheck() (checks []api.Check) {
	if r.History == nil {
		return nil
	}
	if err := r.History.Trouble(); err != nil {
		return []api.Check{{Name: "history", Message: fmt.Sprintf("changes and decisions are not recorded, or not all of them; deltas are delivered: %v", err)}}
	}
	return nil
}

// useHistory makes the history that of a reloaded configuration.
func (r *router) useHistory() {
	if r.History == nil {
		return
	}
	cfg := r.Set.Plan.Config
	r.History.Set(historySettings(cfg.History))
	r.History.Begin(r.beginOf(cfg, true))
}

func historySettings(c *config.History) history.Settings {
	s := history.Settings{Keep: c.Keep, MaxSize: int64(c.MaxSize), Texts: c.Objects, Sources: make(map[string]history.SourceSettings)}
	for name, source := range c.Sources {
		s.Sources[name] = history.SourceSettings{None: source.None, Keep: source.Keep, Texts: source.Objects}
	}
	return s
}

// beginOf describes a configuration for the history.
func (r *router) beginOf(cfg *config.Config, reload bool) *history.Begin {
	b := &history.Begin{Router: r.opts.Version, Cluster: cfg.Cluster.Name, Config: cfg.Hash, Reload: reload}
	for _, name := range slices.Sorted(maps.Keys(cfg.Sources)) {
		s := history.Source{Name: name, Resource: cfg.Sources[name].Resource}
		if kept := r.Set.Plan.Sources[name].Kept; !kept.IsWhole() {
			s.Kept = kept.Paths()
		}
		b.Sources = append(b.Sources, s)
	}
	for _, route := range cfg.Routes {
		b.Routes = append(b.Routes, history.Route{Name: route.Name, From: route.From, Hash: hashOf(route)})
	}
	return b
}

// hashOf returns a hash of the text of a route.
func hashOf(route *config.Route) string {
	text, err := route.Node.JSON()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// outcomes are the outcomes of the results of spans.
var outcomes = map[trace.Result]history.Outcome{
	trace.Delivered: history.Delivered, trace.Dropped: history.Dropped, trace.DeadLettered: history.DeadLettered, trace.Coalesced: history.Coalesced,
	trace.Shadowed: history.Shadowed, trace.Suppressed: history.Suppressed, trace.Held: history.Held, trace.Cancelled: history.Cancelled, trace.Skipped: history.Skipped,
}

// decisionOf returns the decision of a finished span, or of a delta that a rule holds back.
func decisionOf(r *trace.Record) *history.Decision {
	op, _ := event.ParseOp(r.Op)
	d := &history.Decision{
		Object: history.Object{Source: r.Source, Kind: r.Kind, Key: event.Key{Namespace: r.Namespace, Name: r.Name}, UID: r.UID},
		Route:  r.Route, Op: op, Version: r.RV, Outcome: outcomes[r.Result], Seen: r.Seen, Matched: r.Matched, Taken: r.Taken,
		Initial: r.Initial, Stale: r.Stale, Redelivered: r.Redelivered, Events: r.Events, Suppressed: r.Suppressed, Reason: r.Reason, Skipped: r.Skipped,
		Repeat: r.Repeat, Rule: r.Hold.Rule, Until: r.Hold.Until, Latest: r.Hold.Latest, Into: r.Into, Undone: r.Undone,
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		d.Steps = append(d.Steps, history.Step{Kind: stepKinds[s.Kind], Name: s.Name, At: s.Start, Took: max(time.Duration(0), s.End.Sub(s.Start)), Size: s.Size, Err: s.Err})
	}
	return d
}

// stepKinds are the kinds of steps of the history, by those of spans.
var stepKinds = map[trace.StepKind]history.StepKind{trace.Handle: history.Handle, trace.Deliver: history.Deliver, trace.Forward: history.Forward}
