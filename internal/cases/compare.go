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
				all = append(all, stream{route, sink, align(want, got)})
			}
		}
	}
	return all
}

// diff compares all streams; empty: all came that was expected, and nothing else.
func diff(streams []stream) string {
	var want, got []string
	for _, s := range streams {
		for _, p := range s.pairs {
			if p.want != nil {
				want = append(want, s.named(p.want.fields()).lines()...)
			}
			if p.got != nil {
				got = append(got, s.named(p.fields()).lines()...)
			}
		}
	}
	text := unified(want, got)
	if text == "" && !allOK(streams) { // what differs cannot be seen, as a 1 and a "1" could not
		text = "what came differs from what was expected\n"
	}
	return text
}

func allOK(streams []stream) bool {
	for _, s := range streams {
		if slices.ContainsFunc(s.pairs, func(p pair) bool { return !p.ok() }) {
			return false
		}
	}
	return true
}

// named adds the sink, where the route has more than one.
func (s stream) named(e entry) entry {
	if s.sink == "" || len(s.route.To) < 2 {
		return e
	}
	e = e.without("sink")
	return slices.Insert(e, 1, field{"sink", s.sink})
}

// expectLines writes what came as the value of `expect`. What was expected rightly stays as it was.
func expectLines(streams []stream) (lines []string) {
	for len(streams) > 0 {
		route := streams[0].route
		n := 0
		for n < len(streams) && streams[n].route == route {
			n++
		}
		lines = append(lines, routeLines(streams[:n])...)
		streams = streams[n:]
	}
	return lines
}

// routeLines writes what came of one route: once, if every sink got the same.
func routeLines(streams []stream) (lines []string) {
	var same []string
	sinks := 0
	for _, s := range streams {
		if s.sink == "" {
			continue
		}
		text := s.lines(func(e entry) entry { return e.without("sink") })
		if sinks == 0 || slices.Equal(text, same) {
			same, sinks = text, sinks+1
		}
	}
	shared := sinks == len(streams[0].route.To)
	if shared {
		lines = same
	}
	for _, s := range streams {
		if s.sink == "" || !shared {
			lines = append(lines, s.lines(s.named)...)
		}
	}
	return lines
}

func (s stream) lines(as func(entry) entry) (lines []string) {
	for _, p := range s.pairs {
		if p.got != nil {
			lines = append(lines, as(p.fields()).lines()...)
		}
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
