package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
)

const (
	// snapshotEvery is the minimum of the bytes of frames between two snapshots. With a larger
	// state file it is the size of the snapshot: publishing snapshots takes no more than the frames.
	snapshotEvery = 64 << 20
	// snapshotTimeout limits the publication of a snapshot, and snapshotRate adds the time for its
	// size, in bytes per second: a server that ends may leave a part without an answer for ever.
	snapshotTimeout = 15 * time.Second
	snapshotRate    = 2 << 20
	// snapshotPause follows a snapshot that failed.
	snapshotPause = 10 * time.Second
	// tidyTimeout limits the requests that remove old snapshots and frames.
	tidyTimeout = 10 * time.Second
)

// The last tokens of subjects.
const (
	frameToken    = "log"
	beatToken     = "beat"
	snapshotToken = "snapshot"
)

// snapshot is the result of making a snapshot.
type snapshot struct {
	pointer pointer
	err     error
}

// request is the request of a follower for a snapshot.
type request struct {
	At    uint64 `json:"at"` // see pointer.closes
	Next  uint64 `json:"next"`
	Tried string `json:"tried"` // the name of a snapshot that did not help
}

func (s *Shipper) ask(text []byte) {
	var r request
	if json.Unmarshal(text, &r) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = &r
	s.signal()
}

// snapshot begins to make a snapshot if one is due, and takes the one that was made.
func (s *Shipper) snapshot(ctx context.Context, db *checkpoint.DB) {
	select {
	case made := <-s.making.results:
		s.made(made)
	default:
	}
	if !s.wanted() || time.Now().Before(s.making.notBefore) {
		return
	}
	s.mu.Lock()
	s.asked = nil
	s.mu.Unlock()
	s.making.runs, s.making.begun = true, time.Now()
	// The frames behind At are published later than this sequence.
	p := pointer{Seq: s.seq, At: db.Position()}
	go func() {
		made := snapshot{pointer: p}
		made.err = s.put(ctx, db, &made.pointer)
		s.making.results <- made
	}()
}

// wanted reports whether a snapshot is to be made.
func (s *Shipper) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	valid := s.note.Snapshot
	if s.making.runs || s.queued || s.seq == 0 {
		return false
	}
	if valid == nil || s.broken {
		return true
	}
	if s.asked != nil && (s.asked.Tried == valid.Name || !valid.closes(s.asked.At, s.asked.Next)) {
		return true // the valid one does not help the follower
	}
	s.asked = nil                                                 // because the valid one is the answer
	return s.making.behind >= max(s.cfg.every, int64(valid.Size)) //nolint:gosec // it is a file's
}

// due returns a channel that is ready when a snapshot may be made that is wanted and was put off.
func (s *Shipper) due() <-chan time.Time {
	if !s.wanted() {
		return nil
	}
	return time.After(time.Until(s.making.notBefore))
}

// put makes a snapshot and stores it.
func (s *Shipper) put(ctx context.Context, db *checkpoint.DB, p *pointer) error {
	timeout := snapshotTimeout + time.Duration(db.Size()/snapshotRate)*time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	store, err := s.cfg.Conn.JS.ObjectStore(ctx, s.cfg.Conn.Names.Snapshots())
	if err != nil {
		return err
	}
	backup, err := db.Backup(ctx)
	if err != nil {
		return err
	}
	p.Name = fmt.Sprintf("%d-%d-%d", p.At.Term, p.At.Number, time.Now().UnixNano())
	info, err := store.Put(ctx, jetstream.ObjectMeta{Name: p.Name}, backup)
	if err := errors.Join(err, backup.Close()); err != nil {
		return err
	}
	p.Size, p.Digest = info.Size, info.Digest
	return nil
}

// made queues a snapshot that was stored behind the frames that it has.
func (s *Shipper) made(m snapshot) {
	s.making.runs = false
	if m.err != nil {
		s.making.notBefore = time.Now().Add(snapshotPause)
		if !errors.Is(m.err, context.Canceled) {
			s.cfg.Log.Warn("fleet: no snapshot of the state file can be published; the router retries", "err", m.err)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.push(item{snapshot: &m.pointer}, 0)
	s.queued, s.making.behind = true, 0
}

// publishSnapshot makes a stored snapshot the valid one, and removes what it replaces.
func (s *Shipper) publishSnapshot(ctx context.Context, publisher Publisher, p *pointer) error {
	s.mu.Lock()
	s.queued = false
	s.mu.Unlock()
	before := s.note
	s.note.Previous, s.note.Snapshot = s.note.Snapshot, p
	if s.note.Last.Number < p.At.Number {
		s.note.Last = p.At
	}
	marker := &nats.Msg{Subject: s.cfg.Conn.Names.Frame(snapshotToken), Header: nats.Header{nats.MsgRollup: {nats.MsgRollupSubject}}}
	if err := s.batch(ctx, publisher, []*nats.Msg{marker}); err != nil {
		s.note = before
		return s.refused(ctx, err)
	}
	s.cfg.Figures.Snapshots.Add(1)
	s.cfg.Log.Info("fleet: a snapshot of the state file was published", "frame", p.At.Number, "term", p.At.Term, "bytes", p.Size)
	s.mu.Lock()
	s.broken = s.broken && p.At.Number+1 < s.brokenAt
	s.mu.Unlock()
	// Followers that ask again and again cause work for a tenth of the time.
	s.making.notBefore = time.Now().Add(9 * time.Since(s.making.begun))
	s.published(p.At)
	s.tidy(ctx)
	return nil
}

// tidy removes the frames before the snapshot before the valid one, and the snapshots before that.
// The lead record stays: without it the leader would depose itself. A failure is repaired by the
// next call.
func (s *Shipper) tidy(ctx context.Context) {
	keep := s.note.Previous
	if keep == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tidyTimeout)
	defer cancel()
	names := s.cfg.Conn.Names
	s.kept = kept{}
	stream, err := s.cfg.Conn.JS.Stream(ctx, names.Cuts())
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(names.Frames()), jetstream.WithPurgeSequence(keep.Seq+1))
	}
	if err == nil {
		err = s.removeBefore(ctx, keep)
	}
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("fleet: old snapshots and frames cannot be removed from NATS; the router retries after the next snapshot", "err", err)
	}
}

// removeBefore removes the snapshots of frames before that of keep. Those of later ones may be of a
// later leader.
func (s *Shipper) removeBefore(ctx context.Context, keep *pointer) error {
	store, err := s.cfg.Conn.JS.ObjectStore(ctx, s.cfg.Conn.Names.Snapshots())
	if err != nil {
		return err
	}
	objects, err := store.List(ctx)
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil
	}
	for _, o := range objects {
		var at checkpoint.Position
		var made int64
		if _, err := fmt.Sscanf(o.Name, "%d-%d-%d", &at.Term, &at.Number, &made); err != nil {
			continue // another program's
		}
		if at.Term < keep.At.Term || at.Term == keep.At.Term && at.Number < keep.At.Number {
			err = errors.Join(err, store.Delete(ctx, o.Name))
		}
	}
	return err
}
