package event

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"
)

// AppendJSON appends the event as a structured CloudEvent, in one line without its end: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
func (e *Event) AppendJSON(b []byte) []byte {
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
		b = AppendLine(b, e.Data)
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

// AppendLine appends JSON text as one line. A line break in JSON is white space: within a string it is escaped.
func AppendLine(b, data []byte) []byte {
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 {
		return append(b, data...)
	}
	buf := bytes.NewBuffer(b)
	if err := json.Compact(buf, data); err != nil {
		return append(b, "null"...) // no JSON at all, which no handler can bring about
	}
	return buf.Bytes()
}
