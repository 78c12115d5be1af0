package abi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// AppendDelta appends a delta as a JSON object on one line: the members of [Meta], `object`, and
// `oldObject` if the delta has two states.
func AppendDelta(b []byte, d *event.Delta) []byte {
	meta := Meta(d)
	b = append(b, meta[:len(meta)-1]...)
	b = append(b, `,"object":`...)
	b = rawjson.AppendLine(b, d.Object().JSON())
	if d.New != nil && d.Old != nil {
		b = append(b, `,"oldObject":`...)
		b = rawjson.AppendLine(b, d.Old.JSON())
	}
	return append(b, '}')
}

// metaJSON is a delta without its objects.
type metaJSON struct {
	Op              string `json:"op"`
	Source          string `json:"source"`
	Cluster         string `json:"cluster"`
	Resource        string `json:"resource"`
	Kind            string `json:"kind"`
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	Initial         bool   `json:"initial"`
	Stale           bool   `json:"stale"`
	Redelivered     bool   `json:"redelivered"`
	Late            bool   `json:"late"`
	Repeat          bool   `json:"repeat"`
	Seen            string `json:"seen"`

	Since       string          `json:"since,omitempty"`
	Suppressed  int             `json:"suppressed,omitempty"`
	TraceParent string          `json:"traceParent,omitempty"`
	Event       *eventJSON      `json:"event,omitempty"`
	With        json.RawMessage `json:"with,omitempty"`
}

// eventJSON is the event that an upstream route made.
type eventJSON struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Source  string          `json:"source"`
	Subject string          `json:"subject"`
	Route   string          `json:"route"`
	Time    string          `json:"time"`
	Data    json.RawMessage `json:"data"`
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Meta returns a delta without its objects as a JSON object.
func Meta(d *event.Delta) string {
	o := d.Object()
	r, key := o.Resource(), o.Key()
	m := metaJSON{
		Op: d.Op.String(), Source: d.Source, Cluster: r.Cluster, Resource: r.String(), Kind: r.Kind, Namespace: key.Namespace, Name: key.Name,
		UID: o.UID(), ResourceVersion: o.ResourceVersion(), Initial: d.Initial, Stale: d.Stale, Redelivered: d.Redelivered, Late: d.Late,
		Repeat: d.Repeat > 0, Seen: stamp(d.Seen), Suppressed: d.Suppressed, TraceParent: d.TraceParent, With: d.With,
	}
	if !d.Since.IsZero() {
		m.Since = stamp(d.Since)
	}
	if e := d.Event; e != nil {
		m.Event = &eventJSON{ID: e.ID, Type: e.Type, Source: e.Source, Subject: e.Subject, Route: e.Route, Time: stamp(e.Time), Data: e.Data}
		if len(e.Data) == 0 {
			m.Event.Data = json.RawMessage("null")
		}
	}
	text, err := json.Marshal(m)
	if err != nil { // the data of the event, which no handler can produce
		m.Event = nil
		text, _ = json.Marshal(m)
	}
	return string(text)
}

// LongestRetry is the longest wait that a guest may ask for.
const LongestRetry = 30 * 24 * time.Hour

// ParseAnswer parses the answer of a guest to one delta: nothing, null, a list of events, or an
// object with one of the members events, drop, retry (a message, beside it afterMs) and error (a
// message). Any other answer rejects the delta. No error quotes the answer, but for its messages.
func ParseAnswer(l *Limits, text string) plugins.Result {
	answer := rawjson.Trim(text)
	if answer == "" || answer.IsNull() {
		return plugins.Result{}
	}
	if err := rawjson.Check(string(answer)); err != nil {
		return Reject(fmt.Errorf("%w: %w", ErrMalformed, err))
	}
	switch answer.Kind() {
	case rawjson.Array:
		return eventsOf(l, answer)
	case rawjson.Object:
		return verdictOf(l, answer)
	default:
		return Reject(fmt.Errorf("%w: %w", ErrMalformed, errAnswer))
	}
}

var errAnswer = errors.New("it is neither a list of events nor an object with one of events, drop, retry and error")

// eventsOf returns the result with a list of events.
func eventsOf(l *Limits, list rawjson.Value) plugins.Result {
	var r plugins.Result
	for text := range list.Elems() {
		if len(r.Events) == l.Events {
			return Reject(fmt.Errorf("more than %d events for one delta (limits.events)", l.Events))
		}
		e, err := ParseEnvelope(l, string(text))
		if err != nil {
			return Reject(fmt.Errorf("event %d: %w", len(r.Events), err))
		}
		r.Events = append(r.Events, e)
	}
	return r
}

// verdictOf returns the result of an answer that is an object.
func verdictOf(l *Limits, answer rawjson.Value) plugins.Result {
	after, err := milliseconds(answer.Get("afterMs"))
	if err != nil {
		return Reject(fmt.Errorf("%w: %w", ErrMalformed, err))
	}
	var r plugins.Result
	verdicts := 0
	for key, value := range answer.Fields() {
		switch kind := value.Kind(); {
		case key == "afterMs":
			continue
		case key == "events" && kind == rawjson.Array:
			r = eventsOf(l, value)
		case key == "drop" && value.IsTrue():
			r = judge(plugins.Drop, 0, "")
		case key == "retry" && kind == rawjson.String:
			r = judge(plugins.Retry, after, printable.Text(value.Str(), int(l.Message)))
		case key == "error" && kind == rawjson.String:
			r = judge(plugins.Fail, 0, printable.Text(value.Str(), int(l.Message)))
		default:
			return Reject(fmt.Errorf("%w: %w", ErrMalformed, errAnswer))
		}
		verdicts++
	}
	if verdicts != 1 {
		return Reject(fmt.Errorf("%w: %w", ErrMalformed, errAnswer))
	}
	return r
}

// milliseconds parses a wait. Without a value it is 0.
func milliseconds(value rawjson.Value) (time.Duration, error) {
	if value == "" {
		return 0, nil
	}
	ms, err := strconv.ParseFloat(string(value), 64)
	if err != nil || value.Kind() != rawjson.Number {
		return 0, errors.New("afterMs is not a number")
	}
	return time.Duration(min(max(ms, 0), float64(LongestRetry/time.Millisecond))) * time.Millisecond, nil
}
