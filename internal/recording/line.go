package recording

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// Version is the version of the format. A Reader refuses others.
const Version = 1

// format is the name of the format in the first line.
const format = "deltarouter-recording"

// Header is the first line.
type Header struct {
	Format  string `json:"format"` // set by NewWriter
	Version int    `json:"version"`
	// name of the cluster in the configuration; a part of events' ids
	Cluster string            `json:"cluster"`
	Time    time.Time         `json:"time"`             // begin of the recording
	Router  string            `json:"router,omitempty"` // version of the program
	Sources map[string]Source `json:"sources"`
	History *History          `json:"history,omitempty"` // nil: it was made while the changes came
}

// History says that a recording was made of the history of a router.
type History struct {
	Begin time.Time `json:"begin"`          // of the history; of earlier times nothing is known
	Lost  int       `json:"lost,omitempty"` // changes and decisions of the time that were not recorded
	// Without are the sources whose objects the history does not have. They are not in the
	// recording.
	Without []string `json:"without,omitempty"`
}

// Source is the configuration of a source. Its objects lack the dropped fields.
type Source struct {
	Resource          string   `json:"resource"` // [group/]version/resource
	Namespaces        []string `json:"namespaces,omitempty"`
	NamespaceSelector string   `json:"namespaceSelector,omitempty"`
	LabelSelector     string   `json:"labelSelector,omitempty"`
	FieldSelector     string   `json:"fieldSelector,omitempty"`
	Cache             string   `json:"cache,omitempty"`
	Drop              []string `json:"drop,omitempty"`
	Kept              []string `json:"kept,omitempty"` // the only fields that its objects have; absent: all
}

// Op is the kind of a line.
type Op string

// The ops.
const (
	Existing   Op = "existing" // an object of the first list
	Synced     Op = "synced"   // end of the first list
	Added      Op = "added"
	Updated    Op = "updated"
	Deleted    Op = "deleted"    // with the last state
	Deselected Op = "deselected" // with the last state
	Sync       Op = "sync"
	End        Op = "end" // the recording is complete
)

// Line is one line of a recording.
type Line struct {
	At     time.Duration // since Header.Time, to the microsecond
	Op     Op
	Source string    // empty for End
	Kind   string    // kind of the objects, in the first line of a source; may be empty
	Stale  bool      // for Deleted and Deselected: it was inferred
	Round  time.Time // for Sync: begin of its round
	Object string    // JSON; empty for Synced and End
	// Damaged and Stateless are set for End, if the recording is one of a history: segments that
	// could be read in part only, and changes without states, which are left out.
	Damaged, Stateless int
}

// hasObject reports whether lines of the op have an object; ok: the op exists.
func (op Op) hasObject() (has, ok bool) {
	switch op {
	case Existing, Added, Updated, Deleted, Deselected, Sync:
		return true, true
	case Synced, End:
		return false, true
	}
	return false, false
}

// append appends the line and a line break.
func (l *Line) append(b []byte) []byte {
	b = append(b, `{"at":`...)
	b = strconv.AppendFloat(b, float64(l.At.Microseconds())/1e6, 'f', -1, 64)
	b = append(b, `,"op":`...)
	b = rawjson.AppendString(b, string(l.Op))
	if l.Source != "" {
		b = rawjson.AppendString(append(b, `,"source":`...), l.Source)
	}
	if l.Kind != "" {
		b = rawjson.AppendString(append(b, `,"kind":`...), l.Kind)
	}
	if l.Stale {
		b = append(b, `,"stale":true`...)
	}
	if !l.Round.IsZero() {
		b = rawjson.AppendString(append(b, `,"round":`...), l.Round.UTC().Format(time.RFC3339Nano))
	}
	if l.Object != "" {
		b = append(append(b, `,"object":`...), oneLine(l.Object)...)
	}
	for _, one := range []struct {
		name string
		n    int
	}{{"damaged", l.Damaged}, {"stateless", l.Stateless}} {
		if one.n > 0 {
			b = strconv.AppendInt(append(b, `,"`+one.name+`":`...), int64(one.n), 10)
		}
	}
	return append(b, "}\n"...)
}

// oneLine returns JSON without line breaks. They occur only between its tokens.
func oneLine(object string) string {
	if !strings.ContainsAny(object, "\r\n") {
		return object
	}
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(object)
}

// longest exceeds the length of any recording.
const longest = 10 * 365 * 24 * time.Hour

var errObject = errors.New("object is missing, or is no object")

// parse parses a line without its line break. Errors do not quote it.
func parse(text string) (l Line, err error) {
	if err := rawjson.Check(text); err != nil {
		return l, err
	}
	raw := rawjson.Trim(text)
	l.Op, l.Source, l.Kind = Op(raw.Get("op").Str()), raw.Get("source").Str(), raw.Get("kind").Str()
	l.Stale = raw.Get("stale").IsTrue()
	has, ok := l.Op.hasObject()
	switch {
	case !ok:
		return l, errors.New("op is missing or unknown")
	case l.Source == "" && l.Op != End:
		return l, errors.New("source is missing")
	}
	at, err := strconv.ParseFloat(string(raw.Get("at")), 64)
	if err != nil || !(at >= 0 && at <= longest.Seconds()) {
		return l, errors.New("at is missing, or is not a number of seconds")
	}
	l.At = time.Duration(at*1e6+0.5) * time.Microsecond
	if round := raw.Get("round"); l.Op == Sync {
		if l.Round, err = time.Parse(time.RFC3339Nano, round.Str()); err != nil {
			return l, errors.New("round is missing, or is no time")
		}
	}
	for name, into := range map[string]*int{"damaged": &l.Damaged, "stateless": &l.Stateless} {
		if text := raw.Get(name); text != "" {
			if *into, err = strconv.Atoi(string(text)); err != nil || *into < 0 {
				return l, fmt.Errorf("%s is no number", name)
			}
		}
	}
	if !has {
		return l, nil
	}
	object := raw.Get("object")
	if object.Kind() != rawjson.Object {
		return l, errObject
	}
	l.Object = string(object)
	return l, nil
}

// Error reports an invalid line of a recording.
type Error struct {
	Line int // from 1
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }
