// Package complaints bounds the log lines that many parts of a process write for one reason, such
// as each partition of a worker when its NATS servers are out of reach.
package complaints

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Log writes the first complaint with a reason at once. Those that follow are counted, and one line
// at the end of the interval has their number and names. The interval is 10 s, and
// doubles up to 5 minutes while a reason goes on. It is safe for concurrent use.
type Log struct {
	log *slog.Logger

	mu      sync.Mutex
	reasons map[string]*reason // those of the present intervals
	last    map[string]time.Time
	closed  bool
}

const (
	shortest = 10 * time.Second
	longest  = 5 * time.Minute
	// maxReasons bounds the reasons of a Log at one time, because a server may write any text.
	// Further ones count as one.
	maxReasons = 20
	// maxNames bounds the names in a line.
	maxNames = 10
)

// reason has the common parts of the complaints of a line, and counts those that were not logged.
type reason struct {
	level   slog.Level
	message string
	err     error // of the last complaint
	attrs   []slog.Attr

	about    string   // the key of names
	names    []string // the first ones
	more     bool     // there are further ones
	times    int
	interval time.Duration
	timer    *time.Timer
}

// New returns a Log that writes to log.
func New(log *slog.Logger) *Log {
	return &Log{log: log, reasons: map[string]*reason{}, last: map[string]time.Time{}}
}

// Say complains. about names the subject, such as a route: the names of several
// complaints are in one line; a zero Attr: nothing. The message, the text of err without ports and
// times, and the attrs are the reason. err may be nil.
func (l *Log) Say(level slog.Level, message string, err error, about slog.Attr, attrs ...slog.Attr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := fmt.Sprint(level, message, about.Key, attrs, general(err))
	r := l.reasons[key]
	if r == nil && len(l.reasons) >= maxReasons {
		key = ""
		r = l.reasons[key]
	}
	if r != nil {
		r.add(level, message, err, about, attrs)
		return
	}
	r = &reason{interval: shortest}
	r.add(level, message, err, about, attrs)
	r.write(l.log)
	if l.closed {
		return
	}
	l.reasons[key] = r
	r.timer = time.AfterFunc(r.interval, func() { l.tick(key, r) })
}

// quiet is the interval of May.
const quiet = time.Minute

// May reports whether it has reported nothing else about key in the minute before now, for a line
// that the caller logs. There are few keys.
func (l *Log) May(key string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.last[key]; ok && now.Sub(last) < quiet {
		return false
	}
	l.last[key] = now
	return true
}

// tick ends an interval.
func (l *Log) tick(key string, r *reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.reasons[key] != r:
	case r.times == 0:
		delete(l.reasons, key)
	default:
		r.write(l.log)
		r.interval = min(2*r.interval, longest)
		r.timer.Reset(r.interval)
	}
}

// Close logs the counted complaints. Later complaints are logged at once.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, r := range l.reasons {
		r.timer.Stop()
		if r.times > 0 {
			r.write(l.log)
		}
	}
	clear(l.reasons)
}

func (r *reason) add(level slog.Level, message string, err error, about slog.Attr, attrs []slog.Attr) {
	r.level, r.message, r.err, r.attrs, r.about = level, message, err, attrs, about.Key
	r.times++
	name := about.Value.String()
	switch {
	case about.Key == "", slices.Contains(r.names, name):
	case len(r.names) < maxNames:
		r.names = append(r.names, name)
	default:
		r.more = true
	}
}

// write logs the complaints since the last line.
func (r *reason) write(log *slog.Logger) {
	attrs := make([]any, 0, len(r.attrs)+4)
	for _, a := range r.attrs {
		attrs = append(attrs, a)
	}
	if len(r.names) > 0 {
		slices.Sort(r.names)
		names := strings.Join(r.names, ", ")
		if r.more {
			names += ", …"
		}
		attrs = append(attrs, slog.String(r.about, names))
	}
	if r.times > 1 {
		attrs = append(attrs, slog.Int("times", r.times), slog.Duration("within", r.interval))
	}
	if r.err != nil {
		attrs = append(attrs, slog.Any("err", r.err))
	}
	say := log.Warn
	switch {
	case r.level >= slog.LevelError:
		say = log.Error
	case r.level < slog.LevelWarn:
		say = log.Info
	}
	say(r.message, attrs...)
	r.names, r.more, r.times = nil, false, 0
}

// varying matches the parts of an error that differ between two of the same reason: the port of the
// router's end of a connection, numbers of messages as in #17, times and durations.
var varying = regexp.MustCompile(`:\d+->|#\d+|\d{4}-\d\d-\d\dT[\d:.]+\S*|\b\d[\dhm.]*(?:ns|µs|ms|s)\b`)

// general returns the text of an error without what varies.
func general(err error) string {
	if err == nil {
		return ""
	}
	return varying.ReplaceAllString(err.Error(), "#")
}
