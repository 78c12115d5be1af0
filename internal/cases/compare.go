package cases

import (
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// stream is the sequence of events that a route gives to a target, or of the deltas that it gives
// up, with the expectations about them.
type stream struct {
	route  *config.Route
	target *config.Target // nil: deltas that were given up
	pairs  []pair

	common bool // it represents all targets of the route
}

// streams groups results and expectations by route and target. It leaves out empty streams.
func (t *testCase) streams(cfg *config.Config, came []*result) (all []stream) {
	for _, route := range cfg.Routes {
		if len(t.Routes) > 0 && !slices.Contains(t.Routes, route.Name) {
			continue
		}
		for i := range route.To {
			all = t.stream(all, route, &route.To[i], came)
		}
		all = t.stream(all, route, nil, came)
	}
	return all
}

// stream appends the stream of a target (nil: of errors) if it is not empty.
func (t *testCase) stream(all []stream, route *config.Route, target *config.Target, came []*result) []stream {
	var want []*expectation
	var got []*result
	for _, e := range t.expected {
		if e.Route == route.Name && (e.Error != "") == (target == nil) && (!e.hasSink() || e.Sink.Is(target)) {
			want = append(want, e)
		}
	}
	for _, r := range came {
		if r.route == route.Name && r.failed() == (target == nil) && (target == nil || r.sink == target.Name()) {
			got = append(got, r)
		}
	}
	if len(want)+len(got) == 0 {
		return all
	}
	return append(all, stream{route: route, target: target, pairs: align(want, got)})
}

// diff compares all streams. It returns "" if all results are as expected.
func diff(streams []stream) string {
	var want, got []string
	for _, s := range shownOnce(streams) {
		a, b := s.texts()
		want, got = append(want, a...), append(got, b...)
	}
	text := unified(want, got)
	if text == "" && !allOK(streams) { // the difference is invisible, such as 1 and "1"
		text = "the results differ from the expectations only in types, as 1 and \"1\" do\n"
	}
	return text
}

// texts returns the expected and the actual text of a stream.
func (s stream) texts() (want, got []string) {
	for _, p := range s.pairs {
		if p.want != nil {
			want = append(want, s.named(p.want.fields()).lines()...)
		}
		if p.got != nil {
			got = append(got, s.named(p.fields()).lines()...)
		}
	}
	return want, got
}

// shownOnce replaces the streams of a route whose targets all got the same by one stream without a
// target.
func shownOnce(streams []stream) (shown []stream) {
	for len(streams) > 0 {
		route := streams[0].route
		n := 0
		for n < len(streams) && streams[n].route == route && streams[n].target != nil {
			n++
		}
		if n > 1 && n == len(route.To) && alike(streams[:n]) {
			one := streams[0]
			one.common = true
			shown = append(shown, one)
		} else {
			n = max(n, 1)
			shown = append(shown, streams[:n]...)
		}
		streams = streams[n:]
	}
	return shown
}

// alike reports whether streams differ in their target only.
func alike(streams []stream) bool {
	var want, got []string
	for i, s := range streams {
		s.common = true
		a, b := s.texts()
		if i > 0 && (!slices.Equal(a, want) || !slices.Equal(b, got)) {
			return false
		}
		want, got = a, b
	}
	return true
}

func allOK(streams []stream) bool {
	for _, s := range streams {
		if slices.ContainsFunc(s.pairs, func(p pair) bool { return !p.ok() }) {
			return false
		}
	}
	return true
}

// named adds the target if the route has several and the stream does not represent all of them.
func (s stream) named(e entry) entry {
	if s.target == nil || s.common || len(s.route.To) < 2 {
		return e
	}
	return slices.Insert(e, 1, field{"sink", s.target})
}

// expectLines renders the results as the value of `expect`. Fulfilled expectations stay unchanged.
func expectLines(streams []stream) (lines []string) {
	for _, s := range shownOnce(streams) {
		_, got := s.texts()
		lines = append(lines, got...)
	}
	return lines
}

// indent indents text.
func indent(text, by string) string {
	lines := strings.SplitAfter(text, "\n")
	for i := range lines {
		if lines[i] != "" {
			lines[i] = by + lines[i]
		}
	}
	return strings.Join(lines, "")
}
