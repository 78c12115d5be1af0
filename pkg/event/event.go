package event

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// TypePrefix is the prefix of the type of an event, unless its handler sets another type.
const TypePrefix = "io.deltarouter."

// Event is the message that a sink delivers: a CloudEvent (https://cloudevents.io, version 1.0)
// about one delta. It is immutable.
type Event struct {
	// ID is the same if the same event is made again, so a receiver can drop duplicates. See [New].
	ID      string
	Type    string // io.deltarouter.added, or the type that the handler set
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
	// TraceParent identifies the span of the event in the form of W3C Trace Context, as the
	// CloudEvents extension for distributed tracing says. Empty: tracing is off. It is not part of
	// the state on disk.
	TraceParent string `json:",omitempty"`

	// Of is the delta of the event. It gives a sink the kind, namespace and name of the object,
	// even if the handler set another subject. nil: [New] did not make the event.
	Of *Delta `json:"-"`
	// Key is the value of the route's `key` for the delta. Empty: the route has no `key` and keeps
	// the order of each object. See [Event.OrderKey].
	Key string `json:"-"`
}

// OrderKey returns the key that decides the order of events: the route's key, or else
// source/namespace/name of the object (source/name for a cluster-scoped object). The events of one
// route with one key reach a sink in order. A sink of a system with ordering keys passes this key
// on.
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
// Its ID is a hash of cluster, uid, resourceVersion, op, route and n, with these exceptions:
//
//   - Deleted: without the resourceVersion, which is unknown for a delete that was inferred from a
//     list.
//   - Sync: the time of the resync instead of the resourceVersion.
//   - Entered and Left: the time since when the condition holds, and the number of the reminder,
//     instead of the resourceVersion.
//   - A delta from an upstream route: also the ID of the upstream event. A route may get several
//     events of one delta.
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

// Payload returns the data of an event whose route has no handler: {"op", "object", "oldObject",
// "initial", "stale", "since", "repeat", "late", "suppressed", "with"}, without the fields that are
// null, false or 0. The object of a delete is the last state.
func Payload(d *Delta) []byte {
	size := 64 + len(d.Object().json) + len(d.With)
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
	if len(d.With) > 0 {
		b = append(b, `,"with":`...)
		b = append(b, d.With...)
	}
	return append(b, '}')
}

// Attributes calls yield with each attribute of the event that is not empty, until it returns
// false. Names and values have the form that the CloudEvents specification prescribes. specversion
// comes first. The content type of the data is not included.
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
		{"traceparent", e.TraceParent},
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

// AppendJSON appends the event as a structured CloudEvent, on one line without a line end:
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
	b = appendMember(b, "traceparent", e.TraceParent)
	if len(e.Data) > 0 {
		b = append(b, `,"datacontenttype":"application/json","data":`...)
		b = rawjson.AppendLine(b, e.Data)
	}
	return append(b, '}')
}

// appendMember omits empty values, because an attribute of a CloudEvent must not be empty.
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return rawjson.AppendString(b, value)
}
