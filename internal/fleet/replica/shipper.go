package replica

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
)

const (
	// beatInterval is the time after which a leader without frames publishes its position.
	beatInterval = time.Second
	// confirmBound limits the wait of a transaction for its publication.
	confirmBound = time.Second
	// maxQueued limits the bytes of the frames that wait in memory.
	maxQueued = 128 << 20
	// refusedPause follows a batch that the server refuses.
	refusedPause = 5 * time.Second
)

// Publisher is a fence.Publisher of the stream CUTS.
type Publisher interface {
	Publish(ctx context.Context, messages []*nats.Msg, note []byte) (uint64, error)
}

// ShipperConfig describes a shipper.
type ShipperConfig struct {
	Conn    *fleet.Conn
	Figures *Figures
	Log     *slog.Logger
	// Wait: Confirm waits for the publication, for a second at most.
	Wait bool

	maxQueued int   // 0: the default
	every     int64 // bytes of frames between snapshots; 0: the default
	beat      time.Duration
	inspect   time.Duration // between two counts of the frames in the stream; 0: the default
}

// Shipper publishes the frames of the leader's state file. It is safe for concurrent use.
type Shipper struct {
	cfg  ShipperConfig
	wake chan struct{}

	mu      sync.Mutex
	queue   []item
	bytes   int                 // of the queue
	newest  checkpoint.Position // of the frames that were shipped
	done    checkpoint.Position // the last frame that was published or given up
	taken   int                 // frames of the batch in flight
	since   time.Time           // when the oldest frame came that is not published
	changed chan struct{}       // closed with each change of done, late, broken and phase
	phase   phase
	late    bool // a wait ended at its bound, and frames wait since
	// broken: a follower needs a snapshot that is not published yet, which has all frames before
	// brokenAt.
	broken   bool
	brokenAt uint64
	queued   bool     // a snapshot is in the queue
	asked    *request // of a follower

	// These belong to Run.
	note   note
	seq    uint64 // of the last batch
	making making
	kept   kept
}

// phase is the state of Run.
type phase int

const (
	_ phase = iota // it has not begun
	running
	ended
)

// making is the work for the next snapshot.
type making struct {
	runs      bool
	results   chan snapshot
	begun     time.Time // when the last snapshot was begun
	notBefore time.Time // of the next one
	behind    int64     // bytes of the frames since the snapshot
}

// item is a frame or a snapshot that waits for its publication.
type item struct {
	frame    checkpoint.Frame
	snapshot *pointer
}

// NewShipper returns a shipper. Its method Ship is for checkpoint.Config.Shipped, and Confirm for
// checkpoint.Config.Confirm.
func NewShipper(cfg ShipperConfig) *Shipper {
	if cfg.Figures == nil {
		cfg.Figures = &Figures{}
	}
	if cfg.maxQueued == 0 {
		cfg.maxQueued = maxQueued
	}
	if cfg.every == 0 {
		cfg.every = snapshotEvery
	}
	if cfg.beat == 0 {
		cfg.beat = beatInterval
	}
	if cfg.inspect == 0 {
		cfg.inspect = keptInterval
	}
	return &Shipper{cfg: cfg, wake: make(chan struct{}, 1), changed: make(chan struct{}), making: making{results: make(chan snapshot, 1)}}
}

// Ship takes a frame. It does not block.
func (s *Shipper) Ship(f checkpoint.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = f.Position
	if f.TooLarge || s.bytes+len(f.Ops) > s.cfg.maxQueued {
		s.giveUp()
	}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	if !f.TooLarge {
		s.push(item{frame: f}, len(f.Ops))
	}
}

func (s *Shipper) push(i item, bytes int) {
	s.queue = append(s.queue, i)
	s.bytes += bytes
	s.signal()
}

func (s *Shipper) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// giveUp gives up the frames that wait. The caller holds mu.
func (s *Shipper) giveUp() {
	if !s.broken {
		s.cfg.Log.Warn("fleet: frames of the state file are not published, because too many wait or one is too large: the next snapshot has them",
			"frames", len(s.queue), "bytes", s.bytes)
	}
	s.queue, s.bytes, s.queued = nil, 0, false
	s.breakAt(s.newest.Number + 1)
}

func (s *Shipper) breakAt(number uint64) {
	s.broken, s.brokenAt = true, max(s.brokenAt, number)
	s.signal()
}

// Run publishes until ctx ends, and returns nil then, or until it cannot go on: the error wraps
// fence.ErrDeposed or fence.ErrLeadGone. After the latter it may be called again with a publisher
// that was opened again. db is the file whose frames Ship gets; it is open until Run returns.
func (s *Shipper) Run(ctx context.Context, db *checkpoint.DB, publisher Publisher, before fence.Record) error {
	s.cfg.Figures.follow(s.Lag)
	s.begin(db.Position(), parseNote(before.Note))
	ctx, cancel := context.WithCancel(ctx)
	requests, err := s.cfg.Conn.NATS.Subscribe(s.cfg.Conn.Names.SnapshotRequest(), func(m *nats.Msg) { s.ask(m.Data) })
	if err != nil {
		s.cfg.Log.Warn("fleet: standbys cannot ask for snapshots", "err", err)
	} else {
		defer func() { _ = requests.Unsubscribe() }() // the connection may be closed
	}
	defer s.end(cancel)
	beat := time.NewTicker(s.cfg.beat)
	defer beat.Stop()
	// Without frames there is a beat now and then: a standby knows by it that it lacks none.
	for idle := false; ; {
		s.count(ctx)
		s.snapshot(ctx, db)
		items := s.take()
		if len(items) > 0 || !idle {
			err := s.publish(ctx, publisher, items)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			idle = true
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-beat.C:
			idle = false
		case made := <-s.making.results:
			s.made(made)
		case <-s.due():
		}
	}
}

// begin compares the file with the end of the stream.
func (s *Shipper) begin(own checkpoint.Position, before note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note, s.seq, s.taken, s.queued, s.kept = before, 0, 0, false, kept{}
	s.phase = running
	// a snapshot from before this call has a sequence of another stream
	s.queue = slices.DeleteFunc(s.queue, func(i item) bool { return i.snapshot != nil })
	if len(s.queue) > 0 {
		return // the first of them shows it
	}
	if s.newest, s.done = own, own; before.Last != own {
		s.note.Last = own
		s.breakAt(own.Number + 1)
	}
}

func (s *Shipper) end(cancel context.CancelFunc) {
	cancel()
	if s.making.runs {
		<-s.making.results
		s.making.runs = false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = ended
	s.broadcast()
}

// broadcast wakes those that wait. The caller holds mu.
func (s *Shipper) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// take removes the items of the next batch from the queue: frames, or one snapshot.
func (s *Shipper) take() []item {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes := 0, 0
	for n < len(s.queue) && n < fence.MaxMessages && (n == 0 || bytes+len(s.queue[n].frame.Ops) < fence.MaxBytes) {
		if s.queue[n].snapshot != nil {
			if n == 0 {
				n = 1
			}
			break
		}
		bytes += len(s.queue[n].frame.Ops)
		n++
	}
	items := s.queue[:n:n]
	s.queue, s.bytes, s.taken = s.queue[n:], s.bytes-bytes, n
	return items
}

// publish publishes items, or without one a beat.
func (s *Shipper) publish(ctx context.Context, publisher Publisher, items []item) error {
	var messages []*nats.Msg
	last := s.note.Last
	var bytes int64
	for i := range items {
		f := &items[i].frame
		if items[i].snapshot != nil {
			return s.publishSnapshot(ctx, publisher, items[i].snapshot)
		}
		s.follows(last, f)
		last = f.Position
		messages = append(messages, parts(s.cfg.Conn.Members, s.cfg.Conn.Names.Frame(frameToken), f)...)
		bytes += int64(len(f.Ops))
	}
	if len(items) == 0 {
		messages = []*nats.Msg{s.beat()}
	}
	// A frame with many parts takes several batches, of which the last one has it in the note.
	for len(messages) > 0 {
		n := 1
		for size := messages[0].Size(); n < len(messages) && n < fence.MaxMessages && size+messages[n].Size() < fence.MaxBytes; n++ {
			size += messages[n].Size()
		}
		if n == len(messages) { // a follower that has read so far has it
			s.note.Last = last
		}
		if err := s.batch(ctx, publisher, messages[:n]); err != nil {
			return s.refused(ctx, err)
		}
		if len(items) > 0 {
			s.kept.messages += uint64(n)
		}
		messages = messages[n:]
	}
	s.making.behind += bytes
	s.cfg.Figures.Published.Add(bytes)
	s.published(last)
	return nil
}

// follows notices a frame that does not follow on the one before.
func (s *Shipper) follows(before checkpoint.Position, f *checkpoint.Frame) {
	if f.Number == before.Number+1 && f.Before == before.Term {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breakAt(f.Number)
}

func (s *Shipper) batch(ctx context.Context, publisher Publisher, messages []*nats.Msg) error {
	s.mu.Lock()
	s.note.Newest = s.newest
	s.mu.Unlock()
	seq, err := publisher.Publish(ctx, messages, s.note.encode())
	if err == nil {
		s.seq = seq
	}
	return err
}

// refused handles the failure of a batch: a batch that the server refuses is given up.
func (s *Shipper) refused(ctx context.Context, err error) error {
	var refused *fence.RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	s.cfg.Log.Error("fleet: frames of the state file cannot be published; a snapshot replaces them", "stream", s.cfg.Conn.Names.Cuts(), "err", err)
	s.mu.Lock()
	s.giveUp()
	s.taken = 0
	s.mu.Unlock()
	select {
	case <-time.After(refusedPause):
	case <-ctx.Done():
	}
	return nil
}

// published records the end of a batch.
func (s *Shipper) published(last checkpoint.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = 0
	if last.Number > s.done.Number {
		s.done = last
	}
	if s.since = time.Now(); len(s.queue) == 0 {
		s.since, s.late = time.Time{}, false
	}
	s.broadcast()
}

// beat is a message without a frame: the lead record behind it has the position of the leader. It
// replaces the one before.
func (s *Shipper) beat() *nats.Msg {
	return &nats.Msg{Subject: s.cfg.Conn.Names.Frame(beatToken), Header: nats.Header{nats.MsgRollup: {nats.MsgRollupSubject}}}
}
