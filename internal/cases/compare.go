package cases

import (
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// stream is what one route gives to one sink, or gives up (sink is empty), and what was expected of it.
type stream struct {
	route *config.Route
	sink  string
	pairs []pair

	common bool // it stands for all sinks of the route
}

// streams sorts what came and what was expected by route and sink. Where nothing came and nothing was expected there is none.
func (t *testCase) streams(cfg *config.Config, came []*result) (all []stream) {
	for _, route := range cfg.Routes {
		if len(t.Routes) > 0 && !slices.Contains(t.Routes, route.Name) {
			continue
		}
		for _, sink := range append(slices.Clone(route.To), "") {
			var want []*expectation
			var got []*result
			for _, e := range t.expected {
				if e.Route == route.Name && (e.Error != "") == (sink == "") && (e.Sink == "" || e.Sink == sink) {
					want = append(want, e)
				}
			}
			for _, r := range came {
				if r.route == route.Name && r.failed() == (sink == "") && (r.sink == sink || sink == "") {
					got = append(got, r)
				}
			}
			if len(want)+len(got) > 0 {
				all = append(all, stream{route: route, sink: sink, pairs: align(want, got)})
			}
		}
	}
	return all
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

// shownOnce puts one stream without a sink in the place of those of a route whose sinks all got the same.
func shownOnce(streams []stream) (shown []stream) {
	for len(streams) > 0 {
		route := streams[0].route
		n := 0
		for n < len(streams) && streams[n].route == route && streams[n].sink != "" {
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

// alike reports whether streams differ in nothing but their sink.
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

// named adds the sink, where the route has more than one and they are not shown as one.
func (s stream) named(e entry) entry {
	e = slices.DeleteFunc(slices.Clone(e), func(f field) bool { return f.key == "sink" })
	if s.sink == "" || s.common || len(s.route.To) < 2 {
		return e
	}
	return slices.Insert(e, 1, field{"sink", s.sink})
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
