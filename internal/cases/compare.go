package cases

import (
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// stream is what one route gives to one target, or gives up, and what was expected of it.
type stream struct {
	route  *config.Route
	target *config.Target // nil: it gave the deltas up
	pairs  []pair

	common bool // it stands for all targets of the route
}

// streams sorts what came and what was expected by route and target. Where nothing came and nothing
// was expected there is none.
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

// stream appends the stream of one target, nil for errors, if anything came or was expected.
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

// diff compares all streams; empty: all came that was expected, and nothing else.
func diff(streams []stream) string {
	var want, got []string
	for _, s := range shownOnce(streams) {
		a, b := s.texts()
		want, got = append(want, a...), append(got, b...)
	}
	text := unified(want, got)
	if text == "" && !allOK(streams) { // what differs cannot be seen, as a 1 and a "1" could not
		text = "what came differs from what was expected\n"
	}
	return text
}

// texts returns the two sides of a stream.
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

// shownOnce puts one stream without a target in the place of those of a route whose targets all got
// the same.
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

// alike reports whether streams differ in nothing but their target.
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

// named adds the target, where the route has more than one and they are not shown as one.
func (s stream) named(e entry) entry {
	if s.target == nil || s.common || len(s.route.To) < 2 {
		return e
	}
	return slices.Insert(e, 1, field{"sink", s.target})
}

// expectLines writes what came as the value of `expect`. What was expected rightly stays as it was.
func expectLines(streams []stream) (lines []string) {
	for _, s := range shownOnce(streams) {
		_, got := s.texts()
		lines = append(lines, got...)
	}
	return lines
}

// indent puts text further to the right.
func indent(text, by string) string {
	lines := strings.SplitAfter(text, "\n")
	for i := range lines {
		if lines[i] != "" {
			lines[i] = by + lines[i]
		}
	}
	return strings.Join(lines, "")
}
