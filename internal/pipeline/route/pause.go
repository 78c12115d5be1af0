package route

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// ErrNotPaused is the error of Route.Resume for a route that is not paused.
var ErrNotPaused = errors.New("the route is not paused")

// kindPause is the kind of the record of a pause that is kept across restarts.
const kindPause = checkpoint.KindPause

// pause is the paused state of a route. The lock of the route guards it.
type pause struct {
	by      pauser    // 0: the route is not paused
	reason  string    // for people
	until   time.Time // the end of a pause by a user; zero: it has none
	unsaved bool      // the record must be handed over
}

// pauser is the cause of a pause.
type pauser int

const (
	_ pauser = iota
	// byFailure: a delta failed, see onFailure. The pause ends with the process, or with the
	// configuration of the route.
	byFailure
	// bySink: a sink requested it, see [plugins.Pause]. It is kept across restarts, and ends with
	// the configuration of the route.
	bySink
	// byUser: a request of the API. It is kept across restarts and changes of the configuration.
	byUser
)

func (p *pause) on() bool { return p.by != 0 }

func (p *pause) begin(by pauser, reason string, until time.Time) {
	*p = pause{by: by, reason: reason, until: until, unsaved: p.unsaved || by.kept()}
}

func (p *pause) end() { *p = pause{unsaved: p.unsaved || p.by.kept()} }

// expired reports whether a pause by a user has reached its end.
func (p *pause) expired(now time.Time) bool { return !p.until.IsZero() && !p.until.After(now) }

// kept reports whether a pause is kept across restarts.
func (by pauser) kept() bool { return by == bySink || by == byUser }

// requested returns the reason of a pause by a user.
func requested(until time.Time) string {
	if until.IsZero() {
		return "on a request, until router resume"
	}
	return "on a request, until " + until.UTC().Format(time.RFC3339)
}

// The value of the record is the reason of a sink, or, for a pause by a user, a zero byte and the
// end in milliseconds since 1970 (8 bytes, big endian; 0: it has none). It is empty if the route is
// not paused.
const userRecord = "\x00"

// restore pauses a route that was paused by a sink or a user before a restart.
func (p *pause) restore(records []checkpoint.RuleRecord) {
	i := slices.IndexFunc(records, func(record checkpoint.RuleRecord) bool { return record.Kind == kindPause })
	if i < 0 || len(records[i].Value) == 0 {
		return
	}
	end, user := bytes.CutPrefix(records[i].Value, []byte(userRecord))
	if !user || len(end) != 8 {
		p.by, p.reason = bySink, strings.ToValidUTF8(string(records[i].Value), "?")
		return
	}
	p.by = byUser
	if ms := int64(binary.BigEndian.Uint64(end)); ms != 0 {
		p.until = time.UnixMilli(ms)
	}
	p.reason = requested(p.until)
}

// dirty returns the record of a pause that is kept, or of its end, if it has changed since the last
// call.
func (p *pause) dirty() []checkpoint.RuleRecord {
	if !p.unsaved {
		return nil
	}
	p.unsaved = false
	record := checkpoint.RuleRecord{Kind: kindPause}
	if p.by == bySink {
		record.Value = []byte(p.reason)
	}
	if p.by == byUser {
		var end uint64
		if !p.until.IsZero() {
			end = uint64(p.until.UnixMilli())
		}
		record.Value = binary.BigEndian.AppendUint64([]byte(userRecord), end)
	}
	return []checkpoint.RuleRecord{record}
}

// Pause pauses the route until Resume, or until a time; zero: without end. A pause by a user gets
// the new end; the error says that the route is paused for another reason. Batches in progress are
// finished.
func (r *Route) Pause(until time.Time) error {
	r.mu.Lock()
	if r.paused.on() && r.paused.by != byUser {
		defer r.mu.Unlock()
		return fmt.Errorf("the route is paused already: %s", r.paused.reason)
	}
	r.paused.begin(byUser, requested(until), until)
	r.changed()
	r.workers.leader.Signal() // it plans the end
	r.mu.Unlock()
	r.env.Progress.report()
	return nil
}

// Resume resumes a paused route, and resets the counts of its sinks. The error is [ErrNotPaused].
func (r *Route) Resume() error {
	r.mu.Lock()
	paused := r.paused.on()
	r.mu.Unlock()
	if !paused {
		return ErrNotPaused
	}
	for _, s := range r.Generation().Sinks {
		if counting, ok := s.Sink.(plugins.Resumer); ok {
			counting.Resume(r.Generation().Name)
		}
	}
	r.mu.Lock()
	r.paused.end()
	r.changed()
	r.workers.leader.Signal()
	r.mu.Unlock()
	r.env.Progress.report()
	return nil
}

// expirePause ends a pause by a user whose time has come. It is called under the lock.
func (r *Route) expirePause(now time.Time) {
	if r.paused.expired(now) {
		r.paused.end()
		r.changed()
		r.Generation().Log().Info("route resumed: the time of its pause is over")
	}
}

// pauseFailed pauses the route because of a delta; if c is no longer current, it does nothing.
func (r *Route) pauseFailed(c *Generation, d *event.Delta, sink string, reason error, by pauser) {
	r.mu.Lock()
	first := !r.paused.on() && c == r.Generation()
	if first {
		r.paused.begin(by, d.String()+": "+reason.Error(), time.Time{})
	}
	r.mu.Unlock()
	r.env.Progress.report()
	if first {
		r.Generation().Log().Error("route paused; fix the cause, then run router resume ROUTE, or edit the route and reload",
			slog.String("delta", d.String()), slog.String("sink", sink), slog.Any("err", reason))
	}
}
