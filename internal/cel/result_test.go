package cel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
)

func TestKeys(t *testing.T) {
	for text, want := range map[string][]string{
		`object.spec.nodeName`:                            {"n1"},
		`object.metadata.annotations["users"].split(",")`: {"ernie", "bert"},
		`object.metadata.labels.map(k, k)`:                {"app", "a.b/c"},
		`""`:                                              nil,
		`[]`:                                              nil,
		`["a", "", "b"]`:                                  {"a", "b"},
		`[object.spec.?nothing, object.spec.?nodeName]`:                        {"n1"},
		`object.spec.?absent`:                                                  nil,
		`object.spec.?nodeName`:                                                {"n1"},
		`source + cluster`:                                                     {"podsprod"},
		`object.metadata.namespace + "/" + object.spec.nodeName`:               {"default/n1"},
		`object.metadata.labels`:                                               {"app", "a.b/c"},
		`object.metadata.labels.transformList(k, v, k + "=" + v)`:              {"app=web", "a.b/c=x"},
		`[object.spec.replicas, "x"].map(e, dyn(e))`:                           {"3", "x"},
		`object.spec.big`:                                                      {"9007199254740993"},
		`[object.spec.huge, object.spec.whole, object.spec.ratio, -0.0, 1e30]`: {"18446744073709551615", "2", "0.5", "0", "1e+30"},
		`{2.0: ""}`:                                          {"2"},
		`[1 == 1, false]`:                                    {"true", "false"},
		`object.spec.containers[1].args`:                     {"-v"},
		`statuses.map(s, s.state.waiting.reason)`:            {"CrashLoopBackOff"},
		`object.spec.containers.map(c, "args" in c, c.name)`: {"b"},
	} {
		got, err := compile(t, text, cel.Index).Keys(object(t, web))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		`object.spec.absent`:     "absent",
		`object.spec.containers`: "type",
		`[0.0 / 0.0]`:            "type",
		`dyn([["a"]])`:           "type",
	} {
		if got, err := compile(t, text, cel.Index).Keys(object(t, web)); kindOf(err) != want || got != nil {
			t.Errorf("%s: %q %v, want %s", text, got, err, want)
		}
	}
	if _, err := compile(t, `lookup("byNode", "x") == []`, cel.Filter).Match(t.Context(), cel.Input{
		Delta: &event.Delta{Op: event.Added, New: object(t, web)},
	}); !errors.Is(err, cel.ErrNoCache) {
		t.Error("lookup without a cache:", err)
	}
	if _, err := compile(t, `object.spec.nodeName`, cel.Index).Keys(nil); err == nil {
		t.Error("keys of no object")
	}
}

// TestLookupOfNumbers: a value finds objects that were indexed under an equal one.
func TestLookupOfNumbers(t *testing.T) {
	in := updated(t, web, web)
	in.Cache = cache{"pods/byNode/2": {in.Delta.New}, "pods/byNode/true": {in.Delta.New}}
	for _, text := range []string{`object.spec.whole`, `2`, `2u`, `2.0`, `"2"`, `true`} {
		if ok, err := compile(t, `count("byNode", `+text+`) == 1`, cel.Filter).Match(t.Context(), in); !ok || err != nil {
			t.Error(text, ok, err)
		}
	}
}

func TestKey(t *testing.T) {
	in := updated(t, web, web)
	for text, want := range map[string]string{
		`object.spec.nodeName`: "n1",
		`object.spec.replicas`: "3",
		`object.spec.big`:      "9007199254740993",
		`object.spec.huge`:     "18446744073709551615",
		`-5`:                   "-5",
		`op == "updated"`:      "true",
		`object.metadata.namespace + "/" + object.metadata.name`: "default/web-0",
	} {
		if got, err := compile(t, text, cel.Key).Key(t.Context(), in); got != want || err != nil {
			t.Errorf("%s: %q %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		`object.spec.absent`: "absent", `object.spec.nothing`: "absent", `object.spec.ratio`: "type", `object.spec`: "type",
	} {
		if _, err := compile(t, text, cel.Key).Key(t.Context(), in); kindOf(err) != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestEmit(t *testing.T) {
	in := updated(t, web, web)
	for text, want := range map[string][]string{
		`{"z": 1, "a": true, "m": null, "b": 1.5, "c": 2.0}`: {`{"a":true,"b":1.5,"c":2,"m":null,"z":1}`},
		`[{"n": 1}, {"n": object.spec.big}]`:                 {`{"n":1}`, `{"n":9007199254740993}`},
		`{"huge": object.spec.huge, "labels": object.metadata.labels}`: {
			`{"huge":18446744073709551615,"labels":{"app": "web", "a.b/c": "x"}}`,
		},
		`object.spec.containers`:           {`{"name": "a", "image": "i:1"}`, `{"name": "b", "image": "i:2", "args": ["-v"]}`},
		`object.metadata.labels`:           {`{"app": "web", "a.b/c": "x"}`},
		`[]`:                               {},
		`object.spec.?nothing`:             nil,
		`object.spec.?absent`:              nil,
		`{"s": "q\"b\\n\nu<\u00e9\u0001"}`: {`{"s":"q\"b\\n\nu<é\u0001"}`},
		`{"b": b"ab", "t": timestamp("2026-01-02T03:04:05.5Z"), "d": duration("90s")}`: {`{"b":"YWI=","d":"90s","t":"2026-01-02T03:04:05.5Z"}`},
		`{1: "int", true: "bool"}`:                                       {`{"1":"int","true":"bool"}`},
		`{?"gone": object.spec.?absent, ?"here": object.spec.?nodeName}`: {`{"here":"n1"}`},
		`{"opt": object.spec.?absent, "list": [object.spec.?nodeName]}`:  {`{"list":["n1"],"opt":null}`},
		`object.spec.containers.map(c, {"name": c.name, "pod": object.metadata.name})`: {
			`{"name":"a","pod":"web-0"}`, `{"name":"b","pod":"web-0"}`,
		},
		`object.metadata.labels.transformMap(k, v, v + "!")`:                     {`{"a.b/c":"x!","app":"web!"}`},
		`{"crashing": crashing, "args": object.spec.containers[1].args + ["x"]}`: {`{"args":["-v","x"],"crashing":true}`},

		`event({"a": 1})`: {`{"a":1}`},
		`event(object.metadata.labels).withSubject("").withType("t")`:                                  {`t||{"app": "web", "a.b/c": "x"}`},
		`event({"a": 1}).withType("pager." + op).withSubject(object.spec.nodeName)`:                    {`pager.updated|n1|{"a":1}`},
		`[event({"a": 1}).withSubject("s").withSubject("u"), {"b": 2}, event({"c": object.spec.big})]`: {`|u|{"a":1}`, `{"b":2}`, `{"c":9007199254740993}`},
		`object.spec.containers.map(c, event({"c": c.image}).withType(c.name))`:                        {`a||{"c":"i:1"}`, `b||{"c":"i:2"}`},
		`op == "added" ? [event({"a": 1})] : []`:                                                       {},
		`{"suppressed": suppressed, "names": objects.map(o, o.metadata.name)}`:                         {`{"names":["web-0"],"suppressed":0}`},
	} {
		events, err := compile(t, text, cel.Emit).Emit(t.Context(), in)
		var got []string
		for _, e := range events {
			line := string(e.Data)
			if e.Type != "" || e.Subject != "" {
				line = e.Type + "|" + e.Subject + "|" + line
			}
			got = append(got, line)
			if !json.Valid(e.Data) || bytes.ContainsRune(e.Data, '\n') {
				t.Errorf("%s: not JSON in one line: %s", text, e.Data)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q %v\nwant %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"a": object.spec.absent}`: "absent", `{"a": quantity("1")}`: "type", `{"a": 1.0 / 0.0}`: "type", `object.spec.replicas`: "type",
		`[dyn(1), {}]`: "type", `event(dyn(1))`: "type", `{"a": event({})}`: "type", `event({"a": object.spec.absent})`: "absent",
		`event({}).withType(dyn(1))`: "type", `{1.5: 1}.transformMap(k, v, v)`: "type", `{"a": type(1)}`: "type",
	} {
		p, err := environment(t).Compile(text, cel.Emit, "pods")
		if err != nil {
			continue
		}
		if got, err := p.Emit(t.Context(), in); kindOf(err) != want || got != nil {
			t.Errorf("%s: %q %v, want %s", text, got, err, want)
		}
	}
}

// An emit of a group sees the objects of all its deltas, and how many the limit held back before.
func TestEmitGroup(t *testing.T) {
	in := updated(t, web, web)
	last := *in.Delta
	last.Suppressed = 7
	gone := &event.Delta{Source: "pods", Op: event.Deleted, Old: in.Delta.New}
	in.Delta, in.Group = &last, []*event.Delta{gone, in.Delta, &last}
	text := `{"n": size(objects), "nodes": objects.map(o, o.spec.nodeName), "last": objects[2] == object, "held": suppressed + size(objects)}`
	events, err := compile(t, text, cel.Emit).Emit(t.Context(), in)
	if want := `{"held":10,"last":true,"n":3,"nodes":["n1","n1","n1"]}`; err != nil || len(events) != 1 || string(events[0].Data) != want {
		t.Errorf("got %v %v, want %s", events, err, want)
	}
}

// router eval shows the parts of an event.
func TestValueOfEvent(t *testing.T) {
	for text, want := range map[string]string{
		`event({"a": 1}).withType("t")`:                `{"data":{"a":1},"type":"t"}`,
		`[event({"a": 1}).withSubject("s"), {"b": 2}]`: `[{"data":{"a":1},"subject":"s"},{"b":2}]`,
	} {
		got, err := compile(t, text, cel.Value).Value(t.Context(), updated(t, web, web))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s %v, want %s", text, got, err, want)
		}
	}
}

// One event must be one line, however the object was written.
func TestEmitCompactsWhatHasLineBreaks(t *testing.T) {
	in := updated(t, web, web)
	events, err := compile(t, `{"spec": object.spec}`, cel.Emit).Emit(t.Context(), in)
	if err != nil || len(events) != 1 || bytes.ContainsRune(events[0].Data, '\n') || !bytes.Contains(events[0].Data, []byte(`"big":9007199254740993`)) {
		t.Errorf("%s %v", events, err)
	}
}

func TestEmitIsBounded(t *testing.T) {
	text := `{"metadata": {"name": "x"}, "data": "` + strings.Repeat("x", 1<<20) + `"}`
	in := updated(t, text, text)
	objects := make([]*event.Object, 20)
	for i := range objects {
		objects[i] = in.Delta.New
	}
	in.Cache = cache{"pods//": objects}
	for _, text := range []string{`{"all": list("pods")}`, `list("pods").map(p, {"p": p})`, `{"all": list("pods").map(p, p.data)}`} {
		if got, err := compile(t, text, cel.Emit).Emit(t.Context(), in); kindOf(err) != "cost" || got != nil {
			t.Errorf("%s: %d events, %v", text, len(got), err)
		}
	}
}

func ExampleProgram_Match() {
	env, _ := cel.NewEnv(cel.EnvConfig{Cluster: "prod"})
	program, _ := env.Compile(`object.status.phase == "Failed" && changed("status.phase")`, cel.Filter, "pods")
	resource := &event.Resource{Cluster: "prod", Kind: "Pod"}
	before, _ := event.ParseObject(resource, `{"metadata": {"name": "web"}, "status": {"phase": "Running"}}`)
	after, _ := event.ParseObject(resource, `{"metadata": {"name": "web"}, "status": {"phase": "Failed"}}`)
	fmt.Println(program.Match(context.Background(), cel.Input{Delta: &event.Delta{Op: event.Updated, Old: before, New: after}}))
	// Output: true <nil>
}
