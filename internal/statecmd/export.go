package statecmd

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// page is the number of objects or deltas that are read at a time.
const page = 256

// exporter writes the lines of an export.
type exporter struct {
	db  *checkpoint.DB
	out *json.Encoder
}

// Export writes the content of a file of checkpoint.OpenReadOnly as lines of JSON. Each line has a
// type: state (the first line), watch, object, intent, route, pending, rule, deadLetter, kv, and
// end. A Secret is reduced to its identity, also if the file has more of it.
func Export(db *checkpoint.DB, file string, w io.Writer) error {
	r, err := inspect(db, file)
	if err != nil {
		return err
	}
	e := &exporter{db: db, out: json.NewEncoder(w)}
	e.out.SetEscapeHTML(false)
	err = e.out.Encode(line{"type": "state", "format": r.Format, "cluster": r.Cluster})
	for i := range r.Watches {
		if err == nil {
			err = e.watch(&r.Watches[i])
		}
	}
	for i := range r.Routes {
		if err == nil {
			err = e.route(&r.Routes[i])
		}
	}
	if err == nil {
		err = e.letters()
	}
	for i := range r.Handlers {
		if err == nil {
			err = e.values(&r.Handlers[i])
		}
	}
	if err == nil {
		err = e.out.Encode(line{"type": "end"})
	}
	return err
}

// line is a line of an export; its keys are sorted.
type line map[string]any

func (e *exporter) watch(w *watchReport) error {
	err := e.out.Encode(line{
		"type": "watch", "id": w.ID, "kind": w.Kind, "cluster": w.Cluster, "resourceVersion": w.ResourceVersion, "relisting": w.Relisting, "objects": w.Objects,
	})
	if err != nil {
		return err
	}
	var failed error
	for next := ""; ; {
		next, err = e.db.ReadObjects(w.ID, next, page, 1, func(o checkpoint.Object) {
			if failed == nil {
				failed = e.out.Encode(line{"type": "object", "watch": w.ID, "identityOnly": o.Bare, "object": shown(o.JSON)})
			}
		})
		if err != nil || failed != nil || next == "" {
			break
		}
	}
	if err == nil && failed == nil {
		failed = e.intents(w.ID)
	}
	if err != nil {
		return err
	}
	return failed
}

func (e *exporter) intents(watch string) error {
	saved, err := e.db.ReadWatch(watch, nil)
	if err != nil || saved == nil {
		return err
	}
	for _, in := range saved.Intents {
		l := line{"type": "intent", "watch": watch, "namespace": in.Key.Namespace, "name": in.Key.Name, "uid": in.UID}
		if in.JSON != "" {
			l["object"] = shown(in.JSON)
		}
		if err := e.out.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

func (e *exporter) route(r *routeReport) error {
	err := e.out.Encode(line{"type": "route", "id": r.ID, "removed": r.Removed, "pending": r.Pending, "deadLetters": r.DeadLetters})
	if err != nil {
		return err
	}
	for after := uint64(0); ; {
		pending, err := e.db.LoadRoute(r.ID, checkpoint.Part{After: after, Limit: page}, func(string) *event.Resource { return nil })
		if err != nil {
			return err
		}
		for i := range pending {
			p := &pending[i]
			after = p.ID
			l := line{"type": "pending", "route": r.ID, "id": p.ID, "attempts": p.Attempts, "limitApplied": !p.Unlimited, "delta": deltaOf(p.Delta)}
			if len(p.Closed) > 0 {
				l["done"] = p.Closed
			}
			if err := e.out.Encode(l); err != nil {
				return err
			}
		}
		if len(pending) < page {
			return e.rules(r.ID)
		}
	}
}

// ruleName returns the name of a kind of records in an export.
func ruleName(kind byte) string {
	switch kind {
	case checkpoint.KindCondition:
		return "condition"
	case checkpoint.KindRescan:
		return "conditionVersion"
	case checkpoint.KindHold:
		return "heldDelete"
	case checkpoint.KindLimit:
		return "limitKey"
	case checkpoint.KindPause:
		return "pause"
	case checkpoint.KindCounts:
		return "counts"
	case checkpoint.KindChange:
		return "watchedChange"
	case checkpoint.KindDue:
		return "watchedObject"
	}
	return strconv.Quote(string(rune(kind)))
}

func (e *exporter) rules(route string) error {
	records, err := e.db.LoadRules(route)
	if err != nil {
		return err
	}
	for _, r := range records {
		l := line{"type": "rule", "route": route, "kind": ruleName(r.Kind), "key": string(r.Key), "record": base64.StdEncoding.EncodeToString(r.Value)}
		if r.Kind == checkpoint.KindChange && len(r.Key) == 8 {
			l["key"] = strconv.FormatUint(binary.BigEndian.Uint64(r.Key), 10)
		}
		if err := e.out.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

func (e *exporter) letters() error {
	letters, err := e.db.Letters(checkpoint.LettersConfig{})
	if err != nil {
		return err
	}
	for _, id := range letters.IDs("", 0, 0) {
		loaded, err := letters.Load([]uint64{id})
		if err != nil {
			return err
		}
		for i := range loaded {
			l := &loaded[i]
			shown := line{
				"type": "deadLetter", "id": l.ID, "time": l.Time.UTC(), "route": l.Route, "sink": l.Sink, "error": l.Error, "attempts": l.Attempts,
				"unseen": l.Unseen, "delta": deltaOf(l.Delta),
			}
			if len(l.Call) > 0 {
				shown["call"] = json.RawMessage(l.Call)
			}
			if err := e.out.Encode(shown); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *exporter) values(h *handlerReport) error {
	values, err := e.db.LoadMemory(h.Name)
	if err != nil {
		return err
	}
	for i := range values {
		v := &values[i]
		l := line{"type": "kv", "handler": h.Name, "key": v.Key, "expires": timeOf(v.Expires)}
		if utf8.Valid(v.Value) {
			l["value"] = string(v.Value)
		} else {
			l["base64"] = base64.StdEncoding.EncodeToString(v.Value)
		}
		if err := e.out.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// delta is a delta in an export.
type delta struct {
	Source      string          `json:"source"`
	Op          string          `json:"op"`
	Resource    string          `json:"resource,omitempty"`
	Cluster     string          `json:"cluster,omitempty"`
	Seen        *time.Time      `json:"seen,omitempty"`
	Initial     bool            `json:"initial,omitempty"`
	Stale       bool            `json:"stale,omitempty"`
	Late        bool            `json:"late,omitempty"`
	Redelivered bool            `json:"redelivered,omitempty"`
	Since       *time.Time      `json:"since,omitempty"`
	Began       string          `json:"began,omitempty"`
	Repeat      int             `json:"repeat,omitempty"`
	Suppressed  int             `json:"suppressed,omitempty"`
	Old         json.RawMessage `json:"oldObject,omitempty"`
	New         json.RawMessage `json:"object,omitempty"`
	Event       *eventOf        `json:"event,omitempty"`
}

// eventOf is the event of an upstream route in an export.
type eventOf struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Subject string          `json:"subject"`
	Route   string          `json:"route"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func deltaOf(d *event.Delta) *delta {
	to := &delta{
		Source: d.Source, Op: d.Op.String(), Seen: timeOf(d.Seen), Initial: d.Initial, Stale: d.Stale, Late: d.Late, Redelivered: d.Redelivered,
		Since: timeOf(d.Since), Began: d.Began, Repeat: d.Repeat, Suppressed: d.Suppressed, Old: objectOf(d.Old), New: objectOf(d.New),
	}
	if about := d.Object(); about != nil && about.Resource() != nil {
		r := about.Resource()
		to.Resource, to.Cluster = fmt.Sprintf("%s/%s", r.GroupVersion(), r.Resource), r.Cluster
	}
	if e := d.Event; e != nil {
		to.Event = &eventOf{e.ID, e.Type, e.Subject, e.Route, nil}
		if checkpoint.Whole(d) && json.Valid(e.Data) {
			to.Event.Data = e.Data
		}
	}
	return to
}

func objectOf(o *event.Object) json.RawMessage {
	switch {
	case o == nil:
		return nil
	case !checkpoint.Whole(&event.Delta{New: o}):
		return json.RawMessage(event.Identity(o.Resource(), o.Key(), o.UID()).JSON())
	}
	return shown(string(o.JSON()))
}

// shown returns the JSON of an object, or the identity of a Secret.
func shown(text string) json.RawMessage {
	if about, _ := typeOf(text); about.APIVersion == "v1" && about.Kind == "Secret" {
		var identity struct {
			typeMeta

			Metadata struct {
				Namespace       string `json:"namespace,omitempty"`
				Name            string `json:"name"`
				UID             string `json:"uid,omitempty"`
				ResourceVersion string `json:"resourceVersion,omitempty"`
			} `json:"metadata"`
		}
		err := json.Unmarshal([]byte(text), &identity)
		kept, err2 := json.Marshal(&identity)
		if err != nil || err2 != nil {
			return json.RawMessage("null")
		}
		return kept
	}
	if !json.Valid([]byte(text)) {
		return json.RawMessage("null")
	}
	return json.RawMessage(text)
}
