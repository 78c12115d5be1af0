package checkpoint

import (
	"errors"
	"log/slog"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint/statefile"
)

// The kinds of the records of rules, see [RuleRecord].
const (
	KindCondition = 'c' // the state of a condition, by object
	KindRescan    = 'v' // the version of the condition with which all objects were evaluated
	KindHold      = 'a' // a held delete, by object
	KindLimit     = 'l' // a key of a limit
	KindPause     = 'p' // the route is paused
	KindCounts    = 'n' // the counts of the route; earlier versions ignore it
	KindChange    = 'q' // of watches: a change whose dependents are not known yet
	KindDue       = 'o' // of watches: an object that is to be evaluated again
)

// Survey has the content of the state file in figures.
type Survey struct {
	statefile.Facts

	Cluster  string
	Watches  []WatchSurvey
	Routes   []RouteSurvey
	Handlers []HandlerSurvey
}

// WatchSurvey has the figures of a watch.
type WatchSurvey struct {
	ID, Cluster, Applied string // see Watch
	Relisting            bool
	Objects, Intents     int
}

// RouteSurvey has the figures of a route.
type RouteSurvey struct {
	ID      string
	Removed time.Time // the route is not configured any more since; zero: it is
	Pending int
	Bytes   int64        // of the pending deltas, in the file
	Rules   map[byte]int // the number of records by their kind
}

// HandlerSurvey has the figures of the kv of a handler, or of a sink.
type HandlerSurvey struct {
	Name    string
	Removed time.Time // see RouteSurvey
	Values  int
	Bytes   int64 // in the file
}

// OpenReadOnly opens a state file, or a copy of one, to be read. It changes nothing: a damaged file
// is an error that wraps [ErrCorrupt]. While a router uses the file, the error is a *LockedError.
func OpenReadOnly(path string) (*DB, error) {
	db := &DB{cfg: Config{Path: path, Log: slog.New(slog.DiscardHandler)}}
	var err error
	if db.file, err = statefile.OpenReadOnly(db.fileConfig()); err != nil {
		return nil, err
	}
	if db.journal.generation > 0 && db.file.Format() == Format {
		if _, err := db.readJournal(db.file.ReadJournal); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return db, nil
}

// Survey counts the content of a file of [OpenReadOnly]. Names longer than 1024 bytes are replaced
// by hashes.
func (db *DB) Survey() (*Survey, error) {
	s := &Survey{Cluster: db.Cluster()}
	var err error
	if s.Facts, err = db.file.Facts(); err != nil {
		return nil, err
	}
	err = db.view(func(tx *reading) error {
		top := tx.shelf(watchesBucket)
		for _, name := range top.names() {
			if err := s.watch(tx, name, db.journal.intents[name]); err != nil {
				return err
			}
		}
		top = tx.shelf(routesBucket)
		for _, name := range top.names() {
			if err := s.route(tx, name, db.backlogs[name]); err != nil {
				return err
			}
		}
		top = tx.shelf(memoriesBucket)
		for _, name := range top.names() {
			if err := s.handler(tx, name); err != nil {
				return err
			}
		}
		return nil
	})
	return s, err
}

func (s *Survey) watch(tx *reading, name string, logged []newIntent) error {
	w, err := tx.watch(name, nil)
	if err != nil {
		return err
	}
	w.addLogged(logged)
	figures := WatchSurvey{ID: name, Cluster: w.Cluster, Applied: w.Applied, Relisting: w.Relisting, Intents: len(w.Intents)}
	if objects := tx.shelf(watchesBucket, name, objectsBucket); objects.Bucket != nil {
		figures.Objects = objects.Stats().KeyN
	}
	s.Watches = append(s.Watches, figures)
	return nil
}

func (s *Survey) route(tx *reading, name string, backlog weight) error {
	gone, err := goneSince(tx.codec, tx.shelf(routesBucket, name))
	if err != nil {
		return err
	}
	figures := RouteSurvey{ID: name, Removed: gone, Pending: backlog.n, Bytes: backlog.bytes, Rules: make(map[byte]int)}
	if rules := tx.shelf(routesBucket, name, rulesBucket); rules.Bucket != nil {
		_ = rules.ForEach(func(key, _ []byte) error { // f never returns an error
			figures.Rules[key[0]]++ // see RuleRecord.place
			return nil
		})
	}
	s.Routes = append(s.Routes, figures)
	return nil
}

func (s *Survey) handler(tx *reading, name string) error {
	gone, err := goneSince(tx.codec, tx.shelf(memoriesBucket, name))
	if err != nil {
		return err
	}
	var w weight
	if values := tx.shelf(memoriesBucket, name, valuesBucket); values.Bucket != nil {
		// f never returns an error
		_ = values.ForEach(func(_, value []byte) error { w.add(value); return nil })
	}
	s.Handlers = append(s.Handlers, HandlerSurvey{Name: name, Removed: gone, Values: w.n, Bytes: w.bytes})
	return nil
}
