package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/deltarouter/deltarouter/internal/checkpoint/frame"
	"github.com/deltarouter/deltarouter/internal/checkpoint/statefile"
)

type (
	// Frame has the changes of one transaction.
	Frame = frame.Frame
	// Position is the place of a state file in the log of a fleet.
	Position = frame.Position
)

// DecodeFrame is the inverse of [Frame.Append]. The error wraps [ErrFrameDamaged] or
// [ErrFrameNewer].
func DecodeFrame(data []byte) (Frame, error) { return frame.Decode(data) }

var (
	// ErrFrameDamaged is wrapped by the error of bytes that are no frame, and of operations that no
	// state file can have.
	ErrFrameDamaged = frame.ErrDamaged
	// ErrFrameNewer is wrapped by the error of a frame that only a newer version can apply.
	ErrFrameNewer = frame.ErrNewer
	// ErrFrameGap is wrapped by the error of [DB.Apply] for a frame that does not follow the last
	// one of the file: others are missing between them, or the file has frames of a deposed leader.
	// Only a snapshot helps.
	ErrFrameGap = errors.New("the frame does not follow the last one of the state file")
)

// Position returns the last frame that the file has. It is zero if the file is in no log: no frame
// was written or applied yet, or the file was changed since by a router without a fleet.
func (db *DB) Position() Position {
	db.mu.RLock()
	defer db.mu.RUnlock()
	return db.position
}

// Apply applies frames in one transaction, all or none. Frames that the file has are skipped. The
// error wraps [ErrFrameGap], [ErrFrameDamaged] or [ErrFull], or is one of a write.
func (db *DB) Apply(frames ...Frame) error {
	if db.cfg.Shipped != nil {
		return errors.New("a leader applies no frames")
	}
	// before the transaction, whose failure costs a verification of the file
	if next, err := following(db.Position(), frames); err != nil || len(next) == 0 {
		return err
	}
	cluster := false
	err := db.update(TransactionApply, func(tx *writing) error {
		tx.next = db.position
		next, err := following(db.position, frames)
		for i := range next {
			if err == nil {
				cluster, err = tx.apply(&next[i], cluster)
			}
		}
		return err
	})
	if err == nil && cluster {
		err = db.view(func(tx *reading) (err error) {
			db.mu.Lock()
			defer db.mu.Unlock()
			db.cluster, err = tx.cluster()
			return err
		})
	}
	return err
}

// Lead makes the file of a standby that of the leader without opening it again: see
// [Config].Shipped, Confirm and Term. Nothing else uses the file meanwhile.
func (db *DB) Lead(shipped func(f Frame), confirm func(p Position), term uint64) error {
	db.cfg.Shipped, db.cfg.Confirm, db.cfg.Term = shipped, confirm, term
	return begin(db)
}

// Replace replaces the file by a snapshot, the file at a path in the same folder. The snapshot has
// the position at, or a later one of that term. Until the snapshot is verified the file is
// unchanged; then the snapshot gets its name.
func (db *DB) Replace(path string, at Position) error {
	if db.cfg.Shipped != nil {
		return errors.New("a leader takes no snapshot")
	}
	snapshot, err := OpenReadOnly(path)
	if err != nil {
		return fmt.Errorf("the snapshot: %w", err)
	}
	has := snapshot.Position()
	if err := snapshot.Close(); err != nil {
		return fmt.Errorf("the snapshot: %w", err)
	}
	if has.Term != at.Term || has.Number < at.Number {
		return fmt.Errorf("%w: the snapshot has %v and not %v", ErrFrameDamaged, has, at)
	}
	db.writing.Lock()
	defer db.writing.Unlock()
	return db.file.Replace(path)
}

// following returns the frames that a file at a position does not have.
func following(own Position, frames []Frame) ([]Frame, error) {
	for len(frames) > 0 && frames[0].Number <= own.Number && frames[0].Term <= own.Term {
		frames = frames[1:]
	}
	for i := range frames {
		f := &frames[i]
		if f.Number != own.Number+1 || f.Before != own.Term || f.TooLarge {
			return nil, fmt.Errorf("%w: %v came, and the file has %v", ErrFrameGap, f.Position, own)
		}
		own = f.Position
	}
	return frames, nil
}

// apply applies a frame. It reports whether a frame has changed the cluster.
func (tx *writing) apply(f *Frame, cluster bool) (bool, error) {
	a := applier{tx: tx}
	if err := frame.Each(f.Ops, a.run); err != nil {
		return false, fmt.Errorf("%v: %w", f.Position, err)
	}
	if content := tx.unnumbered(); content != f.Seal {
		return false, fmt.Errorf("%w: with %v the file has %d values and another sum than the leader's with %d",
			ErrFrameGap, f.Position, content.Count, f.Seal.Count)
	}
	tx.next = f.Position
	return cluster || a.cluster, nil
}

// applier applies the operations of a frame.
type applier struct {
	tx      *writing
	shelves []shelf // by place; without a bucket: not looked up yet
	cluster bool
}

func (a *applier) run(op *frame.Op) error {
	s, err := a.shelf(op)
	if err != nil {
		return fmt.Errorf("%w: bucket %q: %w", ErrFrameDamaged, op.Path, err)
	}
	switch op.Kind {
	case frame.Put:
		err = a.put(s, op)
	case frame.Remove:
		if err = a.permit(op); err == nil {
			err = a.tx.remove(s, op.Key)
		}
	case frame.Drop:
		if op.Path[0] == routesBucket && len(op.Path) == 2 && string(op.Key) == pendingBucket {
			*a.tx.backlog(op.Path[1]) = weight{}
		}
		clear(a.shelves) // one of them may be gone
		a.shelves[op.Place] = s
		err = a.tx.drop(s, string(op.Key))
	case frame.Sequence:
		err = s.SetSequence(op.Number)
	}
	if err != nil && !errors.Is(err, ErrFrameDamaged) {
		err = fmt.Errorf("%w: %w", ErrFrameDamaged, err)
	}
	return err
}

func (a *applier) put(s shelf, op *frame.Op) error {
	if err := a.permit(op); err != nil {
		return err
	}
	if err := a.tx.codec.Check(s.seed, op.Key, op.Value); err != nil {
		return fmt.Errorf("%w: %w", ErrFrameDamaged, err)
	}
	return a.tx.store(s, op.Key, op.Value)
}

// permit refuses the records of the bucket meta that each file writes itself.
func (a *applier) permit(op *frame.Op) error {
	if op.Path[0] != metaBucket {
		return nil
	}
	if key := string(op.Key); key == sealKey || key == positionKey || key == statefile.FormatKey {
		return fmt.Errorf("%w: it changes the record %s", ErrFrameDamaged, key)
	}
	a.cluster = true
	return nil
}

// shelf returns the bucket of an operation, and creates it if necessary.
func (a *applier) shelf(op *frame.Op) (shelf, error) {
	for len(a.shelves) <= op.Place {
		a.shelves = append(a.shelves, shelf{})
	}
	if op.Kind != frame.Make && a.shelves[op.Place].Bucket != nil {
		return a.shelves[op.Place], nil
	}
	if op.Path[0] == metaBucket && len(op.Path) > 1 {
		return shelf{}, errors.New("no bucket is in this one")
	}
	var s shelf
	var err error
	if len(op.Path) == 3 && op.Path[0] == routesBucket && op.Path[2] == pendingBucket {
		s, err = a.tx.backlogShelf(op.Path[1])
	} else {
		s, err = a.tx.make(op.Path...)
	}
	a.shelves[op.Place] = s
	return s, err
}

// begin gives a file that is in no log a position in that of [Config.Term]. A follower has no frame
// with that number, so that it needs a snapshot.
func begin(db *DB) error {
	if db.cfg.Shipped == nil || db.Position() != (Position{}) {
		return nil
	}
	ship, confirm := db.cfg.Shipped, db.cfg.Confirm
	db.cfg.Shipped, db.cfg.Confirm = nil, nil
	defer func() { db.cfg.Shipped, db.cfg.Confirm = ship, confirm }()
	return db.update(TransactionApply, func(tx *writing) error {
		tx.next = Position{Term: db.cfg.Term, Number: 1}
		return nil
	})
}

// The record of the position has term, number, and the seal of all other values: if they have
// another one, a router that writes no positions has changed the file.

// unnumbered returns the seal of all values but the position.
func (tx *writing) unnumbered() statefile.Seal {
	content := tx.seal
	if old := tx.top(metaBucket).Get([]byte(positionKey)); old != nil {
		content.Remove(old)
	}
	return content
}

// number writes the position.
func (tx *writing) number(meta shelf) error {
	if tx.redo != nil && tx.redo.Empty() {
		tx.next = Position{}
	}
	if tx.next == (Position{}) {
		return nil
	}
	tx.content = tx.unnumbered()
	key := []byte(positionKey)
	payload := binary.AppendUvarint(binary.AppendUvarint(nil, tx.next.Term), tx.next.Number)
	stored := tx.value(meta, key, append(payload, tx.content.Payload()...))
	tx.seal = tx.content
	tx.seal.Add(stored)
	return meta.Put(key, stored)
}

// position reads the position. It is zero if the file has another content.
func (tx *reading) position() (Position, error) {
	meta := tx.shelf(metaBucket)
	payload, err := tx.record(meta, positionKey)
	if payload == nil || err != nil {
		return Position{}, err
	}
	r := reader{rest: payload}
	p := Position{Term: r.uint(), Number: r.uint()}
	if r.err != nil {
		return Position{}, r.err
	}
	sealed, err := tx.record(meta, sealKey)
	if err != nil {
		return Position{}, err
	}
	seal, err := statefile.ParseSeal(sealed)
	if err != nil {
		return Position{}, err
	}
	seal.Remove(meta.Get([]byte(positionKey)))
	if !slices.Equal(seal.Payload(), r.rest) {
		return Position{}, nil
	}
	return p, nil
}

// advance updates the position after a transaction, and ships its frame. The caller holds mu.
func advance(db *DB, tx *writing) {
	if tx.redo != nil && tx.redo.Empty() {
		return
	}
	before := db.position
	db.position = tx.next
	if tx.redo == nil {
		return
	}
	f := Frame{Position: tx.next, Before: before.Term, Seal: tx.content}
	ops, ok := tx.redo.Ops()
	f.Ops, f.TooLarge = ops, !ok
	db.redone = min(len(ops)+len(ops)/8, maxArena)
	db.cfg.Shipped(f)
}
