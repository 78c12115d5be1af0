package trace

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// ID identifies a trace.
type ID [16]byte

// SpanID identifies a span of a trace; the zero value is none.
type SpanID [8]byte

// String returns the hexadecimal digits of the ID.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Of returns the ID of the trace of d. It is a hash of what identifies the change, so all routes
// find the same ID, an upstream and a downstream route too, and a restart continues the trace
// without a record of it on disk.
//
// An added, updated or repeated state of an object is identified by its resourceVersion. So the net
// change of coalesced deltas has the trace of the last of them. A deleted or deselected object is
// identified without its resourceVersion, which is that of the state before, if the delete was
// inferred. An edge of a condition is identified as such also in the events of a downstream route.
func Of(d *event.Delta) ID {
	o := d.Object()
	what := o.ResourceVersion()
	switch d.Op {
	case event.Deleted, event.Deselected:
		what = d.Op.String()
	case event.Sync:
		what = strconv.FormatInt(d.Seen.UnixNano(), 36)
	case event.Entered, event.Left:
		what = d.Op.String() + d.Began + "#" + strconv.Itoa(d.Repeat)
	case event.Added, event.Updated:
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{"trace", o.Resource().Cluster, d.Source, o.UID(), what}, "\x00")))
	return ID(sum[:16])
}

// newSpanID returns a random ID. It is not derived: a delta that is delivered again, after a crash
// or from the dead letters, has another span in the same trace.
func newSpanID() (id SpanID) {
	for id == (SpanID{}) {
		n := rand.Uint64() //nolint:gosec // it is not a secret
		for i := range id {
			id[i] = byte(n >> (8 * i))
		}
	}
	return id
}

// Context identifies a span in other systems.
type Context struct {
	Trace   ID
	Span    SpanID
	Sampled bool
}

// traceParent returns the value of the header traceparent of W3C Trace Context, version 00.
func (c Context) traceParent() string {
	b := make([]byte, 0, 55)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, c.Trace[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, c.Span[:])
	if c.Sampled {
		return string(append(b, "-01"...))
	}
	return string(append(b, "-00"...))
}

// parentOf returns the span in a value of traceParent; the zero value if there is none.
func parentOf(value string) (id SpanID) {
	if len(value) == 55 {
		if _, err := hex.Decode(id[:], []byte(value[36:52])); err != nil {
			return SpanID{}
		}
	}
	return id
}
