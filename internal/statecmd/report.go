package statecmd

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
)

// Report is the content of a state file in figures, without any content of objects.
type Report struct {
	File         string `json:"file"`
	Format       int    `json:"format"`
	Reads        [2]int `json:"readsFormats"` // the first and the last that this version reads
	OldestReader int    `json:"oldestReader"` // the oldest format whose versions read the file
	Size         int64  `json:"bytes"`
	Free         int64  `json:"freeBytes"`
	// the last checkpoint, or an intent or a dead letter after it
	Written  time.Time       `json:"lastWrite"`
	FellBack bool            `json:"lastLost,omitempty"` // the last transaction is unreadable
	Cluster  string          `json:"cluster,omitempty"`
	Watches  []watchReport   `json:"watches"`
	Routes   []routeReport   `json:"routes"`
	Handlers []handlerReport `json:"kv"`
	History  *historyReport  `json:"history,omitempty"` // absent: the folder has none, or it was not read
}

// watchReport is a watch of a Report.
type watchReport struct {
	ID string `json:"id"`
	// set by the caller, who knows the configuration
	Sources         []string `json:"sources,omitempty"`
	Kind            string   `json:"kind,omitempty"` // v1 Pod; of the first object
	Cluster         string   `json:"cluster,omitempty"`
	ResourceVersion string   `json:"resourceVersion"`
	Relisting       bool     `json:"relisting,omitempty"`
	Objects         int      `json:"objects"`
	Intents         int      `json:"intents"`
}

// routeReport is a route of a Report. One that the file knows only by its dead letters has no other
// figures.
type routeReport struct {
	ID          string     `json:"id"`
	Removed     *time.Time `json:"removed,omitempty"` // from the configuration
	Pending     int        `json:"pending"`
	Bytes       int64      `json:"pendingBytes"`
	DeadLetters int        `json:"deadLetters"`
	Conditions  int        `json:"conditions"`
	HeldDeletes int        `json:"heldDeletes"`
	LimitKeys   int        `json:"limitKeys"`
	Reevaluate  int        `json:"watchedObjects"` // pending work of watches
	Paused      bool       `json:"paused,omitempty"`
}

// handlerReport is the kv of a handler, or of a sink ("sink:name"), or records of the router
// ("router:customResources"), in a Report.
type handlerReport struct {
	Name    string     `json:"name"`
	Removed *time.Time `json:"removed,omitempty"` // from the configuration
	Keys    int        `json:"keys"`
	Bytes   int64      `json:"bytes"`
}

// inspect describes a file of checkpoint.OpenReadOnly.
func inspect(db *checkpoint.DB, file string) (*Report, error) {
	survey, err := db.Survey()
	if err != nil {
		return nil, err
	}
	r := &Report{
		File: file, Format: survey.Format, Reads: [2]int{1, checkpoint.Format}, OldestReader: survey.OldestReader, Size: survey.Size, Free: survey.Free,
		Written: survey.Modified, FellBack: survey.FellBack, Cluster: survey.Cluster,
		Watches: []watchReport{}, Routes: []routeReport{}, Handlers: []handlerReport{},
	}
	for _, w := range survey.Watches {
		kind, err := kindOf(db, w.ID)
		if err != nil {
			return nil, err
		}
		r.Watches = append(r.Watches, watchReport{
			ID: w.ID, Kind: kind, Cluster: w.Cluster, ResourceVersion: w.Applied, Relisting: w.Relisting, Objects: w.Objects, Intents: w.Intents,
		})
	}
	for i := range survey.Routes {
		r.Routes = append(r.Routes, routeOf(&survey.Routes[i]))
	}
	for _, h := range survey.Handlers {
		r.Handlers = append(r.Handlers, handlerReport{Name: h.Name, Removed: timeOf(h.Removed), Keys: h.Values, Bytes: h.Bytes})
	}
	return r, r.addLetters(db)
}

func routeOf(s *checkpoint.RouteSurvey) routeReport {
	return routeReport{
		ID: s.ID, Removed: timeOf(s.Removed), Pending: s.Pending, Bytes: s.Bytes, Conditions: s.Rules[checkpoint.KindCondition],
		HeldDeletes: s.Rules[checkpoint.KindHold], LimitKeys: s.Rules[checkpoint.KindLimit],
		Reevaluate: s.Rules[checkpoint.KindChange] + s.Rules[checkpoint.KindDue], Paused: s.Rules[checkpoint.KindPause] > 0,
	}
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// kindOf returns the apiVersion and the kind of the first object of a watch.
func kindOf(db *checkpoint.DB, watch string) (kind string, err error) {
	_, err = db.ReadObjects(watch, "", 1, 1, func(o checkpoint.Object) {
		about, known := typeOf(o.JSON)
		if known {
			kind = about.APIVersion + " " + about.Kind
		}
	})
	return kind, err
}

// typeMeta has the fields of the type of an object.
type typeMeta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

func typeOf(text string) (about typeMeta, known bool) {
	err := json.Unmarshal([]byte(text), &about)
	return about, err == nil && about.Kind != ""
}

// addLetters counts the dead letters of the routes.
func (r *Report) addLetters(db *checkpoint.DB) error {
	_, err := db.Letters(checkpoint.LettersConfig{Count: func(route string, n int) {
		for i := range r.Routes {
			if r.Routes[i].ID == route {
				r.Routes[i].DeadLetters = n
				return
			}
		}
		r.Routes = append(r.Routes, routeReport{ID: route, DeadLetters: n})
	}})
	slices.SortStableFunc(r.Routes, func(a, b routeReport) int { return strings.Compare(a.ID, b.ID) })
	return err
}
