package stdout

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// appendJSON appends the event as a structured CloudEvent.
func appendJSON(b []byte, e *event.Event) []byte { return append(e.AppendJSON(b), '\n') }

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
		data := event.AppendLine(nil, e.Data)
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
