package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
)

const (
	// pause is the time in which the writer collects records: a crash loses the last ones.
	pause = time.Second
	// maxQueue bounds the texts that wait for the writer, in bytes. At the half of it the writer
	// does not pause.
	maxQueue = 16 << 20
	// recordBytes is the memory of a record in the queue beside its texts.
	recordBytes = 512
	// tidyPause is the time between two looks for segments that are too old.
	tidyPause = time.Minute
	// complainPause is the time between two warnings that records are lost.
	complainPause = time.Minute
)

// Settings say what a [Log] keeps. They may change while it runs.
type Settings struct {
	Keep    time.Duration // how long records are kept
	MaxSize int64         // bytes of all segments
	Texts   bool          // record the states of objects
	Sources map[string]SourceSettings
}

// SourceSettings are those of a source.
type SourceSettings struct {
	None  bool          // record nothing
	Keep  time.Duration // of its changes; 0: that of the settings
	Texts bool          // record the states of its objects, if the settings say so, too
}

// Folder is the name of the folder of the history in the state folder.
const Folder = "history"

// Config is the configuration of a [Log].
type Config struct {
	Dir     string // created if it does not exist
	Clock   timer.Clock
	Log     *slog.Logger
	Metrics *metrics.Metrics
	// Room returns how many bytes of the disk are free, and how many of them the state may need:
	// the history leaves these. Nothing known: false, or no Room at all.
	Room func() (free, needed int64, known bool)
}

// Log is the history of a running router. Its methods do not wait for the disk, except Run, Sync
// and those of a [Reader]. It is safe for concurrent use.
type Log struct {
	cfg      Config
	settings atomic.Pointer[Settings]
	running  atomic.Bool  // by Run
	size     atomic.Int64 // of all segments, in bytes

	mu      sync.Mutex
	queue   []item
	bytes   int         // of the texts in queue
	lost    lostRecords // since the last look of the writer
	trouble trouble
	warned  time.Time     // of the last warning
	hurry   chan struct{} // has room for one
	synced  chan chan struct{}

	followers atomic.Pointer[[]*Follower] // replaced as a whole under mu; nil: none

	writing sync.Mutex // guards the fields below
	store   store
	closed  error // why the folder cannot be opened; nil: it is open
}

// trouble is why records were lost last.
type trouble struct {
	at     time.Time // zero: none were
	reason error
}

// lostRecords counts records that are not in the history, by the reason.
type lostRecords map[string]int

func (l *lostRecords) add(reason string, n int) {
	if *l == nil {
		*l = make(lostRecords)
	}
	(*l)[reason] += n
}

// The reasons of lost records.
const (
	lostSlow    = "slow"    // the writer or the disk is too slow
	lostRefused = "refused" // the disk refused them
)

var errSlow = errors.New("more records wait for the disk than memory is meant for")

// item is a record in the queue: one of the fields is set.
type item struct {
	at       time.Time
	delta    *event.Delta
	decision *Decision
	begin    *Begin
}

// Open opens the history of a folder. If that fails, each write tries again; until then, records
// are lost, and [Log.Trouble] has the reason. The history is closed by the end of [Log.Run].
func Open(cfg Config, settings Settings) *Log {
	l := &Log{cfg: cfg, hurry: make(chan struct{}, 1), synced: make(chan chan struct{})}
	l.Set(settings)
	l.store = store{dir: cfg.Dir, series: make(map[time.Duration]*series)}
	if l.open(); l.closed != nil {
		l.warn(l.closed)
	}
	return l
}

// open makes the folder, and finds its segments.
func (l *Log) open() {
	if l.closed = os.MkdirAll(l.cfg.Dir, 0o700); l.closed == nil {
		l.store.sealed, l.closed = segmentsOf(l.cfg.Dir)
	}
	if l.closed != nil {
		l.closed = fmt.Errorf("the folder cannot be opened: %w", fileerr.Explain(l.closed))
	}
	l.measure()
}

// measure updates the size. Its reader must not wait for a disk that hangs.
func (l *Log) measure() { l.size.Store(l.store.size()) }

// troubled is the time after the last lost record in which Trouble reports it.
const troubled = 2 * time.Minute

// Trouble returns the reason if records are being lost, or were in the last two minutes; nil: none
// are.
func (l *Log) Trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trouble.at.IsZero() || l.cfg.Clock.Now().Sub(l.trouble.at) > troubled {
		return nil
	}
	return l.trouble.reason
}

// Set replaces the settings.
func (l *Log) Set(s Settings) { l.settings.Store(&s) }

// Delta records a delta of a source, except one that repeats an object. A nil Log records nothing.
func (l *Log) Delta(d *event.Delta) {
	if l == nil || d.Op == event.Sync {
		return
	}
	s := l.settings.Load()
	if s.Sources[d.Source].None {
		return
	}
	size := recordBytes
	for _, o := range []*event.Object{d.Old, d.New} {
		if o != nil {
			size += len(o.JSON())
		}
	}
	l.offer(item{at: l.now(), delta: d}, size)
}

// Decided records a decision of a route, and sets its time. It must not be changed afterwards.
func (l *Log) Decided(d *Decision) {
	d.At = l.now()
	l.offer(item{at: d.At, decision: d}, recordBytes+len(d.Reason))
	l.tell(d)
}

// now returns the time of a record, as a segment has it.
func (l *Log) now() time.Time { return l.cfg.Clock.Now().Truncate(time.Microsecond) }

// Begin records the start of the router, or a reload.
func (l *Log) Begin(b *Begin) { l.offer(item{at: l.now(), begin: b}, recordBytes) }

func (l *Log) offer(i item, size int) {
	if !l.take(i, size) {
		l.warn(errSlow) // not by the writer, because the disk may hang
	}
}

// take adds a record to the queue, if there is room for it.
func (l *Log) take(i item, size int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes+size > maxQueue {
		l.missing(lostSlow, 1)
		return false
	}
	if l.queue = append(l.queue, i); l.bytes < maxQueue/2 && l.bytes+size >= maxQueue/2 {
		select {
		case l.hurry <- struct{}{}:
		default:
		}
	}
	l.bytes += size
	return true
}

// Run writes the records until ctx is done, and those that are left then.
func (l *Log) Run(ctx context.Context) {
	l.adopt(ctx)
	l.running.Store(true)
	defer l.running.Store(false)
	tick, tidied := time.NewTicker(pause), l.cfg.Clock.Now()
	defer tick.Stop()
	for {
		var done chan struct{}
		select {
		case <-tick.C:
		case <-l.hurry:
		case done = <-l.synced:
		case <-ctx.Done():
			l.write()
			l.writing.Lock()
			defer l.writing.Unlock()
			if err := l.store.seal(); err != nil {
				l.cfg.Log.Warn("the history could not be closed; the next start does it", "err", err)
			}
			l.measure()
			return
		}
		l.write()
		if done != nil {
			close(done)
		}
		if now := l.cfg.Clock.Now(); now.Sub(tidied) >= tidyPause {
			tidied = now
			l.tidy()
		}
	}
}

// Sync waits until all records so far are in the files, for a reader; or until ctx is done.
func (l *Log) Sync(ctx context.Context) error {
	if !inFiles(l, ctx.Done()) {
		return ctx.Err()
	}
	return nil
}

// inFiles reports whether all records so far are in the files before end delivers or is closed.
func inFiles[T any](l *Log, end <-chan T) bool {
	done := make(chan struct{})
	select {
	case l.synced <- done:
	case <-end:
		return false
	}
	select {
	case <-done:
		return true
	case <-end:
		return false
	}
}

// settleTime bounds how long Settle waits.
const settleTime = 100 * time.Millisecond

// Settle waits until all records so far are in the files, but not longer than 100 ms: the caller is
// about to save a state that they led to. So a crash of the router loses no record of
// the saved state, unless the disk took longer; everything later happens again. A nil Log has no
// records.
func (l *Log) Settle() {
	if l == nil || !l.running.Load() {
		return
	}
	end := time.NewTimer(settleTime)
	defer end.Stop()
	inFiles(l, end.C) // a slow disk delays no delta
}

// adopt makes the indexes of segments that a former run has left without one, and removes segments
// that are too old.
func (l *Log) adopt(ctx context.Context) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.index(func() bool { return ctx.Err() != nil })
	l.removeOld()
}

// index makes the missing indexes of segments, until it is stopped.
func (l *Log) index(stopped func() bool) {
	for i := range l.store.sealed {
		if stopped() {
			return
		}
		s := &l.store.sealed[i]
		if lost, err := s.index(); err != nil || lost {
			l.cfg.Log.Warn("a segment of the history is damaged; its records from there on are lost", "file", s.path, "err", err)
		}
	}
}

// write writes the records of the queue.
func (l *Log) write() {
	l.mu.Lock()
	queue, lost := l.queue, l.lost
	l.queue, l.bytes, l.lost = nil, 0, nil
	l.mu.Unlock()
	if len(queue) == 0 && len(lost) == 0 {
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.prepare(); err != nil {
		l.warn(err)
		l.refuse(queue, lost)
		return
	}
	s := l.settings.Load()
	now := l.cfg.Clock.Now()
	for reason, n := range lost {
		if err := l.store.lost(s, &Lost{now, n, reason}); err != nil {
			l.warn(err)
			l.again(reason, n)
		}
	}
	before := l.store.missing // of them, which are counted
	for i := range queue {
		var err error
		kind := ""
		switch i := &queue[i]; {
		case i.delta != nil:
			c := changeOf(i.delta, s)
			c.At, kind = i.at, "change"
			err = l.store.change(s, &c)
		case i.decision != nil:
			if kind = "held"; i.decision.Outcome.IsEnd() {
				kind = "decision"
			}
			err = l.store.decision(s, i.decision)
		case i.begin != nil:
			i.begin.At = i.at
			err = l.store.begin(s, i.begin)
		}
		switch {
		case err != nil:
			l.warn(err)
		case kind != "":
			l.cfg.Metrics.HistoryRecords.WithLabelValues(kind).Inc()
		}
	}
	if err := l.store.flush(); err != nil {
		l.warn(err)
	}
	if l.store.rolls(s, now) {
		if err := l.store.roll(s, now); err != nil {
			l.warn(err)
		}
		l.removeOld()
	}
	l.measure()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missing(lostRefused, l.store.missing-before)
	l.store.missing = 0
}

// prepare opens the folder, if it is not open, and makes room on the disk. The error says why
// nothing can be written.
func (l *Log) prepare() error {
	if l.closed != nil {
		if l.open(); l.closed != nil {
			return l.closed
		}
		l.index(func() bool { return false })
	}
	if l.scarcity().lack() > 0 {
		l.removeOld()
	}
	if room := l.scarcity(); room.lack() > 0 {
		return fmt.Errorf("the disk has %d MiB left, and the state may need %d MiB: make room on the disk", room.free>>20, room.needed>>20)
	}
	return nil
}

// room is that of the disk, in bytes.
type room struct{ free, needed int64 }

// lack returns how many bytes the state lacks; not positive: none.
func (r room) lack() int64 { return r.needed - r.free }

// scarcity returns the room of the disk, or none that is needed if it is not known.
func (l *Log) scarcity() room {
	if l.cfg.Room != nil {
		if free, needed, known := l.cfg.Room(); known {
			return room{free, needed}
		}
	}
	return room{}
}

// refuse counts records that cannot be written, except the last Begin: it is written later, because
// what follows belongs to it.
func (l *Log) refuse(queue []item, lost lostRecords) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	var begin *item
	for i := range queue {
		if queue[i].begin != nil {
			begin = &queue[i]
		} else {
			n++
		}
	}
	if begin != nil && !slices.ContainsFunc(l.queue, func(i item) bool { return i.begin != nil }) {
		l.queue = slices.Insert(l.queue, 0, *begin)
		l.bytes += recordBytes
	}
	for reason, n := range lost {
		l.lost.add(reason, n)
	}
	l.missing(lostRefused, n)
}

// warn says that records are lost, at most once a minute.
func (l *Log) warn(err error) {
	now := l.cfg.Clock.Now()
	l.mu.Lock()
	l.trouble = trouble{now, err}
	due := now.Sub(l.warned) >= complainPause
	if due {
		l.warned = now
	}
	l.mu.Unlock()
	if due {
		l.cfg.Log.Warn("records of the history cannot be written and are lost; deltas are delivered", "dir", l.cfg.Dir, "err", err)
	}
}

// missing counts records that are lost, for the metric and for the history itself. The lock is
// held.
func (l *Log) missing(reason string, n int) {
	if n == 0 {
		return
	}
	l.cfg.Metrics.HistoryLost.WithLabelValues(reason).Add(float64(n))
	l.lost.add(reason, n)
}

// again lets the next write record lost records that are counted already.
func (l *Log) again(reason string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost.add(reason, n)
}

func (l *Log) tidy() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.removeOld()
}

// removeOld removes segments that are too old or too many, and those whose room the state may need.
func (l *Log) removeOld() {
	if err := l.store.removeOld(l.settings.Load(), l.cfg.Clock.Now(), l.scarcity().lack()); err != nil {
		l.cfg.Log.Warn("old segments of the history cannot be removed", "dir", l.cfg.Dir, "err", err)
	}
	l.measure()
}

// changeOf returns the record of a delta.
func changeOf(d *event.Delta, s *Settings) Change {
	o := d.Object()
	c := Change{
		Object: ObjectOf(d),
		Seen:   d.Seen, Op: d.Op, Initial: d.Initial, Stale: d.Stale, Version: o.ResourceVersion(),
	}
	of, known := s.Sources[d.Source]
	// A first list has the objects as they are; their first change has the state before it.
	if c.Texts = s.Texts && (!known || of.Texts) && !isSecret(o) && !d.Initial; c.Texts {
		c.Before, c.After = textOf(d.Old), textOf(d.New)
		if d.Old != nil {
			c.was = d.Old.ResourceVersion()
		}
	}
	return c
}

// ObjectOf returns the object of a delta.
func ObjectOf(d *event.Delta) Object {
	o := d.Object()
	return Object{d.Source, o.Resource().Kind, o.Key(), o.UID()}
}

func isSecret(o *event.Object) bool {
	r := o.Resource()
	return r.Group == "" && r.Resource == "secrets"
}

// textOf returns the JSON of an object; empty: it is not known.
func textOf(o *event.Object) string {
	if o == nil || o.IsBare() {
		return ""
	}
	return string(o.Raw())
}

// Bytes returns the size of all segments as of the last write. It does not wait for the disk.
func (l *Log) Bytes() int64 { return l.size.Load() }

func pathOf(dir string, number int, keep time.Duration) string {
	return filepath.Join(dir, fmt.Sprintf("%010d-%s%s", number, keep, extension))
}
