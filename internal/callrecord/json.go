package callrecord

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// MaxText bounds the JSON of a record: MaxSize as base64 or with escapes, and the keys of each
// answer and delta.
const MaxText = 16 * MaxSize

// Encode returns the record as JSON.
func (r *Record) Encode() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("the record of a call: %w", err)
	}
	return text, nil
}

// Decode checks the JSON of a record, which may come from anywhere.
func Decode(text []byte) (*Record, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("the record of a call has %d bytes, at most %d", len(text), MaxText)
	}
	r := &Record{}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(r); err != nil {
		return nil, fmt.Errorf("the record of a call is malformed: %w", err)
	}
	if n := len(r.Calls); n > 0 && (r.Delta < 0 || r.Delta >= len(r.Calls[n-1].Batch)) {
		return nil, fmt.Errorf("the record of a call is malformed: its last call has %d deltas, and number %d failed", len(r.Calls[n-1].Batch), r.Delta)
	}
	return r, nil
}

// answer is an [Answer] in JSON.
type answer struct {
	Function string `json:"function"`
	Request  uint32 `json:"request,omitempty"`
	Status   int32  `json:"status,omitempty"`
	Fuel     int64  `json:"fuel,omitempty"`
	Value    int64  `json:"value,omitempty"`
	Text     string `json:"text,omitempty"`
	Base64   []byte `json:"base64,omitempty"` // in place of Text, for other bytes than UTF-8
}

// MarshalJSON implements [json.Marshaler].
func (a Answer) MarshalJSON() ([]byte, error) {
	j := answer{Function: a.Function, Request: a.Request, Status: a.Status, Fuel: a.Fuel, Value: a.Value}
	if utf8.Valid(a.Data) {
		j.Text = string(a.Data)
	} else {
		j.Base64 = a.Data
	}
	return json.Marshal(j)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (a *Answer) UnmarshalJSON(text []byte) error {
	var j answer
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	if j.Fuel < 0 || j.Text != "" && j.Base64 != nil {
		return fmt.Errorf("an answer of %q with a fuel below zero, or with two texts", j.Function)
	}
	*a = Answer{j.Function, j.Request, j.Status, j.Fuel, j.Value, j.Base64}
	if j.Base64 == nil {
		a.Data = []byte(j.Text)
	}
	return nil
}

// call is a [Call] in JSON.
type call struct {
	Deltas  []delta  `json:"deltas"`
	Clock   Clock    `json:"clock"`
	Answers []Answer `json:"answers,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (c Call) MarshalJSON() ([]byte, error) {
	j := call{Clock: c.Clock, Answers: c.Answers, Deltas: make([]delta, len(c.Batch))}
	for i, d := range c.Batch {
		j.Deltas[i] = deltaOf(d)
	}
	return json.Marshal(j)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *Call) UnmarshalJSON(text []byte) error {
	var j call
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	if len(j.Deltas) == 0 {
		return errors.New("a call without deltas")
	}
	*c = Call{Clock: j.Clock, Answers: j.Answers, Batch: make([]*event.Delta, len(j.Deltas))}
	for i := range j.Deltas {
		d, err := j.Deltas[i].parse()
		if err != nil {
			return fmt.Errorf("delta %d: %w", i+1, err)
		}
		c.Batch[i] = d
	}
	return nil
}

func deltaOf(d *event.Delta) delta {
	j := delta{
		Op: d.Op.String(), Source: d.Source, Seen: d.Seen.UTC(), Initial: d.Initial, Stale: d.Stale, Late: d.Late, Redelivered: d.Redelivered,
		Began: d.Began, Repeat: d.Repeat, Suppressed: d.Suppressed, TraceParent: d.TraceParent, With: string(d.With),
	}
	if !d.Since.IsZero() {
		j.Since = d.Since.UTC()
	}
	if r := d.Object().Resource(); r != nil {
		j.Resource = resource{r.Group, r.Version, r.Resource, r.Cluster, r.Kind}
	}
	if d.New != nil {
		j.New = string(d.New.JSON())
	}
	if d.Old != nil {
		j.Old = string(d.Old.JSON())
	}
	if e := d.Event; e != nil {
		j.Event = &eventOfJSON{e.ID, e.Type, e.Source, e.Subject, e.Route, e.Time.UTC(), string(e.Data)}
	}
	return j
}

func (j *delta) parse() (*event.Delta, error) {
	op, known := event.ParseOp(j.Op)
	if !known || j.New == "" && j.Old == "" {
		return nil, errors.New("it has no op, or no object")
	}
	d := &event.Delta{
		Op: op, Source: j.Source, Seen: j.Seen, Initial: j.Initial, Stale: j.Stale, Late: j.Late, Redelivered: j.Redelivered,
		Since: j.Since, Began: j.Began, Repeat: max(j.Repeat, 0), Suppressed: max(j.Suppressed, 0), TraceParent: j.TraceParent,
	}
	of := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Group: j.Resource.Group, Version: j.Resource.Version, Resource: j.Resource.Resource}, Cluster: j.Resource.Cluster, Kind: j.Resource.Kind}
	var err error
	if j.New != "" {
		d.New, err = parseObject(of, j.New)
	}
	if j.Old != "" && err == nil {
		d.Old, err = parseObject(of, j.Old)
	}
	if err != nil {
		return nil, err
	}
	if j.With != "" {
		if rawjson.Check(j.With) != nil {
			return nil, errors.New("its values of with are not JSON")
		}
		d.With = []byte(j.With)
	}
	if e := j.Event; e != nil {
		if e.Data != "" && rawjson.Check(e.Data) != nil {
			return nil, errors.New("the data of its event is not JSON")
		}
		d.Event = &event.Event{ID: e.ID, Type: e.Type, Source: e.Source, Subject: e.Subject, Route: e.Route, Time: e.Time, Data: []byte(e.Data)}
	}
	return d, nil
}

func parseObject(of *event.Resource, text string) (*event.Object, error) {
	if err := rawjson.Check(text); err != nil {
		return nil, fmt.Errorf("its object is not JSON: %w", err)
	}
	return event.ParseObject(of, text)
}
