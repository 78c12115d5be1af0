package route

import (
	"errors"
	"log/slog"
	"slices"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// ErrNotPaused is the error of Pipeline.Resume for a route that is not paused.
var ErrNotPaused = errors.New("the route is not paused")

// kindPause marks why a sink paused the route, among the records of its rules. A pause by onFailure
// ends with the process.
const kindPause = 'p'

// pause is whether and why a route is paused. The lock of the route guards it.
type pause struct {
	reason  string // empty: it is not
	bySink  bool   // that is kept across restarts
	changed bool   // that is to be handed over
}

func (p *pause) on() bool { return p.reason != "" }

func (p *pause) begin(reason string, bySink bool) {
	p.reason, p.bySink, p.changed = reason, bySink, p.changed || bySink
}

func (p *pause) end() { p.reason, p.bySink, p.changed = "", false, p.changed || p.bySink }

// restore pauses a route that a sink had paused before a restart.
func (p *pause) restore(records []checkpoint.RuleRecord) {
	i := slices.IndexFunc(records, func(record checkpoint.RuleRecord) bool { return record.Kind == kindPause })
	if i >= 0 && len(records[i].Value) > 0 {
		p.reason, p.bySink = string(records[i].Value), true
	}
}

// dirty returns that a sink paused the route, or that this is over, if it was not returned before.
func (p *pause) dirty() []checkpoint.RuleRecord {
	if !p.changed {
		return nil
	}
	p.changed = false
	record := checkpoint.RuleRecord{Kind: kindPause}
	if p.bySink {
		record.Value = []byte(p.reason)
	}
	return []checkpoint.RuleRecord{record}
}

// pauseFor stops the route until Resume, or until it is changed: by another configuration than c,
// it goes on. bySink: a sink said so, see [plugins.Pause]; that is kept across restarts.
func (r *Route) pauseFor(c *Config, d *event.Delta, sink string, reason error, bySink bool) {
	r.mu.Lock()
	first := !r.paused.on() && c == r.Config()
	if first {
		r.paused.begin(d.String()+": "+reason.Error(), bySink)
	}
	r.mu.Unlock()
	r.env.Progress.report()
	if first {
		r.Config().Log.Error("route is paused and delivers nothing more: fix the cause, then run router resume with its name",
			slog.String("delta", d.String()), slog.String("sink", sink), slog.Any("err", reason))
	}
}

// Resume lets a paused route go on. Its sinks forget what they have counted of it. The error is
// [ErrNotPaused].
func (r *Route) Resume() error {
	r.mu.Lock()
	paused := r.paused.on()
	r.mu.Unlock()
	if !paused {
		return ErrNotPaused
	}
	for _, s := range r.Config().Sinks {
		if counting, ok := s.Sink.(plugins.Resumer); ok {
			counting.Resume(r.Config().Name)
		}
	}
	r.mu.Lock()
	r.paused.end()
	r.changed()
	r.crew.leader.Signal()
	r.mu.Unlock()
	r.env.Progress.report()
	return nil
}
