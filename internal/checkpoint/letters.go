package checkpoint

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Letter is a dead letter: a delta that a route has given up.
type Letter struct {
	// ID is set by [Letters.Add]: never used again, and ascending.
	ID    uint64
	Time  time.Time
	Route string
	// Sink is the sink that refused the delta, and the only one to redeliver it to. Empty: the
	// delta did not reach a sink.
	Sink     string
	Error    string
	Attempts int
	// Unseen: the route's filter or key failed.
	Unseen bool
	Delta  *event.Delta
	// Call is the record of the failed call of the handler as JSON, see package callrecord. nil:
	// there is none.
	Call []byte
}

// The reasons why dead letters are lost, for LettersConfig.Lost.
const (
	LostAge   = "age"   // older than MaxAge
	LostCount = "count" // replaced by newer ones of the route
	LostShare = "share" // beyond the share of their owner, see LettersShare
)

// LettersConfig limits the dead letters.
type LettersConfig struct {
	Max    int           // of each route: new ones replace the oldest; 0: no limit
	MaxAge time.Duration // 0: no limit
	Share  LettersShare
	// Lost is called with the number of dead letters that are lost, Count with the new number of
	// dead letters of a route; both may be nil. They must not call back.
	Lost  func(route, reason string, n int)
	Count func(route string, n int)
}

// Letters are the dead letters of a state file. They are safe for concurrent use. Dead letters of a
// removed route stay until they are too old.
type Letters struct {
	db   *DB
	cfg  LettersConfig
	turn chan struct{} // held during a write

	mu      sync.Mutex
	last    uint64            // the last used ID
	source  LettersSource     // the zero value: none was imported
	routes  map[string][]mark // in the order of the IDs
	waiting *letterBatch      // nil: no call waits
}

// mark is the part of a dead letter that is kept in memory.
type mark struct {
	id    uint64
	time  time.Time
	bytes int64 // in the file
}

// letterBatch has dead letters that are written together.
type letterBatch struct {
	letters []Letter
	done    chan struct{}
	err     error // valid once done is closed
}

// Letters reads the index of the dead letters. It is called once.
func (db *DB) Letters(cfg LettersConfig) (*Letters, error) {
	l := &Letters{db: db, cfg: cfg, turn: make(chan struct{}, 1), routes: make(map[string][]mark)}
	err := db.view(func(tx *reading) error {
		state, err := tx.record(tx.shelf(lettersBucket), stateKey)
		if err != nil {
			return err
		}
		if state != nil {
			if l.last, l.source, err = parseLettersState(state); err != nil {
				return err
			}
		}
		s := tx.shelf(lettersBucket, entriesBucket)
		return tx.each(s, func(key, payload []byte) error {
			letter, err := parseLetter(key, payload)
			l.last = max(l.last, letter.ID)
			l.routes[letter.Route] = append(l.routes[letter.Route], newMark(&letter, s.Get(key)))
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("dead letters in the state file: %w", err)
	}
	for route := range l.routes {
		l.tell(route)
	}
	return l, nil
}

// Add writes dead letters, all or none. When it returns nil they are on disk, synced. Calls during
// a write are joined into the next transaction. The error wraps [ErrFull] if there is no room, or
// is ctx's: then they may be written or not.
func (l *Letters) Add(ctx context.Context, letters []Letter) error {
	for i := range letters {
		if d := letters[i].Delta; d == nil || d.Object() == nil {
			return fmt.Errorf("a dead letter of route %q has no object", letters[i].Route)
		}
	}
	l.mu.Lock()
	if l.waiting == nil {
		l.waiting = &letterBatch{done: make(chan struct{})}
	}
	b := l.waiting
	b.letters = append(b.letters, letters...)
	l.mu.Unlock()
	if err := l.take(ctx); err != nil {
		return fmt.Errorf("they may not have been written: %w", err)
	}
	defer func() { <-l.turn }()
	l.mu.Lock()
	next := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	if next != nil {
		next.err = l.write(next.letters, l.Imported(), time.Now())
		close(next.done)
	}
	<-b.done // b is next, or was written before
	return b.err
}

// write writes new dead letters and removes those that they replace or that are too old. The caller
// has the turn.
func (l *Letters) write(letters []Letter, source LettersSource, now time.Time) error {
	l.mu.Lock()
	last, before := l.last, l.source
	l.mu.Unlock()
	for i := range letters {
		last++
		letters[i].ID = last
	}
	if len(letters) == 0 && source == before && len(l.overdue(nil, now)) == 0 {
		return nil
	}
	var coming map[string][]mark
	var lost []loss
	err := l.db.update(TransactionLetters, func(tx *writing) (err error) {
		if coming, err = putLetters(tx, letters); err != nil {
			return err
		}
		lost = l.overdue(coming, now)
		return tx.endLetters(lost, last, source)
	})
	if err != nil {
		return fmt.Errorf("dead letters cannot be written: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.source = last, source
	for route, marks := range coming {
		l.routes[route] = append(l.routes[route], marks...)
	}
	l.settle(lost)
	for route := range coming {
		l.tell(route)
	}
	return nil
}

// settle removes lost dead letters from the index and reports them. The caller holds mu.
func (l *Letters) settle(lost []loss) {
	if len(lost) == 0 {
		return
	}
	gone := make(map[string][]uint64)
	count := make(map[[2]string]int)
	for _, x := range lost {
		gone[x.route] = append(gone[x.route], x.id)
		count[[2]string{x.route, x.reason}]++
	}
	for route, ids := range gone {
		l.forget(route, ids)
	}
	if l.cfg.Lost == nil {
		return
	}
	for what, n := range count {
		l.cfg.Lost(what[0], what[1], n)
	}
}

// forget removes dead letters of a route from the index, and returns their number. The caller holds
// mu.
func (l *Letters) forget(route string, ids []uint64) int {
	marks := l.routes[route]
	gone := make(map[uint64]bool)
	for _, id := range ids {
		if _, found := find(marks, id); found {
			gone[id] = true
		}
	}
	if len(gone) == 0 {
		return 0
	}
	l.routes[route] = slices.DeleteFunc(marks, func(m mark) bool { return gone[m.id] })
	l.tell(route)
	if len(l.routes[route]) == 0 {
		delete(l.routes, route)
	}
	return len(gone)
}

// find returns the position of the dead letter, or the position at which it would be.
func find(marks []mark, id uint64) (int, bool) {
	return slices.BinarySearchFunc(marks, id, func(m mark, id uint64) int { return cmp.Compare(m.id, id) })
}

func (l *Letters) tell(route string) {
	if l.cfg.Count != nil {
		l.cfg.Count(route, len(l.routes[route]))
	}
}

// Remove removes dead letters, and returns the number of those that existed. When it returns
// without an error the removal is on disk.
func (l *Letters) Remove(ctx context.Context, ids []uint64) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	if err := l.take(ctx); err != nil {
		return 0, err
	}
	defer func() { <-l.turn }()
	lost := make([]loss, 0, len(ids))
	for _, id := range ids {
		lost = append(lost, loss{id: id})
	}
	l.mu.Lock()
	last, source := l.last, l.source
	l.mu.Unlock()
	if err := l.db.update(TransactionLetters, func(tx *writing) error { return tx.endLetters(lost, last, source) }); err != nil {
		return 0, fmt.Errorf("dead letters cannot be removed: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, route := range slices.Collect(maps.Keys(l.routes)) {
		n += l.forget(route, ids)
	}
	return n, nil
}

// Expire removes the dead letters that are too old.
func (l *Letters) Expire(ctx context.Context, now time.Time) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	defer func() { <-l.turn }()
	return l.write(nil, l.Imported(), now)
}

// take waits for the turn. A free turn is taken even if ctx is done: a stop must not look like a
// failing disk.
func (l *Letters) take(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("dead letters: %w", ctx.Err())
	}
}

// IDs returns the IDs after after of the dead letters of a route, or of all routes if route is
// empty, in order: at most limit (0: all).
func (l *Letters) IDs(route string, after uint64, limit int) []uint64 {
	l.mu.Lock()
	var ids []uint64
	for name, marks := range l.routes {
		if route != "" && name != route {
			continue
		}
		from, _ := find(marks, after+1)
		for _, m := range marks[from:] {
			ids = append(ids, m.id)
		}
	}
	l.mu.Unlock()
	slices.Sort(ids)
	if limit > 0 && len(ids) > limit {
		ids = ids[:limit]
	}
	return ids
}

// Load reads dead letters; missing ones are left out. Deltas of Secrets have only the identity.
func (l *Letters) Load(ids []uint64) ([]Letter, error) {
	var letters []Letter
	err := l.db.view(func(tx *reading) error {
		s := tx.shelf(lettersBucket, entriesBucket)
		for _, id := range ids {
			key := pendingKey(id)
			payload, err := tx.record(s, string(key))
			if err != nil {
				return err
			}
			if payload == nil {
				continue
			}
			letter, err := parseLetter(key, payload)
			if err != nil {
				return err
			}
			letters = append(letters, letter)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("dead letters in the state file: %w", err)
	}
	return letters, nil
}

// LettersSource is a position in a stream from which dead letters are imported: the workers of a
// fleet write theirs there.
type LettersSource struct {
	Stream int64  // identifies the stream: the time of its creation, in nanoseconds
	Seq    uint64 // of the last imported message
}

// Imported returns the position that [Letters.Import] has reached.
func (l *Letters) Imported() LettersSource {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.source
}

// Import writes dead letters of a stream, and the position behind them, in one transaction. So each
// letter is imported once, also after a crash.
func (l *Letters) Import(ctx context.Context, letters []Letter, upTo LettersSource) error {
	for i := range letters {
		if d := letters[i].Delta; d == nil || d.Object() == nil {
			return fmt.Errorf("a dead letter of route %q has no object", letters[i].Route)
		}
	}
	if err := l.take(ctx); err != nil {
		return err
	}
	defer func() { <-l.turn }()
	return l.write(letters, upTo, time.Now())
}
