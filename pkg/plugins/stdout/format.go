package stdout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// appendJSON appends the event as a structured CloudEvent: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
func appendJSON(b []byte, e *event.Event) []byte {
	b = append(b, `{"specversion":"1.0","id":`...)
	b = appendString(b, e.ID)
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
		b = appendLine(b, e.Data)
	}
	return append(b, "}\n"...)
}

// appendMember leaves out what is empty: the attributes of a CloudEvent must not be.
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return appendString(b, value)
}

// appendString appends a JSON string.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			buf := bytes.NewBuffer(b)
			enc := json.NewEncoder(buf)
			enc.SetEscapeHTML(false)
			_ = enc.Encode(s) // a string always can
			return buf.Bytes()[:buf.Len()-1]
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// appendLine appends JSON text as one line. A line break in JSON is white space: within a string it is escaped.
func appendLine(b, data []byte) []byte {
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 {
		return append(b, data...)
	}
	buf := bytes.NewBuffer(b)
	if err := json.Compact(buf, data); err != nil {
		return append(b, "null"...) // no JSON at all, which no handler can bring about
	}
	return buf.Bytes()
}

// maxText is how many bytes of an event's data a line for people shows.
const maxText = 1000

// appendText appends a line such as
//
//	15:04:05 updated  pods default/web-0  restarts  {"container":"app","restarts":4}
//
// for the event of the route restarts about an update. The delta itself is not shown: an object has thousands of bytes.
func appendText(b []byte, e *event.Event) []byte {
	op, own := strings.CutPrefix(e.Type, event.TypePrefix)
	source := e.Source[strings.LastIndexByte(e.Source, '/')+1:]
	line := e.Time.Local().AppendFormat(nil, time.TimeOnly)
	line = fmt.Appendf(line, " %-8s %s %s  %s", op, source, e.Subject, e.Route)
	if e.Redelivered {
		line = append(line, " (redelivered)"...)
	}
	if len(e.Data) > 0 && !(own && isDelta(e.Data, op)) {
		data := appendLine(nil, e.Data)
		line = append(append(line, "  "...), data[:min(len(data), maxText)]...)
		if len(data) > maxText {
			line = append(line, "…"...)
		}
	}
	return append(append(b, printable(line)...), '\n')
}

// isDelta reports whether data is the delta itself, as a route without a handler has it (see [event.Payload]).
func isDelta(data []byte, op string) bool {
	return bytes.HasPrefix(data, []byte(`{"op":"`+op+`","object":{`))
}

// printable replaces what could make a terminal do something else than print.
func printable(b []byte) []byte {
	bad := func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
	if bytes.IndexFunc(b, bad) < 0 {
		return b
	}
	return bytes.Map(func(r rune) rune {
		if bad(r) {
			return '\uFFFD'
		}
		return r
	}, b)
}
