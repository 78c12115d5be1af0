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

// Letter is a delta that a route gave up: a dead letter.
type Letter struct {
	// ID is given by [Letters.Add]: never used again, in the order in which the letters came.
	ID    uint64
	Time  time.Time
	Route string
	// Sink is the one that refused it, which is the only one that has to get it. Empty: it did not
	// get as far as a sink.
	Sink     string
	Error    string
	Attempts int
	// Unseen: it was the route's filter or key that failed.
	Unseen bool
	Delta  *event.Delta
}

// Why letters are lost, for LettersConfig.Lost.
const (
	LostAge   = "age"   // older than MaxAge
	LostCount = "count" // pushed out by newer ones of the route
)

// LettersConfig bounds the dead letters.
type LettersConfig struct {
	Max    int           // of each route: the oldest give way to new ones; 0: no bound
	MaxAge time.Duration // 0: no bound
	// Lost and Count are told, if they are not nil, of letters that are given up, and how many a
	// route has whenever that changes. They must not call back.
	Lost  func(route, reason string, n int)
	Count func(route string, n int)
}

// Letters are the dead letters of a state file. They are safe for concurrent use. Letters of a
// route that is not configured any more stay until they are too old.
type Letters struct {
	db   *DB
	cfg  LettersConfig
	turn chan struct{} // held by whoever writes

	mu      sync.Mutex
	last    uint64            // the ID given last
	routes  map[string][]mark // in the order of the IDs
	waiting *letterBatch      // nil: nobody waits
}

// mark is what is kept of a letter in memory.
type mark struct {
	id   uint64
	time time.Time
}

// letterBatch are letters that are written together.
type letterBatch struct {
	letters []Letter
	done    chan struct{}
	err     error // once done is closed
}

// Letters reads which letters there are. It is called once.
func (db *DB) Letters(cfg LettersConfig) (*Letters, error) {
	l := &Letters{db: db, cfg: cfg, turn: make(chan struct{}, 1), routes: make(map[string][]mark)}
	err := db.view(func(tx *reading) error {
		state, err := tx.record(tx.shelf(lettersBucket), stateKey)
		if err != nil {
			return err
		}
		if state != nil {
			r := reader{rest: state}
			l.last = r.uint()
			if err := r.done(); err != nil {
				return err
			}
		}
		return tx.each(tx.shelf(lettersBucket, entriesBucket), func(key, payload []byte) error {
			letter, err := parseLetter(key, payload)
			l.last = max(l.last, letter.ID)
			l.routes[letter.Route] = append(l.routes[letter.Route], mark{letter.ID, letter.Time})
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

// Add writes letters, all or none. When it returns nil they are on disk, synced. Calls that come
// while one is writing are written together, in one transaction. The error wraps [ErrFull] if there
// is no room, or is ctx's: then they may be written or not.
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
		next.err = l.write(next.letters, time.Now())
		close(next.done)
	}
	<-b.done // b is next, or was written before
	return b.err
}

// write writes new letters and removes those that give way to them or are too old. The caller has
// the turn.
func (l *Letters) write(letters []Letter, now time.Time) error {
	l.mu.Lock()
	last := l.last
	l.mu.Unlock()
	coming := make(map[string][]mark)
	for i := range letters {
		last++
		letters[i].ID = last
		coming[letters[i].Route] = append(coming[letters[i].Route], mark{last, letters[i].Time})
	}
	lost := l.overdue(coming, now)
	if len(letters) == 0 && len(lost) == 0 {
		return nil
	}
	err := l.db.update(TransactionLetters, func(tx *writing) error { return tx.letters(letters, lost, last) })
	if err != nil {
		return fmt.Errorf("dead letters cannot be written: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = last
	for route, marks := range coming {
		l.routes[route] = append(l.routes[route], marks...)
	}
	l.settle(lost)
	for route := range coming {
		l.tell(route)
	}
	return nil
}

// loss is a letter that is given up.
type loss struct {
	id            uint64
	route, reason string
}

// overdue returns what is too old, or too much once coming is there.
func (l *Letters) overdue(coming map[string][]mark, now time.Time) (lost []loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	routes := make(map[string]bool)
	for route := range l.routes {
		routes[route] = true
	}
	for route := range coming {
		routes[route] = true
	}
	for route := range routes {
		there := l.routes[route]
		excess := 0
		if l.cfg.Max > 0 {
			excess = len(there) + len(coming[route]) - l.cfg.Max
		}
		n := len(lost)
		for _, marks := range [][]mark{there, coming[route]} {
			for _, m := range marks {
				reason := LostCount
				if l.cfg.MaxAge > 0 && now.Sub(m.time) > l.cfg.MaxAge {
					reason = LostAge
				} else if len(lost)-n >= excess {
					break // what is behind it is newer
				}
				lost = append(lost, loss{m.id, route, reason})
			}
		}
	}
	return lost
}

// settle forgets what was lost and says so. The caller holds mu.
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

// forget takes letters out of the memory, as far as they are the route's, and returns how many. The
// caller holds mu.
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

// find returns where the letter is, or would be.
func find(marks []mark, id uint64) (int, bool) {
	return slices.BinarySearchFunc(marks, id, func(m mark, id uint64) int { return cmp.Compare(m.id, id) })
}

func (l *Letters) tell(route string) {
	if l.cfg.Count != nil {
		l.cfg.Count(route, len(l.routes[route]))
	}
}

// Remove removes letters, and returns how many of them were there. When it returns without an error
// that is on disk.
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
	last := l.last
	l.mu.Unlock()
	if err := l.db.update(TransactionLetters, func(tx *writing) error { return tx.letters(nil, lost, last) }); err != nil {
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

// Expire gives up the letters that are too old.
func (l *Letters) Expire(ctx context.Context, now time.Time) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	defer func() { <-l.turn }()
	return l.write(nil, now)
}

// take waits for the turn. One that is free is taken also when ctx is done: a stop must not look
// like a disk that fails.
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

// IDs returns the letters of a route, or of all if it is empty, that came after the given one: in
// their order, at most limit (0: all).
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

// Load reads letters; those that are not there are left out. Of Secrets the deltas have only the
// identity.
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
