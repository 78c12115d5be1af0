package rules

import (
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Untold is a report that is not made, or not yet.
type Untold struct {
	// Delta is the report, which has the object before and after the change that is the cause. For
	// a delete hold it is the delete.
	Delta *event.Delta
	Fate  Fate
	Limit bool // the limit is the reason, and not For
	// Until is when the report is due, or when the limit allows another one; zero: it is not known.
	Until time.Time
}

// Fate is what becomes of a report that is not made, or not yet.
type Fate uint8

// The fates.
const (
	Delayed    Fate = iota // it is made later, or cancelled
	Cancelled              // its cause ended before it was made
	Suppressed             // it is never made, because of the limit
	Skipped                // it is never made, because the condition held before the first evaluation
)

// untold tells the owner of a report Entered that is not made, or not yet. d is the change that is
// the cause; nil: a timer expired.
func (s *Conditions) untold(c *Condition, d *event.Delta, fate Fate, limit bool, until time.Time) {
	if s.Untold == nil {
		return
	}
	report := &event.Delta{Source: c.Source(), Op: event.Entered, New: c.object}
	if d != nil {
		report.Old, report.Seen, report.Initial, report.Stale = d.Old, d.Seen, d.Initial, d.Stale
	}
	if c.state == reported {
		report.Repeat = int(c.repeat) + 1
	}
	s.Untold(Untold{report, fate, limit, until})
}

// untoldEnd tells the owner that a condition ends with d and that this is not reported, unless it
// is: because Entered was not reported either, or because Left belongs to the key of the limit.
func (s *Conditions) untoldEnd(c *Condition, d *event.Delta, reports bool) {
	fate := Cancelled
	switch {
	case s.Untold == nil || reports:
		return
	case c.state == reported:
		fate = Suppressed
	case c.state != pending && c.state != suppressed:
		return
	}
	report := &event.Delta{Source: d.Source, Op: event.Left, Old: d.Old, New: d.New, Seen: d.Seen, Stale: d.Stale}
	s.Untold(Untold{Delta: report, Fate: fate, Limit: c.state != pending})
}
