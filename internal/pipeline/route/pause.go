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

// kindPause is the kind of the record with the reason why a sink paused the route. A pause by
// onFailure ends with the process.
const kindPause = checkpoint.KindPause

// pause is the paused state of a route. The lock of the route guards it.
type pause struct {
	reason  string // empty: it is not paused
	bySink  bool   // requested by a sink: the pause is kept across restarts
	changed bool   // the record must be handed over
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

// dirty returns the record of a pause by a sink, or of its end, if it has changed since the last
// call.
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

// pauseFor pauses the route until Resume, or until its configuration is replaced; if c is no longer
// current, it does nothing. bySink: a sink requested it, see [plugins.Pause], and it is kept across
// restarts.
func (r *Route) pauseFor(c *Config, d *event.Delta, sink string, reason error, bySink bool) {
	r.mu.Lock()
	first := !r.paused.on() && c == r.Config()
	if first {
		r.paused.begin(d.String()+": "+reason.Error(), bySink)
	}
	r.mu.Unlock()
	r.env.Progress.report()
	if first {
		r.Config().Log.Error("route paused; fix the cause, then run router resume ROUTE, or edit the route and reload",
			slog.String("delta", d.String()), slog.String("sink", sink), slog.Any("err", reason))
	}
}

// Resume resumes a paused route, and resets the counts of its sinks. The error is [ErrNotPaused].
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
