package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
)

const (
	// groupFrames and groupBytes limit the frames that are applied in one transaction.
	groupFrames = 256
	groupBytes  = 8 << 20
	// pollInterval is the interval at which a follower that needs a snapshot looks for one.
	pollInterval = time.Second
	// longPause follows a failure that lasts.
	longPause = 10 * time.Second
)

// FollowerConfig describes a follower.
type FollowerConfig struct {
	Conn    *fleet.Conn
	DB      *checkpoint.DB // which nothing else writes to
	Path    string         // of the state file; snapshots are stored beside it first
	Figures *Figures
	Log     *slog.Logger

	poll time.Duration // 0: the default
}

// Follower keeps a state file equal to that of the leader. It is safe for concurrent use.
type Follower struct {
	cfg FollowerConfig

	mu      sync.Mutex
	seen    uint64 // the sequence up to which the stream was applied
	newest  checkpoint.Position
	synced  time.Time // when the file had all that the leader had
	known   bool
	stuck   error         // why the stream cannot be applied at present; nil: it can
	polls   int           // how often stuck was set
	changed chan struct{} // closed with each change of seen or stuck

	// These belong to Run.
	note   note
	record fence.Record // the last one of the stream
	gap    *gap
	tried  string // the name of the snapshot that was installed last
	parts  assembly
	group  []received
	bytes  int
}

// received is a frame and the sequence of its last message.
type received struct {
	checkpoint.Frame

	seq uint64
}

// gap is the reason why a follower needs a snapshot.
type gap struct {
	at   uint64 // the sequence of the message that cannot be applied
	next uint64 // the number of its frame; 0: it is damaged
	// diverged: the file does not belong to the log of the present leader, so that any snapshot is
	// better.
	diverged bool
	err      error
}

// NewFollower returns a follower.
func NewFollower(cfg FollowerConfig) *Follower {
	if cfg.Figures == nil {
		cfg.Figures = &Figures{}
	}
	if cfg.poll == 0 {
		cfg.poll = pollInterval
	}
	return &Follower{cfg: cfg, changed: make(chan struct{})}
}

// Run follows the leader until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	f.cfg.Figures.follow(f.Lag)
	pause := backoff.Series{Policy: backoff.Policy{Min: 50 * time.Millisecond, Max: 2 * time.Second}}
	failures := 0
	for ctx.Err() == nil {
		before := f.cfg.DB.Position()
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if f.cfg.DB.Position() != before {
			pause.Reset()
			failures = 0
		}
		rest := rest(err)
		if failures++; failures == 3 || failures == 1 && rest > 0 {
			f.cfg.Log.Warn("fleet: the state file does not follow that of the leader; the router retries", "file", f.cfg.Path, "err", err)
		}
		if pause.Wait(ctx, rest) != nil {
			return
		}
	}
}

// rest returns the least pause after a failure. After one that lasts, everything is read again.
func rest(err error) time.Duration {
	var newer *checkpoint.NewerError
	if errors.Is(err, checkpoint.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, checkpoint.ErrFrameNewer) || errors.As(err, &newer) {
		return longPause
	}
	return 0
}

// follow reads the stream until it fails.
func (f *Follower) follow(ctx context.Context) error {
	record, err := lead(ctx, f.cfg.Conn)
	if foreign(err) { // the leader replaces it with its next batch
		f.cfg.Conn.Refuse(fleet.RefusedLead, err)
	}
	if err != nil {
		return err
	}
	f.note = parseNote(record.Note)
	from := f.note.oldest() + 1
	if f.gap == nil && f.cfg.DB.Position() == (checkpoint.Position{}) {
		f.gap = &gap{diverged: true, err: errors.New("the state file is in no log of a fleet")}
	}
	if f.gap != nil {
		if from, err = f.recover(ctx); err != nil {
			return err
		}
	}
	return f.read(ctx, from)
}

// recover installs the snapshot that a gap requires, or waits for one. It returns the sequence from
// which the stream continues.
func (f *Follower) recover(ctx context.Context) (uint64, error) {
	for {
		// A snapshot that was tried in vain is not read again: it is large, and does not change.
		p := f.note.Snapshot
		if p != nil && p.Name != f.tried && (f.gap.diverged || p.closes(f.gap.at, f.gap.next)) {
			err := f.install(ctx, p)
			if err == nil {
				f.tried, f.gap = p.Name, nil
				f.fail(nil)
				return p.Seq + 1, nil
			}
			if !errors.Is(err, errUnusable) {
				return 0, err
			}
			f.tried, f.gap.err = p.Name, err
		}
		// The leader names a new one in its lead record, which is read until then.
		f.fail(f.gap.err)
		f.askForSnapshot()
		select {
		case <-time.After(f.cfg.poll):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		record, err := lead(ctx, f.cfg.Conn)
		if err != nil {
			return 0, err
		}
		f.note = parseNote(record.Note)
	}
}

// askForSnapshot asks the leader for a snapshot.
func (f *Follower) askForSnapshot() {
	if text, err := json.Marshal(request{At: f.gap.at, Next: f.gap.next, Tried: f.tried}); err == nil {
		_ = f.cfg.Conn.NATS.Publish(f.cfg.Conn.Names.SnapshotRequest(), text) // it is repeated
	}
}

// fail records why the stream cannot be applied.
func (f *Follower) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stuck == nil && err != nil {
		f.cfg.Log.Warn("fleet: the state file needs a snapshot of the leader's", "file", f.cfg.Path, "position", f.cfg.DB.Position().String(), "err", err)
	}
	f.stuck = err
	f.polls++
	f.broadcast()
}

func (f *Follower) broadcast() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// read applies the stream from a sequence on.
func (f *Follower) read(ctx context.Context, from uint64) error {
	f.parts, f.group, f.bytes, f.record = assembly{}, nil, 0, fence.Record{}
	// The lead record was read from the stream's leader. The consumer may be on a server that lags
	// behind it, so only the records that come through the stream tell where the stream ends.
	f.note.Last = checkpoint.Position{}
	r, err := f.cfg.Conn.ReadStream(ctx, f.cfg.Conn.Names.Cuts(), "", from)
	if err != nil {
		return err
	}
	defer r.Stop()
	for {
		m, about, err := r.Next(ctx)
		if err != nil {
			return err
		}
		if err := f.take(m, about); err != nil {
			return err
		}
	}
}

// take takes a message of the stream.
func (f *Follower) take(m jetstream.Msg, about *jetstream.MsgMetadata) error {
	if kind, err := f.verify(m); err != nil {
		f.cfg.Conn.Refuse(kind, err)
		// It tells nothing about the leader. The next record of the leader does.
		err := f.apply()
		f.passed(about.Sequence.Stream)
		return err
	}
	if m.Subject() == f.cfg.Conn.Names.CutsLead() {
		record, err := fence.Parse(nil, m.Subject(), nil, m.Data())
		if err != nil {
			return err
		}
		if f.record = record; len(record.Note) > 0 {
			f.note = parseNote(record.Note)
		}
	} else if header := m.Headers().Get(partHeader); header != "" {
		frame, err := f.parts.add(header, m.Data())
		if errors.Is(err, checkpoint.ErrFrameNewer) {
			return errors.Join(f.apply(), err) // no snapshot of that leader helps
		}
		if err != nil {
			f.gap = &gap{at: about.Sequence.Stream, err: err}
			return errors.Join(f.apply(), err)
		}
		if frame != nil {
			f.group, f.bytes = append(f.group, received{*frame, about.Sequence.Stream}), f.bytes+len(frame.Ops)
		}
	}
	if about.NumPending > 0 && len(f.group) < groupFrames && f.bytes < groupBytes {
		return nil
	}
	if err := f.apply(); err != nil {
		return err
	}
	return f.progress(about.Sequence.Stream)
}

// verify returns the reason why a message is not of the fleet, if it is not, and its kind.
func (f *Follower) verify(m jetstream.Msg) (kind string, err error) {
	keys := f.cfg.Conn.Members
	if keys == nil {
		return "", nil
	}
	if m.Subject() == f.cfg.Conn.Names.CutsLead() {
		record, err := fence.Parse(keys, m.Subject(), m.Headers(), m.Data())
		if err == nil && (record.Term < f.record.Term || record.Term == f.record.Term && record.Batch < f.record.Batch) {
			err = fmt.Errorf("the lead record of batch %d in term %d was stored again behind batch %d of term %d", record.Batch, record.Term, f.record.Batch, f.record.Term)
		}
		return fleet.RefusedLead, err
	}
	place := m.Headers().Get(partHeader)
	if place == "" {
		return "", nil // it is no part of a frame, and has no effect
	}
	if err := keys.Verify(m.Headers().Get(fleet.MACHeader), fleet.PurposeFrame, m.Subject(), place, m.Data()); err != nil {
		return fleet.RefusedFrame, fmt.Errorf("a frame of the state file: %w", err)
	}
	return "", nil
}

// passed records that the stream was read up to a sequence, without a message about the leader.
func (f *Follower) passed(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = max(f.seen, seq)
	f.broadcast()
}

// apply applies the frames that were read.
func (f *Follower) apply() error {
	group := f.group
	f.group, f.bytes = nil, 0
	if len(group) == 0 {
		return nil
	}
	frames := make([]checkpoint.Frame, 0, len(group))
	for _, r := range group {
		frames = append(frames, r.Frame)
	}
	err := f.cfg.DB.Apply(frames...)
	if !noFrame(err) {
		return err // nil, or the disk may recover
	}
	for _, r := range group { // those before the one that fails are good
		if err = f.cfg.DB.Apply(r.Frame); err == nil {
			continue
		}
		if noFrame(err) {
			f.gap = &gap{at: r.seq, err: err}
			if errors.Is(err, checkpoint.ErrFrameGap) {
				f.gap.next, f.gap.diverged = r.Number, r.Number <= f.cfg.DB.Position().Number+1
			}
		}
		return err
	}
	return nil
}

// noFrame reports whether the error says that a frame cannot be applied to the file.
func noFrame(err error) bool {
	return errors.Is(err, checkpoint.ErrFrameGap) || errors.Is(err, checkpoint.ErrFrameDamaged)
}

// progress records that the stream was applied up to a sequence. The lead record tells whether
// frames are missing at its end.
func (f *Follower) progress(seq uint64) error {
	own := f.cfg.DB.Position()
	if own.Number < f.note.Last.Number {
		f.gap = &gap{at: seq, next: f.note.Last.Number + 1, err: fmt.Errorf("%w: the stream ends with %v, and the file has %v", checkpoint.ErrFrameGap, f.note.Last, own)}
		f.mu.Lock()
		f.newest = f.note.Newest
		f.mu.Unlock()
		return f.gap.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen, f.newest, f.known = seq, f.note.Newest, true
	if own.Number >= f.newest.Number {
		f.synced = time.Now()
	}
	f.broadcast()
	return nil
}

// Lag returns the distance to the leader.
func (f *Follower) Lag() Lag {
	own := f.cfg.DB.Position()
	f.mu.Lock()
	defer f.mu.Unlock()
	lag := Lag{Frames: f.newest.Number - min(own.Number, f.newest.Number), Known: f.known && !f.synced.IsZero()}
	if !f.synced.IsZero() {
		lag.Time = time.Since(f.synced)
	}
	return lag
}

// IncompleteError says that a follower has not all of the stream at a takeover, and cannot get it.
type IncompleteError struct{ Reason error }

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("the state file lacks the last frames of the leader, which are not in NATS: %v; "+
		"changes since then are read again from the API server, and kv, dead letters and limits since then are lost", e.Reason)
}

func (e *IncompleteError) Unwrap() error { return e.Reason }

// CatchUp waits until all frames are applied that the stream has now. It is called while Run runs,
// by a member that has opened the stream as the next leader: no other frames are added. The error
// is an *IncompleteError if the stream cannot be applied to its end, which a leader can begin with,
// or that of ctx.
func (f *Follower) CatchUp(ctx context.Context) error {
	stream, err := f.cfg.Conn.JS.Stream(ctx, f.cfg.Conn.Names.Cuts())
	if err != nil {
		return fmt.Errorf("stream %s: %w", f.cfg.Conn.Names.Cuts(), err)
	}
	state := stream.CachedInfo().State
	if state.Msgs <= 1 { // the lead record: there was no leader before
		return nil
	}
	f.mu.Lock()
	polls := f.polls
	f.mu.Unlock()
	for {
		f.mu.Lock()
		seen, stuck, changed := f.seen, f.stuck, f.changed
		looked := f.polls > polls+1 // since this call, for a snapshot
		f.mu.Unlock()
		if stuck == nil && seen >= state.LastSeq {
			return nil
		}
		if stuck != nil && looked {
			return &IncompleteError{stuck}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
