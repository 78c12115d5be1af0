package cel_test

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// fed returns a delta of which an upstream route made an event with this data.
func fed(tb testing.TB, data string) cel.Input {
	tb.Helper()
	in := updated(tb, web, web)
	in.Delta.Event = &event.Event{
		ID: "id-1", Type: "pod.broken", Source: "/clusters/prod/sources/pods", Subject: "team/a", Route: "broken-pods", Data: []byte(data),
		Time: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
	}
	return in
}

const incident = `{"team": "a", "count": 3, "big": 9007199254740993, "ratio": 0.5, "tags": ["x", "y"], "gone": null, "deep": {"k": {"v": true}}}`

// An expression of a downstream route has the event and the delta.
func TestEvent(t *testing.T) {
	for text, want := range map[string]string{
		`event.id`: `"id-1"`, `event.type`: `"pod.broken"`, `event.source`: `"/clusters/prod/sources/pods"`, `event.subject`: `"team/a"`,
		`event.route`: `"broken-pods"`, `event.time`: `"2026-01-02T03:04:05.000006Z"`, `event.data`: incident,
		`event.time + duration("1h") > timestamp("2026-01-02T04:00:00Z")`: `true`,
		`event.data.team + "/" + object.metadata.name + "/" + op`:         `"a/web-0/updated"`,
		`event.data.big`: `9007199254740993`, `event.data.ratio * 2.0`: `1.0`, `event.data.tags.exists(tag, tag == "y")`: `true`,
		`has(event.data.team) && !has(event.data.absent) && has(event.subject)`: `true`, `event.data.gone`: `null`,
		`event.data.?deep.k.v.orValue(false)`: `true`, `event.data.?deep.j.v.orValue(false)`: `false`, `event.data.deep == {"k": {"v": true}}`: `true`,
		`[1, 2].map(event, event * 2)`:    `[2,4]`, // a name of a macro hides it
		`event({"was": event.data.team})`: `{"data":{"was":"a"}}`,
		`event`: `{"data":` + incident + `,"id":"id-1","route":"broken-pods","source":"/clusters/prod/sources/pods","subject":"team/a",` +
			`"time":"2026-01-02T03:04:05.000006Z","type":"pod.broken"}`,
	} {
		got, err := compile(t, text, cel.Value).Value(t.Context(), fed(t, incident))
		if want == "1.0" {
			want = "1"
		}
		if err != nil || string(got) != want {
			t.Errorf("%s: %s %v, want %s", text, got, err, want)
		}
	}
	for data, want := range map[string]string{`[1, 2]`: `list`, ` "x" `: `string`, `17`: `int`, ``: `null_type`, `null`: `null_type`, ` {} `: `map`} {
		got, err := compile(t, `type(event.data) == `+want, cel.Filter).Match(t.Context(), fed(t, data))
		if err != nil || !got {
			t.Errorf("data %q: %v %v, want %s", data, got, err, want)
		}
	}
}

// Every expression of a route has the event, and reports its use. An emit of a group has the events
// of all its deltas.
func TestEventByUsage(t *testing.T) {
	in := fed(t, incident)
	if got, err := compile(t, `event.data.team == "a" && event.type.startsWith("pod.")`, cel.Filter).Match(t.Context(), in); !got || err != nil {
		t.Errorf("filter: %v %v", got, err)
	}
	if got, err := compile(t, `event.data.team`, cel.Key).Key(t.Context(), in); got != "a" || err != nil {
		t.Errorf("key: %q %v", got, err)
	}
	got, err := compile(t, `event({"n": event.data.count + 1}).withType(event.type + ".seen")`, cel.Emit).Emit(t.Context(), in)
	if err != nil || len(got) != 1 || string(got[0].Data) != `{"n":4}` || got[0].Type != "pod.broken.seen" {
		t.Errorf("emit: %v %v", got, err)
	}
	other := fed(t, `{"team": "b"}`).Delta
	in.Group = []*event.Delta{other, in.Delta}
	got, err = compile(t, `{"teams": events.map(e, e.data.team), "last": event.data.team}`, cel.Emit).Emit(t.Context(), in)
	if err != nil || len(got) != 1 || string(got[0].Data) != `{"last":"a","teams":["b","a"]}` {
		t.Errorf("emit of a group: %s %v", got[0].Data, err)
	}
	if p := compile(t, `object.spec.nodeName == "event" && [1].exists(event, event == 1)`, cel.Filter); p.Uses("event") {
		t.Error("it refers to no event")
	}
	use, ok := compile(t, "object.metadata.name == 'x' &&\n  event.type == 'y'", cel.Filter).UseOf("event")
	if want := (cel.Use{Line: 2, Column: 2}); !ok || use != want {
		t.Errorf("it is used at %v %v, want %v", use, ok, want)
	}
}

// Without an event of an upstream route every field of `event` is absent, like a field that the
// data lacks.
func TestNoEvent(t *testing.T) {
	for _, text := range []string{`event.type`, `event.data.team`, `event.data`} {
		if got, err := compile(t, text, cel.Value).Value(t.Context(), updated(t, web, web)); kindOf(err) != "absent" {
			t.Errorf("%s: %s %v, want absent", text, got, err)
		}
	}
	for _, text := range []string{`event.data.team.name`, `event.data[0]`, `event.data.team > 1`} {
		if got, err := compile(t, text, cel.Value).Value(t.Context(), fed(t, incident)); kindOf(err) == "" {
			t.Errorf("%s: %s", text, got)
		}
	}
	if got, err := compile(t, `event.data.absent == 1`, cel.Filter).Match(t.Context(), fed(t, incident)); got || kindOf(err) != "absent" {
		t.Errorf("%v %v, want absent", got, err)
	}
}

func TestEventMistakes(t *testing.T) {
	for _, test := range []struct {
		usage      cel.Usage
		text, want string
	}{
		{cel.Filter, `event.typ == "x"`, `1:7: deltarouter.Event has no field "typ"; did you mean "type"?`},
		{cel.Filter, `event.kind == "x"`, `1:7: deltarouter.Event has no field "kind"; it has data, id, route, source, subject, time, type`},
		{cel.Filter, `event.type == 1`, `1:12: == does not take (string, int); convert the text to a number with int() or double(), or put the number in quotes`},
		{cel.Filter, `evnt.type == "x"`, `1:1: undeclared reference to 'evnt'; did you mean "event"?`},
		{cel.Index, `event.type`, `1:1: event does not exist here: an index sees only object, source and cluster`},
		{cel.When, `event.type == "x"`, `1:1: event does not exist here: only expressions of downstream routes have it`},
		{cel.Query, `event.type == "x"`, `1:1: event does not exist here: only expressions of downstream routes have it`},
		{cel.Key, `events[0].type`, `1:1: events exists in emit only`},
	} {
		_, err := environment(t).Compile(test.text, test.usage, "pods")
		if err == nil || !strings.HasPrefix(err.Error(), test.want) && !strings.HasPrefix(test.want, err.Error()) {
			t.Errorf("%s\n got %v\nwant %s", test.text, err, test.want)
		}
	}
}

// An evaluation ends at its limit for data of an event of any size and kind.
func TestEventOfHostileSize(t *testing.T) {
	long := `{"list": [` + strings.Repeat(`{"a": 1},`, 1<<20) + `{"a": 2}], "last": true}`
	in := fed(t, long)
	if got, err := compile(t, `event.type == "pod.broken" && event.data.last`, cel.Filter).Match(t.Context(), in); !got || err != nil {
		t.Errorf("a field behind 9 MiB: %v %v", got, err)
	}
	for _, text := range []string{
		`event.data.list.exists(x, x.a == 3)`, `event.data.list.exists(x, event.data.last && x.a == 3)`,
		strings.Repeat(`event.data.last && `, 20) + `event.data.last`,
	} {
		if got, err := compile(t, text, cel.Filter).Match(t.Context(), in); kindOf(err) != "cost" {
			t.Errorf("%s: %v %v, want an end at the limit", text, got, err)
		}
	}
	deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
	if got, err := compile(t, `event.data.a.a.a == 1`, cel.Filter).Match(t.Context(), fed(t, deep)); got || kindOf(err) == "cost" {
		t.Errorf("%v %v", got, err)
	}
	huge := `{"n": 1` + strings.Repeat("0", 400) + `, "u": ` + strconv.FormatUint(math.MaxUint64, 10) + `}`
	if got, err := compile(t, `event.data.n > 1.0 && event.data.u > 1u`, cel.Filter).Match(t.Context(), fed(t, huge)); !got || err != nil {
		t.Errorf("numbers that are too large: %v %v", got, err)
	}
}

// FuzzEvent: for any data of an event, an expression has a value or an error that does not quote
// the data.
func FuzzEvent(f *testing.F) {
	for _, seed := range []string{incident, `[]`, `""`, ` 1e999`, `{"team":{"team":[]}}`, `{"team":"\ud800"}`} {
		f.Add(seed)
	}
	env := environment(f)
	var programs []*cel.Program
	for _, text := range []string{
		`event.data`, `event`, `event.data.team == "a"`, `event.data.tags.map(x, x)`, `event.data.?deep.k.orValue({})`, `{"a": [event.data]}`,
	} {
		p, err := env.Compile(text, cel.Value, "pods")
		must.Succeed(f, err)
		programs = append(programs, p)
	}
	f.Fuzz(func(t *testing.T, data string) {
		if rawjson.Check(data) != nil {
			return // the data that handlers make is checked before
		}
		in := fed(t, data)
		for _, p := range programs {
			value, err := p.Value(t.Context(), in)
			var failed *cel.EvalError
			switch {
			case err == nil && rawjson.Check(string(value)) != nil:
				t.Fatalf("no JSON: %q", value)
			case err != nil && !errors.As(err, &failed):
				t.Fatalf("%v", err)
			}
		}
	})
}

func TestEventProgram(t *testing.T) {
	e := &event.Event{
		ID: "0a", Type: "io.deltarouter.updated", Source: "/clusters/c/sources/pods", Subject: "default/web-0", Route: "r",
		Time: time.Date(2026, 3, 1, 15, 4, 5, 0, time.UTC),
		Data: []byte("{\"big\":9007199254740993,\"a\":[1.0,\n\"<é>\"],\"s\":\"x\\\"y\"}"),
	}
	for _, tt := range []struct{ text, want string }{
		{`event.data`, `{"big":9007199254740993,"a":[1.0,"<é>"],"s":"x\"y"}`},
		{`event.data.a`, `[1.0,"<é>"]`},
		{`{"text": event.subject + " " + event.type + " " + event.id}`, `{"text":"default/web-0 io.deltarouter.updated 0a"}`},
		{`event.data.s`, `"x\"y"`},
		{`{"key": secrets.key, "at": event.time}`, `{"at":"2026-03-01T15:04:05Z","key":"k"}`},
		{`event.?data.?none`, `null`},
		{`[event.data.big + 1]`, `[9007199254740994]`},
		{`event.data.a.map(x, [x])`, `[[1],["<é>"]]`},
	} {
		p, err := cel.CompileEvent(tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		got, err := p.Eval(t.Context(), e, map[string]string{"key": "k"})
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.text, got, err, tt.want)
		}
	}
	for _, text := range []string{"event.", "object.metadata.name", `lookup("pods.name", "x")`, "op", "events.data"} {
		if _, err := cel.CompileEvent(text); len(cel.CompileErrors(err)) == 0 {
			t.Errorf("%s compiles: %v", text, err)
		}
	}
	for text, class := range map[string]error{"event.data.none": cel.ErrAbsent, "secrets.none": cel.ErrAbsent, "event.data.s + 1": nil} {
		p, err := cel.CompileEvent(text)
		must.Succeed(t, err)
		if _, err = p.Eval(t.Context(), e, nil); err == nil || class != nil && !errors.Is(err, class) || strings.Contains(err.Error(), `x"y`) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
