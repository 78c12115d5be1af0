// Package backtest runs the rules of a configuration on the past, and reports the events that
// they would have delivered: how many, of which objects, when, and how that differs from other
// rules.
//
//	recording ──► simulate.Backtest ──outcomes──► run ──┐
//	the same, with the other rules ─────────────► run ──┴──► Report ──► text, Markdown, JSON
//
// A recording is made of the history of a running router, or by router record.
package backtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/internal/simulate"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Options are the options of a backtest.
type Options struct {
	// Open opens the recording. It is called once for each configuration.
	Open func() (io.ReadCloser, error)
	New  *simulate.Offline
	Old  *simulate.Offline // to compare with; nil: nothing
	// Routes are the only routes that are reported; empty: all.
	Routes []string
	Since  time.Time // the begin that was asked for; zero: that of the recording
	// Expect is an expression over the event: an event for which it is false is a false alarm.
	// Empty: there are none.
	Expect string
	Office Hours
	// Answers answers the requests of handlers, and fails with [ErrNoAnswer] for others; nil: there
	// are no answers.
	Answers http.RoundTripper
}

// ErrNoAnswer is the error of a request that has no answer.
var ErrNoAnswer = errors.New("a backtest sends no requests, and has no answer to this one")

// Hours are the hours of the working days, Monday to Friday, in local time: from From to To. Zero:
// 8 to 18.
type Hours struct{ From, To int }

// has reports whether a time is within the hours.
func (h Hours) has(at time.Time) bool {
	at = at.Local()
	day := at.Weekday()
	return day != time.Saturday && day != time.Sunday && at.Hour() >= h.From && at.Hour() < h.To
}

const (
	// most bounds the events with their contents in a report, for each configuration. All are
	// counted.
	most = 10_000
	// mostCalls bounds the kinds of requests without an answer in a report.
	mostCalls = 20
)

// Report is the result of a backtest.
type Report struct {
	Cluster string    `json:"cluster"`
	From    time.Time `json:"from"` // the begin of the recording
	To      time.Time `json:"to"`
	Changes int       `json:"changes"`
	Took    float64   `json:"took"` // seconds, of the run of the new configuration
	Against bool      `json:"against,omitempty"`
	Office  Hours     `json:"-"`
	// reasons for which the result may differ from that of a running router
	Notes  []string  `json:"notes,omitempty"`
	Routes []Summary `json:"routes"`
	// Events are those of the new configuration, and those of the old one alone, in the order of
	// time.
	Events []Event `json:"events"`
	More   int     `json:"more,omitempty"` // events that are counted only
}

// Summary has the numbers of a route.
type Summary struct {
	Route   string `json:"route"`
	Told    int    `json:"told"`
	Keys    int    `json:"keys"`              // objects, or values of key, that it told of
	Outside int    `json:"outside,omitempty"` // of Told: outside the working hours
	False   int    `json:"false,omitempty"`   // of Told: false alarms
	Initial int    `json:"initial,omitempty"` // events about the objects as they were at the begin, not in Told
	Failed  int    `json:"failed,omitempty"`  // deltas that the handler or the conversion gave up
	// compared with the old configuration
	Before int `json:"before,omitempty"` // events of the old one
	New    int `json:"new,omitempty"`
	Gone   int `json:"gone,omitempty"`
	Moved  int `json:"moved,omitempty"` // events at another time
}

// Event is an event that a route would have delivered.
type Event struct {
	Time    time.Time       `json:"time"`
	Route   string          `json:"route"`
	Type    string          `json:"type,omitempty"`
	Subject string          `json:"subject,omitempty"`
	Key     string          `json:"key,omitempty"`
	ID      string          `json:"id,omitempty"`
	To      []string        `json:"to,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
	Error   string          `json:"error,omitempty"`  // the delta was given up
	False   bool            `json:"false,omitempty"`  // a false alarm
	Change  string          `json:"change,omitempty"` // new, gone or moved, compared with the old configuration
	Was     time.Time       `json:"was,omitzero"`     // of a moved event: the time with the old configuration
}

// Run runs the backtest. The error is that of ctx, of the recording, or a mistake in Expect.
func Run(ctx context.Context, o Options) (*Report, error) {
	var expect *cel.EventProgram
	if o.Expect != "" {
		var err error
		if expect, err = cel.CompileEvent(o.Expect); err != nil {
			return nil, &ExpectError{err}
		}
	}
	o.Office.To = cmp.Or(o.Office.To, 18)
	o.Office.From = min(cmp.Or(o.Office.From, 8), o.Office.To)
	began := time.Now()
	now, done, err := o.run(ctx, o.New, expect)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Cluster: done.Header.Cluster, From: done.Header.Time, To: done.End, Changes: done.Changes, Took: time.Since(began).Seconds(),
		Office: o.Office, Notes: done.Notes, Events: now.events, More: now.more,
	}
	if !o.Since.IsZero() && r.From.Sub(o.Since) > time.Second {
		r.Notes = slices.Insert(r.Notes, 0, fmt.Sprintf("the history begins at %s: of the time before, nothing is known", r.From.Local().Format(time.DateTime)))
	}
	if done.CutOff != nil {
		r.Notes = append(r.Notes, done.CutOff.Error())
	}
	r.Notes = append(r.Notes, now.calls.notes()...)
	if now.mistakes > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("-expect has no value for %d events, which count as false alarms: %s", now.mistakes, now.mistake))
	}
	if o.Old != nil {
		r.Against = true
		old, before, err := o.run(ctx, o.Old, nil)
		if err != nil {
			return nil, fmt.Errorf("the configuration to compare with: %w", err)
		}
		for _, note := range slices.Concat(before.Notes, old.calls.notes()) {
			if !slices.Contains(r.Notes, note) {
				r.Notes = append(r.Notes, "the configuration to compare with: "+note)
			}
		}
		r.compare(now, old)
	}
	for _, name := range slices.Sorted(maps.Keys(now.routes)) {
		s := now.routes[name]
		s.Keys = len(s.keys)
		r.Routes = append(r.Routes, s.Summary)
	}
	return r, nil
}

// ExpectError reports a mistake in the expression of expected events.
type ExpectError struct{ err error }

// Error implements error.
func (e *ExpectError) Error() string { return "-expect: " + e.err.Error() }

// Unwrap returns the reason.
func (e *ExpectError) Unwrap() error { return e.err }

// outcomes collects the events of one configuration.
type outcomes struct {
	o      *Options
	expect *cel.EventProgram
	ctx    context.Context //nolint:containedctx // of one run

	routes map[string]*counted
	// by the identity of an event: its time if it is told, and whether it is about an object of the
	// begin
	times   map[string]time.Time
	initial map[string]bool
	events  []Event
	at      map[string]int // the index of an event in events
	more    int
	calls   calls
	// events for which the expression of expected events has no value, and the first reason
	mistakes int
	mistake  string
}

// identity identifies the events that are made of the same change by the same route.
func identity(route, id string) string { return route + "\x00" + id }

func routeOf(identity string) string {
	route, _, _ := strings.Cut(identity, "\x00")
	return route
}

type counted struct {
	Summary

	keys map[string]bool
}

// run runs one configuration.
func (o *Options) run(ctx context.Context, rules *simulate.Offline, expect *cel.EventProgram) (*outcomes, simulate.Backtested, error) {
	s := &outcomes{
		o: o, expect: expect, ctx: ctx, routes: make(map[string]*counted),
		times: make(map[string]time.Time), initial: make(map[string]bool), at: make(map[string]int),
	}
	for _, route := range rules.Config().Routes {
		if len(o.Routes) == 0 || slices.Contains(o.Routes, route.Name) {
			s.routes[route.Name] = &counted{Summary: Summary{Route: route.Name}, keys: make(map[string]bool)}
		}
	}
	in, err := o.Open()
	if err != nil {
		return nil, simulate.Backtested{}, err
	}
	defer func() { _ = in.Close() }() // it was only read
	reader, err := recording.NewReader(in, recording.Limits{})
	if err != nil {
		return nil, simulate.Backtested{}, err
	}
	defer reader.Close()
	http := func(handler string) http.RoundTripper { return &caller{handler, o.Answers, &s.calls} }
	done, err := rules.Backtest(ctx, simulate.BacktestOptions{Recording: reader, HTTP: http, Take: s.take, Routes: o.Routes})
	return s, done, err
}

// take counts an outcome. The events for several sinks are one.
func (s *outcomes) take(came simulate.Outcome, initial bool) {
	route := s.routes[came.Route]
	if route == nil || came.Given {
		return
	}
	if came.Error != "" {
		route.Failed++
		s.keep("", Event{Time: came.Time.UTC(), Route: came.Route, Subject: came.Object, Error: came.Error})
		return
	}
	id := identity(came.Route, came.Event.ID)
	if _, known := s.times[id]; known || s.initial[id] {
		if i, kept := s.at[id]; kept && !slices.Contains(s.events[i].To, came.Sink) {
			s.events[i].To = append(s.events[i].To, came.Sink)
		}
		return
	}
	if initial {
		s.initial[id] = true
		route.Initial++
		return
	}
	s.times[id] = came.Time
	e := Event{
		Time: came.Time.UTC(), Route: came.Route, Type: came.Event.Type, Subject: came.Event.Subject, Key: came.Event.Key, ID: came.Event.ID,
		To: []string{came.Sink}, Data: came.Event.Data,
	}
	route.Told++
	route.keys[cmp.Or(e.Key, e.Subject)] = true
	if !s.o.Office.has(e.Time) {
		route.Outside++
	}
	if e.False = s.isFalse(&came.Event); e.False {
		route.False++
	}
	s.keep(id, e)
}

func (s *outcomes) keep(id string, e Event) {
	if len(s.events) >= most {
		s.more++
		return
	}
	s.at[id] = len(s.events)
	s.events = append(s.events, e)
}

// isFalse reports whether an event is none of the expected ones. One for which the expression has
// no value is a false alarm.
func (s *outcomes) isFalse(e *event.Event) bool {
	if s.expect == nil {
		return false
	}
	value, err := s.expect.Eval(s.ctx, e, nil)
	switch text := string(value); {
	case err != nil:
		s.unknown(err.Error())
	case text != "true" && text != "false":
		s.unknown("it is neither true nor false")
	default:
		return text == "false"
	}
	return true
}

// unknown notes that the expression of expected events has no value for an event.
func (s *outcomes) unknown(reason string) {
	if s.mistakes++; s.mistakes == 1 {
		s.mistake = reason
	}
}

// movedBy is the least difference of the times of a moved event.
const movedBy = time.Second

// compare marks the events of a report, and adds those of the old configuration alone.
func (r *Report) compare(now, old *outcomes) {
	for id, at := range now.times {
		s := now.routes[routeOf(id)]
		was, known := old.times[id]
		i, kept := now.at[id]
		switch {
		case known && at.Sub(was).Abs() < movedBy || old.initial[id]:
		case known:
			if s.Moved++; kept {
				r.Events[i].Change, r.Events[i].Was = "moved", was.UTC()
			}
		default:
			if s.New++; kept {
				r.Events[i].Change = "new"
			}
		}
	}
	for id := range old.times {
		if _, known := now.times[id]; known || now.initial[id] {
			continue
		}
		route := routeOf(id)
		s := now.routes[route]
		if s == nil { // the new configuration has no such route
			s = &counted{Summary: Summary{Route: route}, keys: make(map[string]bool)}
			now.routes[route] = s
		}
		s.Gone++
		if i, kept := old.at[id]; kept {
			e := old.events[i]
			e.Change = "gone"
			r.Events = append(r.Events, e)
		}
	}
	for route, s := range old.routes {
		if of := now.routes[route]; of != nil {
			of.Before = s.Told
		}
	}
	slices.SortStableFunc(r.Events, func(a, b Event) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Route, b.Route)) })
}

// calls counts the requests of handlers that had no answer. It is safe for concurrent use.
type calls struct {
	mu    sync.Mutex
	known map[string]int
	more  int
}

func (c *calls) add(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = make(map[string]int)
	}
	if _, known := c.known[call]; !known && len(c.known) >= mostCalls {
		c.more++
		return
	}
	c.known[call]++
}

func (c *calls) notes() (notes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range slices.Sorted(maps.Keys(c.known)) {
		notes = append(notes, fmt.Sprintf("%s: %d requests without an answer, so the handler got an error: give one with -answers", call, c.known[call]))
	}
	if c.more > 0 {
		notes = append(notes, fmt.Sprintf("%d requests of other kinds had no answer", c.more))
	}
	return notes
}

// caller is the network of a handler.
type caller struct {
	handler string
	answers http.RoundTripper // nil: there are none
	calls   *calls
}

// RoundTrip implements http.RoundTripper.
func (c *caller) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.answers != nil {
		response, err := c.answers.RoundTrip(r)
		if !errors.Is(err, ErrNoAnswer) {
			return response, err
		}
	}
	// the path may contain a secret
	c.calls.add(fmt.Sprintf("handler %s sends %s %s://%s", c.handler, r.Method, r.URL.Scheme, r.URL.Host))
	return nil, ErrNoAnswer
}
