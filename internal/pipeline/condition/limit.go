package condition

import (
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Limit is the limit of one route. The zero value is no limit.
type Limit struct {
	cfg   rules.LimitConfig // Every 0: there is no limit
	keys  *rules.Limit      // nil: there is no limit, and there was none
	share *rules.Share      // of the keys, see [Env]
}

// On reports whether there is a limit.
func (l *Limit) On() bool { return l.cfg.Every > 0 }

// Allow applies the limit to n deltas; d is the last of them. If they may pass, it returns d, or a
// copy with the number of suppressed deltas before. Without a limit everything passes.
func (l *Limit) Allow(d *event.Delta, key string, n int, now time.Time) (allowed *event.Delta, pass *rules.Pass, ok bool) {
	if !l.On() {
		return d, nil, true
	}
	pass = l.keys.Allow(key, n, now)
	switch {
	case pass == nil:
		return nil, nil, false
	case pass.Suppressed == 0:
		return d, pass, true
	}
	counted := *d
	counted.Suppressed += pass.Suppressed
	return &counted, pass, true
}

// Wait returns the time until a delta of a key may pass; 0: it may now.
func (l *Limit) Wait(key string, now time.Time) time.Duration {
	if !l.On() {
		return 0
	}
	return l.keys.Wait(key, now)
}

// Keys returns the number of tracked keys.
func (l *Limit) Keys() int {
	if l.keys == nil {
		return 0
	}
	return l.keys.Len()
}

// Crowded is [rules.Limit.Crowded].
func (l *Limit) Crowded() (bound int64, shared bool) {
	if l.keys == nil {
		return 0, false
	}
	return l.keys.Crowded()
}

// MakeRoom drops keys that no longer limit anything, if the share of the keys is full.
func (l *Limit) MakeRoom(now time.Time) {
	if l.keys != nil {
		l.keys.MakeRoom(now)
	}
}

// configure changes the limit and keeps its keys. Without a limit it drops them.
func (l *Limit) configure(cfg rules.LimitConfig, now time.Time) {
	l.cfg = cfg
	switch {
	case l.keys == nil && l.On():
		l.keys = rules.NewLimit(cfg, l.share, now)
	case l.keys == nil:
	case l.On():
		l.keys.Configure(cfg, now)
	default:
		l.keys.Abandon()
	}
}

// restore restores the keys from the records of the checkpoint. The error describes the last
// damaged record.
func (l *Limit) restore(records []checkpoint.RuleRecord, now time.Time) (failed error) {
	for record := range ofKind(records, kindLimit) {
		if l.keys == nil {
			l.keys = rules.NewLimit(l.cfg, l.share, now)
		}
		if err := l.keys.Restore(record, now); err != nil {
			failed = err
		}
	}
	if l.keys != nil && !l.On() {
		l.keys.Abandon() // the limit was removed
	}
	return failed
}

// close returns the keys to the share. From then on there is no limit.
func (l *Limit) close() {
	if l.keys != nil {
		l.keys.Close()
	}
	l.keys, l.cfg = nil, rules.LimitConfig{}
}

// dirty appends the changes since the last call.
func (l *Limit) dirty(records []checkpoint.RuleRecord, now time.Time) []checkpoint.RuleRecord {
	if l.keys == nil {
		return records
	}
	return appendRecords(records, kindLimit, l.keys.Dirty(now))
}
