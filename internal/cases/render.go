package cases

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// field is a key and its value. Fields are in the order that is best for readers.
type field struct {
	key   string
	value any
}

// entry is an event or error in the form of a file.
type entry []field

// fields returns an expectation as it is written, without its sink.
func (e *expectation) fields() entry {
	fields := entry{{"route", e.Route}}
	add := func(key, value string) {
		if value != "" {
			fields = append(fields, field{key, value})
		}
	}
	if e.At != nil {
		fields = append(fields, field{"at", *e.At})
	}
	add("type", e.Type)
	add("subject", e.Subject)
	add("error", e.Error)
	if e.hasData() {
		fields = append(fields, field{"data", e.data})
	}
	if e.hasBody() {
		fields = append(fields, field{"body", e.body})
	}
	if e.Exact {
		fields = append(fields, field{"exact", true})
	}
	if e.Any {
		fields = append(fields, field{"any", true})
	}
	return fields
}

// fields returns the result with the fields of the expectation only, or with all fields if there is
// no expectation or an empty one. Of data without an expected key it returns everything.
func (p pair) fields() entry {
	if p.want == nil || p.want.empty() {
		return p.got.fields()
	}
	if p.ok() {
		return p.want.fields()
	}
	came := map[string]any{"route": p.got.route, "at": p.got.at, "type": p.got.kind, "subject": p.got.subject, "error": p.got.text}
	fields := p.want.fields()
	for i := range fields {
		f := &fields[i]
		switch {
		case f.key == "exact", f.key == "any":
		case f.key == "error" && strings.Contains(p.got.text, p.want.Error):
		case f.key == "data":
			f.value = p.part(p.want.data, p.got.data)
		case f.key == "body":
			f.value = p.part(p.want.body, p.got.body)
		default:
			f.value = came[f.key]
		}
	}
	return fields.saying(p.got)
}

// part returns what to show of data or of a body: the parts that are expected, or everything if
// they are not all there.
func (p pair) part(want, got any) any {
	if p.want.Exact || !reaches(want, got) {
		return got
	}
	return shown(want, got)
}

// saying adds `exact`, with the whole data and body, if any data would match those of the entry, or
// any body.
func (e entry) saying(r *result) entry {
	vague := func(f field) bool { return (f.key == "data" || f.key == "body") && !says(f.value) }
	if slices.ContainsFunc(e, func(f field) bool { return f.key == "exact" }) || !slices.ContainsFunc(e, vague) {
		return e
	}
	for i := range e {
		switch e[i].key {
		case "data":
			e[i].value = r.data
		case "body":
			e[i].value = r.body
		}
	}
	return append(e, field{"exact", true})
}

// short renders a duration without zero units: 2m instead of 2m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// fields returns all fields of the result except the sink.
func (r *result) fields() entry {
	fields := entry{{"route", r.route}}
	if r.at > 0 {
		fields = append(fields, field{"at", r.at})
	}
	if r.failed() {
		return append(fields, field{"error", r.text})
	}
	fields = append(fields, field{"type", r.kind}, field{"subject", r.subject}, field{"data", r.data})
	if r.sends {
		fields = append(fields, field{"body", r.body})
	}
	return fields.saying(r)
}

// lines renders an entry as an item of a YAML list.
func (e entry) lines() (lines []string) {
	for _, f := range e {
		lines = append(lines, member(f.key, f.value)...)
	}
	return listed(lines)
}

// listed turns lines into an item of a list.
func listed(lines []string) []string {
	for i := range lines {
		if i == 0 {
			lines[i] = "- " + lines[i]
		} else {
			lines[i] = "  " + lines[i]
		}
	}
	return lines
}

// member renders a key and its value.
func member(key string, value any) []string {
	lines := block(value)
	if inline(value) {
		return []string{plain(key) + ": " + lines[0]}
	}
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return append([]string{plain(key) + ":"}, lines...)
}

// inline reports whether a value is on the line of its key.
func inline(value any) bool {
	switch value := value.(type) {
	case object:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return true
}

// block renders a value as YAML with sorted keys.
func block(value any) (lines []string) {
	switch value := value.(type) {
	case object:
		if len(value) == 0 {
			return []string{"{}"}
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			lines = append(lines, member(key, value[key])...)
		}
		return lines
	case []any:
		if len(value) == 0 {
			return []string{"[]"}
		}
		for _, element := range value {
			lines = append(lines, listed(block(element))...)
		}
		return lines
	case time.Duration:
		return []string{short(value)}
	case *config.Target:
		if value.Sink != "" {
			return []string{plain(value.Sink)}
		}
		return []string{"{route: " + plain(value.Route) + "}"}
	case string:
		// ${ would be expanded, except in a key.
		return []string{plain(strings.ReplaceAll(value, "${", "$${"))}
	}
	text, _ := json.Marshal(value) // a number, true, false or null
	return []string{string(text)}
}

var (
	// unquoted matches text without quotes. It excludes text that looks like a number, a time or
	// another YAML type.
	unquoted = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./@+=-]*( [A-Za-z0-9_./@+=(][A-Za-z0-9_./@+=()-]*)*$`)
	reserved = regexp.MustCompile(`^(?i:true|false|null|yes|no|on|off|y|n)$`)
)

// plain renders text in YAML on one line.
func plain(text string) string {
	if unquoted.MatchString(text) && !reserved.MatchString(text) {
		return text
	}
	return strconv.Quote(text) // YAML knows all escapes of Go
}
