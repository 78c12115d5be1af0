// Package cases implements `router test`: it reads cases from a YAML file beside a configuration,
// runs each through the real routes and handlers with [simulate.Trial], and compares the results
// with the expectations. docs/TESTING.md is the manual.
//
//	file ──decode──► cases ──script──► steps ──Trial──► outcomes ──compare──► report, or updated file
//
// Each case has its own clock, which jumps from one event to the next without waiting. Deltas
// happen at their `at`, and retries and reports of routes at their due times.
package cases

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// suffix is the end of the names of files with cases.
const suffix = "_test.yaml"

// document is a file with cases.
type document struct {
	Config string      `yaml:"config,path"` // empty: the file's name without _test
	Shared config.Node `yaml:"shared"`      // any content, for anchors
	Cases  []*testCase `yaml:"cases,required" min:"1"`
}

// testCase is one case.
type testCase struct {
	Node   config.Node `yaml:",self"`
	Name   string      `yaml:"name,required"`
	Routes []string    `yaml:"routes" min:"1"` // only these run; absent: all routes
	Given  given       `yaml:"given"`
	Expect config.Node `yaml:"expect"`

	start    time.Time
	steps    []step
	restarts bool                // it has a restart step
	list     map[string][]string // initial objects, by resource
	version  string              // resourceVersion of list
	expected []*expectation
	kinds    map[string]string
}

// given is the input of a case: initial objects and later deltas.
type given struct {
	Objects map[string][]config.Node `yaml:"objects"` // by source
	Deltas  []*delta                 `yaml:"deltas"`
	HTTP    []*answer                `yaml:"http"` // answers to the requests of handlers
	// time of the clock at 0s; empty: defaultStart
	Start string         `yaml:"start"`
	Until *time.Duration `yaml:"until"` // end of the case; nil: see testCase.ends
}

// defaultStart is the default time of a case's clock at 0s.
var defaultStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// ends returns the time up to which the clock of a case runs, even without pending deltas.
func (t *testCase) ends() (end time.Duration) {
	if t.Given.Until != nil {
		return *t.Given.Until
	}
	for _, d := range t.Given.Deltas {
		end = max(end, d.ends())
	}
	for _, e := range t.expected {
		if e.At != nil {
			end = max(end, *e.At)
		}
	}
	return end
}

// delta is one step of a case.
type delta struct {
	Node   config.Node   `yaml:",self"`
	At     time.Duration `yaml:"at"`
	Source string        `yaml:"source"` // optional if the configuration has one source
	Added  config.Node   `yaml:"added"`
	// a whole object if it has a kind or an apiVersion; else a merge patch
	Updated config.Node `yaml:"updated"`
	Deleted string      `yaml:"deleted"` // namespace/name, or name
	Sync    string      `yaml:"sync"`
	Restart *restart    `yaml:"restart"` // of the router; has no source
}

// ends returns the end of the step.
func (d *delta) ends() time.Duration {
	if d.Restart != nil {
		return d.At + d.Restart.Down
	}
	return d.At
}

// restart stops the router for a time. At its start the router sees the changes of that time.
type restart struct {
	Down time.Duration `yaml:"down"`
}

// expectation is an expected event or error of one route.
type expectation struct {
	Node    config.Node    `yaml:",self"`
	Route   string         `yaml:"route,required"`
	Sink    config.Target  `yaml:"sink"` // zero: each target of the route
	At      *time.Duration `yaml:"at"`   // time of the event
	Type    string         `yaml:"type"`
	Subject string         `yaml:"subject"`
	Data    config.Node    `yaml:"data"`
	Body    config.Node    `yaml:"body"`  // the body that a sink with such an expression sends
	Exact   bool           `yaml:"exact"` // data and body have no further fields
	Any     bool           `yaml:"any"`   // any event of the route is as expected
	Error   string         `yaml:"error"` // part of the reason why a delta was given up

	data, body any // of Data and Body
}

// hasSink reports whether the event is expected at one target only.
func (e *expectation) hasSink() bool { return e.Sink.Sink+e.Sink.Route != "" }

// empty reports whether any event of the route would be as expected, without Any, which says so.
func (e *expectation) empty() bool {
	return !e.Any && e.At == nil && e.Type+e.Subject+e.Error == "" && !e.saysData()
}

// hasData reports whether the data are given. Null is data, too.
func (e *expectation) hasData() bool { return slices.Contains(e.Node.Keys(), "data") }

// hasBody reports whether the body is given.
func (e *expectation) hasBody() bool { return slices.Contains(e.Node.Keys(), "body") }

// saysData reports whether the data or the body exclude others.
func (e *expectation) saysData() bool {
	return e.hasData() && (e.Exact || says(e.data)) || e.hasBody() && (e.Exact || says(e.body))
}

// nothing is the value of `expect` for no event, equivalent to an empty list.
const nothing = "none"

// parseFile reads a file. The document is nil if the problems make it unusable.
func parseFile(file string, data []byte) (*document, config.Problems) {
	root, problems := config.ParseNode(file, data)
	if len(problems) > 0 {
		return nil, problems
	}
	doc := &document{}
	if problems = root.Decode(doc); len(problems) > 0 {
		return nil, problems
	}
	if doc.Config == "" {
		name := strings.TrimSuffix(filepath.Base(file), suffix)
		if name == filepath.Base(file) {
			return nil, config.Problems{root.Problemf("config is missing: name the configuration, or call this file like it, as in config%s", suffix)}
		}
		doc.Config = filepath.Join(filepath.Dir(file), name+".yaml")
	}
	return doc, nil
}

// checker finds the mistakes in cases of a configuration.
type checker struct {
	cfg      *config.Config
	hasBody  func(sink string) bool // the sink sends a body of an expression
	problems config.Problems
}

func (c *checker) problemf(n config.Node, format string, args ...any) {
	c.problems = append(c.problems, n.Problemf(format, args...))
}

// check finds all problems of a document and prepares its cases. With update, expect may be
// missing.
func (c *checker) check(doc *document, update bool) {
	names := make(map[string]bool)
	kinds := make(map[string]string)
	for _, t := range doc.Cases {
		if names[t.Name] {
			c.problemf(t.Node.At("name"), "another case has the name %q: give each a name of its own", t.Name)
		}
		names[t.Name] = true
		for i, name := range t.Routes {
			c.route(t.Node.At("routes").Items()[i], name)
		}
		s := &script{checker: c, t: t, kinds: kinds, now: make(map[string]map[string]object)}
		s.write()
		t.kinds = kinds
		if t.Expect.IsZero() && !update {
			c.problemf(t.Node, "expect is missing: list the events, or write `expect: none`; router test -update adds it")
		}
		c.expect(t, update)
		c.times(t)
	}
}

// times checks the begin and the end of a case.
func (c *checker) times(t *testCase) {
	t.start = defaultStart
	given := t.Node.At("given")
	if t.Given.Start != "" {
		var err error
		if t.start, err = time.Parse(time.RFC3339, t.Given.Start); err != nil {
			c.problemf(given.At("start"), "must be a time as in 2026-01-01T00:00:00Z, not %q", t.Given.Start)
		}
	}
	if t.Given.Until == nil {
		return
	}
	for i, d := range t.Given.Deltas {
		if d.ends() > *t.Given.Until {
			c.problemf(given.At("deltas").Items()[i], "is after the end of the case (until: %s)", short(*t.Given.Until))
		}
	}
	for _, e := range t.expected {
		if e.At != nil && *e.At > *t.Given.Until {
			c.problemf(e.Node.At("at"), "is after the end of the case (until: %s)", short(*t.Given.Until))
		}
	}
}

// route returns a route by its name. It reports a problem and returns nil if there is none.
func (c *checker) route(n config.Node, name string) *config.Route {
	var names []string
	for _, r := range c.cfg.Routes {
		if r.Name == name {
			return r
		}
		names = append(names, r.Name)
	}
	c.problemf(n, "unknown route %q%s", name, config.Suggest(name, names))
	return nil
}

// expect reads the expectations of a case. With update, they may be empty.
func (c *checker) expect(t *testCase, update bool) {
	var word string
	if !t.Expect.IsZero() && t.Expect.Decode(&word) == nil {
		if word != nothing {
			c.problemf(t.Expect, "must be a list of events, or %s for no event, not %q", nothing, word)
		}
		return
	}
	if t.Expect.IsZero() {
		return
	}
	if problems := t.Expect.Decode(&t.expected); len(problems) > 0 {
		c.problems = append(c.problems, problems...)
		return
	}
	for _, e := range t.expected {
		known := len(c.problems)
		if c.expectation(t, e); len(c.problems) == known && !update {
			c.content(e)
		}
	}
}

func (c *checker) expectation(t *testCase, e *expectation) {
	r := c.route(e.Node.At("route"), e.Route)
	if r == nil {
		return
	}
	if len(t.Routes) > 0 && !slices.Contains(t.Routes, e.Route) {
		c.problemf(e.Node.At("route"), "route %q is not among the routes of the case: add it there", e.Route)
	}
	if e.hasSink() && !slices.ContainsFunc(r.To, func(t config.Target) bool { return t.Is(&e.Sink) }) {
		c.noTarget(r, &e.Sink)
	}
	keys := e.Node.Keys()
	if slices.Contains(keys, "error") {
		if e.Error == "" {
			c.problemf(e.Node.At("error"), "is empty: write a part of the error")
		}
		for _, other := range []string{"sink", "type", "subject", "data", "body", "exact"} {
			if slices.Contains(keys, other) {
				c.problemf(e.Node.At(other), "does not go with error: a delta that is given up makes no event")
			}
		}
	}
	if e.Exact && !e.hasData() && !e.hasBody() {
		c.problemf(e.Node.At("exact"), "needs data or body")
	}
	c.bodyOf(r, e)
	for _, other := range []string{"type", "subject", "data", "body", "exact", "error"} {
		if e.Any && slices.Contains(keys, other) {
			c.problemf(e.Node.At(other), "does not go with any: write what the event has, or any: true for any event of the route")
		}
	}
	e.data, e.body = c.value(e.Data), c.value(e.Body)
}

// bodyOf reports an expected body of a sink that sends the event itself.
func (c *checker) bodyOf(r *config.Route, e *expectation) {
	for i := range r.To {
		if to := &r.To[i]; e.hasBody() && (!e.hasSink() || e.Sink.Is(to)) && !c.hasBody(to.Sink) {
			c.problemf(e.Node.At("body"), "%s gets the event itself: expect data, or name a sink with a body of its own under sink", to)
		}
	}
}

// value reads any YAML.
func (c *checker) value(n config.Node) any {
	value, err := valueOf(n)
	if err != nil {
		c.problems = append(c.problems, problemsOf(n, err)...)
	}
	return value
}

// content reports an expectation that any event of the route meets, and data that match any data.
func (c *checker) content(e *expectation) {
	switch {
	case e.hasData() && !e.Exact && !says(e.data):
		c.problemf(e.Node.At("data"), "matches any data: write a part of the data, or exact: true if they are empty; router test -update writes them")
	case e.hasBody() && !e.Exact && !says(e.body):
		c.problemf(e.Node.At("body"), "matches any body: write a part of the body, or exact: true if it is empty; router test -update writes it")
	case e.empty():
		c.problemf(e.Node, "any event of the route is as expected: write its data, type, subject or at, or any: true if you mean that; "+
			"router test -update writes them")
	}
}

// noTarget reports an expectation at a target that the route does not have.
func (c *checker) noTarget(r *config.Route, t *config.Target) {
	var known []string // targets of the same form
	for i := range r.To {
		if (r.To[i].Sink == "") == (t.Sink == "") {
			known = append(known, r.To[i].Sink+r.To[i].Route)
		}
	}
	there := c.cfg.Sinks[t.Sink] != nil || slices.ContainsFunc(c.cfg.Routes, func(r *config.Route) bool { return r.Name == t.Route })
	switch {
	case slices.ContainsFunc(r.To, func(o config.Target) bool { return o.Sink == "" && o.Route == t.Sink }):
		c.problemf(t.Node, "route %q delivers to a route of that name and to no sink: write {route: %s}", r.Name, t.Sink)
	case !there:
		c.problemf(t.Node, "unknown %s%s", t, config.Suggest(t.Sink+t.Route, known))
	case len(known) == 0:
		c.problemf(t.Node, "route %q does not deliver to %s: it delivers to %s", r.Name, t, &r.To[0])
	default:
		c.problemf(t.Node, "route %q does not deliver to %s%s", r.Name, t, config.Suggest(t.Sink+t.Route, known))
	}
}

// problemsOf converts an error into problems.
func problemsOf(n config.Node, err error) config.Problems {
	if problems, ok := err.(config.Problems); ok { //nolint:errorlint // it is never wrapped
		return problems
	}
	return config.Problems{n.Problemf("%v", err)}
}

// title names a case in reports.
func (t *testCase) title(file string) string {
	at := t.Node.Problemf("")
	return fmt.Sprintf("%s:%d: %s", file, at.Line, t.Name)
}
