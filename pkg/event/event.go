package event

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// TypePrefix is what the type of an event starts with unless its handler names another type.
const TypePrefix = "io.deltarouter."

// Event is what a sink delivers: a CloudEvent (https://cloudevents.io, version 1.0) about one
// delta. It is immutable once made.
type Event struct {
	// ID is the same whenever the same event is made again, so that a receiver can drop duplicates;
	// see [New].
	ID      string
	Type    string // io.deltarouter.added, or what the handler named
	Source  string // /clusters/<cluster>/sources/<source>
	Subject string // namespace/name, or name
	Time    time.Time
	// Data is JSON (content type application/json). It must not be modified.
	Data []byte

	// The extension attributes.
	Route              string
	K8sUID             string
	K8sResourceVersion string
	Redelivered        bool

	// Of is the delta that the event is about, which tells a sink kind, namespace and name of the
	// object whatever the handler made of the subject. nil: the event was not made by [New].
	Of *Delta `json:"-"`
	// Key is what the route's `key` says of the delta; empty: the route has none, so that it keeps
	// the order of each object. See [Event.OrderKey].
	Key string `json:"-"`
}

// OrderKey returns what the order of events is kept by: the route's key, else source/namespace/name
// of the object (source/name where it has no namespace). The events of one route with one key reach
// a sink in order, so a sink that keeps order by a key passes this one on.
func (e *Event) OrderKey() string {
	switch {
	case e.Key != "":
		return e.Key
	case e.Of != nil:
		return e.Of.Source + "/" + e.Of.Key().String()
	}
	return e.Subject
}

// New returns the n-th event (from 0) that route makes of d, with the given JSON as its data.
//
// Its ID is a hash of cluster, uid, resourceVersion, op, route and n. A delete leaves the
// resourceVersion out, since a delete that is inferred from a list does not know it. A sync has the
// time of its round instead. Entered and left have the time since when the condition holds, and the
// number of the reminder. If another route made an event of the delta, the ID of that event counts
// too: one delta may come to a route as several of them.
func New(d *Delta, route string, n int, data []byte) Event {
	o := d.Object()
	return Event{
		ID:      newID(d, route, n),
		Type:    TypePrefix + d.Op.String(),
		Source:  "/clusters/" + o.Resource().Cluster + "/sources/" + d.Source,
		Subject: o.Key().String(),
		Time:    d.Seen,
		Data:    data,
		Route:   route, K8sUID: o.UID(), K8sResourceVersion: o.ResourceVersion(), Redelivered: d.Redelivered,
		Of: d,
	}
}

// newID returns the ID that [New] documents.
func newID(d *Delta, route string, n int) string {
	o := d.Object()
	version := o.ResourceVersion()
	switch d.Op {
	case Deleted:
		version = ""
	case Sync:
		version = strconv.FormatInt(d.Seen.UnixNano(), 36)
	case Entered, Left:
		version = d.Began
		if d.Repeat > 0 {
			version += "#" + strconv.Itoa(d.Repeat)
		}
	case Added, Updated, Deselected:
	}
	parts := []string{o.Resource().Cluster, o.UID(), version, d.Op.String(), route, strconv.Itoa(n)}
	if d.Event != nil {
		parts = append(parts, d.Event.ID)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// Payload returns the data of an event whose route has no handler: the delta itself, as {"op",
// "object", "oldObject", "initial", "stale", "since", "repeat", "late", "suppressed"} with null,
// false and 0 left out. For a delete, object is the last state.
func Payload(d *Delta) []byte {
	size := 64 + len(d.Object().json)
	if d.Old != nil {
		size += len(d.Old.json)
	}
	b := make([]byte, 0, size)
	b = append(b, `{"op":"`...)
	b = append(b, d.Op.String()...)
	b = append(b, `","object":`...)
	b = append(b, d.Object().json...)
	if d.New != nil && d.Old != nil {
		b = append(b, `,"oldObject":`...)
		b = append(b, d.Old.json...)
	}
	if d.Initial {
		b = append(b, `,"initial":true`...)
	}
	if d.Stale {
		b = append(b, `,"stale":true`...)
	}
	if !d.Since.IsZero() {
		b = append(b, `,"since":"`...)
		b = d.Since.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	if d.Repeat > 0 {
		b = append(b, `,"repeat":true`...)
	}
	if d.Late {
		b = append(b, `,"late":true`...)
	}
	if d.Suppressed > 0 {
		b = append(b, `,"suppressed":`...)
		b = strconv.AppendInt(b, int64(d.Suppressed), 10)
	}
	return append(b, '}')
}

// Attributes calls yield with each attribute of the event that is not empty, as CloudEvents names
// and spells them, until it returns false: what a protocol carries beside the data. The first is
// specversion; the content type of the data is not among them.
func (e *Event) Attributes(yield func(name, value string) bool) {
	all := [...]struct{ name, value string }{
		{"specversion", "1.0"},
		{"id", e.ID},
		{"source", e.Source},
		{"type", e.Type},
		{"subject", e.Subject},
		{"time", ""},
		{"route", e.Route},
		{"k8suid", e.K8sUID},
		{"k8sresourceversion", e.K8sResourceVersion},
		{"redelivered", ""},
	}
	if !e.Time.IsZero() {
		all[5].value = e.Time.UTC().Format(time.RFC3339Nano)
	}
	if e.Redelivered {
		all[9].value = "true"
	}
	for _, a := range all {
		if a.value != "" && !yield(a.name, a.value) {
			return
		}
	}
}

// AppendJSON appends the event as a structured CloudEvent, in one line without its end:
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
func (e *Event) AppendJSON(b []byte) []byte {
	b = append(b, `{"specversion":"1.0","id":`...)
	b = rawjson.AppendString(b, e.ID)
	b = appendMember(b, "source", e.Source)
	b = appendMember(b, "type", e.Type)
	b = appendMember(b, "subject", e.Subject)
	if !e.Time.IsZero() {
		b = append(b, `,"time":"`...)
		b = e.Time.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	b = appendMember(b, "route", e.Route)
	b = appendMember(b, "k8suid", e.K8sUID)
	b = appendMember(b, "k8sresourceversion", e.K8sResourceVersion)
	if e.Redelivered {
		b = append(b, `,"redelivered":true`...)
	}
	if len(e.Data) > 0 {
		b = append(b, `,"datacontenttype":"application/json","data":`...)
		b = rawjson.AppendLine(b, e.Data)
	}
	return append(b, '}')
}

// appendMember leaves out what is empty: the attributes of a CloudEvent must not be.
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return rawjson.AppendString(b, value)
}
