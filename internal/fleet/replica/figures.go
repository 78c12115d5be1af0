package replica

import (
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
)

// Figures are the metrics of a member. They continue when its role changes. The zero Figures are
// those of a member without a role.
type Figures struct {
	Published atomic.Int64 // bytes of frames
	Snapshots atomic.Int64 // that were published
	Installed atomic.Int64 // snapshots
	Late      atomic.Int64 // waits for a publication that ended at their bound

	lag atomic.Pointer[func() Lag]
}

// Lag is the distance between the leader's file and what the fleet has of it.
type Lag struct {
	// Frames: on a standby, those that it knows of and has not applied; on the leader, those that
	// are not published.
	Frames uint64
	// Time: on a standby, the time since it had all that the leader had; on the leader, the age of
	// the oldest frame that is not published.
	Time time.Duration
	// Known is false on a standby that has not heard of a leader.
	Known bool
}

// Lag returns the present lag of the role; the zero Lag without a role.
func (f *Figures) Lag() Lag {
	if lag := f.lag.Load(); lag != nil {
		return (*lag)()
	}
	return Lag{}
}

// Metrics returns the figures as metrics.
func (f *Figures) Metrics() metrics.Replication {
	return metrics.Replication{
		Behind:    func() (uint64, time.Duration, bool) { l := f.Lag(); return l.Frames, l.Time, l.Known },
		Published: f.Published.Load, Snapshots: f.Snapshots.Load, Installed: f.Installed.Load, Late: f.Late.Load,
	}
}

func (f *Figures) follow(lag func() Lag) { f.lag.Store(&lag) }
