package cel_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMatch(t *testing.T) {
	in := updated(t, strings.Replace(web, `"phase": "Running"`, `"phase": "Pending"`, 1), web)
	in.Cache = cache{
		"pods/byNode/n1":   {in.Delta.New, in.Delta.Old},
		"nodes/name/3":     {in.Delta.New},
		"nodes//":          {object(t, `{"metadata": {"name": "n1"}, "spec": {"zone": "z"}}`)},
		"nodes/owner/true": {in.Delta.New},
	}
	for text, want := range map[string]string{
		// reading
		`object.metadata.name == "web-0"`:                        "true",
		`object.metadata.labels["a.b/c"] == "x"`:                 "true",
		`object["spec"].containers[1].args[0] == "-v"`:           "true",
		`has(object.spec.nodeName) && !has(object.spec.absent)`:  "true",
		`object.spec.?absent.inner.orValue("d") == "d"`:          "true",
		`object.spec.?nodeName.orValue("d") == "n1"`:             "true",
		`has(object.spec.nothing) || "nothing" in object.spec`:   "false",
		`"app" in object.metadata.labels`:                        "true",
		`"web" in ["db", object.metadata.labels.app]`:            "true",
		`object.metadata.labels == {"a.b/c": "x", "app": "web"}`: "true",
		`{"a.b/c": "x", "app": "web"} == object.metadata.labels`: "true",
		`object.spec.containers == [{"name": "a"}]`:              "false",
		`object == object && object.spec != oldObject.status`:    "true",
		`size(object.spec.containers) == 2`:                      "true",
		// the order of the text
		`object.metadata.labels.map(k, k) == ["app", "a.b/c"]`:             "true",
		`object.metadata.labels.all(k, v, v.size() < 4)`:                   "true",
		`object.spec.containers.map(c, c.name).join("+") == "a+b"`:         "true",
		`(object.spec.containers + [1]).size() == 3`:                       "true",
		`object.metadata.annotations.users.split(",")[1] == "bert"`:        "true",
		`sets.contains(["a", "b"], object.spec.containers.map(c, c.name))`: "true",
		// numbers
		`type(object.spec.replicas) == int && type(object.spec.whole) == double`:      "true",
		`type(object.spec.huge) == uint && object.spec.huge == 18446744073709551615u`: "true",
		`object.spec.big == 9007199254740993 && object.spec.big != 9007199254740992`:  "true",
		`object.spec.whole == 2 && object.spec.replicas > 2.5`:                        "true",
		`object.spec.ratio * 2.0 == 1.0`:                                              "true",
		// the change
		`op == "updated" && source == "pods" && cluster == "prod"`:                "true",
		`oldObject.status.phase == "Pending" && object.status.phase == "Running"`: "true",
		`changed("status.phase") && !changed("spec")`:                             "true",
		// the libraries of Kubernetes
		`quantity("1Gi").isGreaterThan(quantity("1Mi"))`:      "true",
		`ip("10.0.0.1").family() == 4`:                        "true",
		`cidr("10.0.0.0/8").containsIP("10.1.2.3")`:           "true",
		`url("https://a.example/x").getHost() == "a.example"`: "true",
		`"abc".find("b.") == "bc"`:                            "true",
		`semver("1.2.3").major() == 1`:                        "true",
		`[3, 1].sum() == 4 && [1, 2].isSorted()`:              "true",
		`!format.dns1123Label().validate("ok").hasValue()`:    "true",
		// other objects
		`lookup("byNode", object.spec.nodeName).size() == 2`:                               "true",
		`lookup("pods.byNode", "n1").exists(p, p.status.phase == "Pending")`:               "true",
		`lookup("byNode", object.spec.nodeName, 1).map(p, p.metadata.name) == ["web-0"]`:   "true",
		`lookup("pods.byNode", "n1", 5).size() == 2 && lookup("byNode", "other", 1) == []`: "true",
		`lookup("byNode", "n1", object.spec.replicas).size() == 2`:                         "true",
		`lookup("pods.byNode", "other") == []`:                                             "true",
		`count("nodes.name", 3) == 1 && count("nodes.owner", true) == 1`:                   "true",
		`get("nodes", "", object.spec.nodeName).spec.zone == "z"`:                          "true",
		`get("nodes", "", "absent") == null`:                                               "true",
		`list("nodes").map(n, n.metadata.name) == ["n1"]`:                                  "true",
		// define
		`crashing`:                            "true",
		`crashing && statuses.size() == 1`:    "true",
		`same.size() == 2`:                    "true",
		`[1].exists(statuses, statuses == 1)`: "true", // a name that a macro binds hides a define
		// absent fields
		`object.spec.absent == 1`:                            "absent",
		`object.absent.deeper`:                               "absent",
		`object.metadata.name.deeper == "x"`:                 "absent",
		`object.spec.nothing.deeper`:                         "absent",
		`object.spec.nothing == null`:                        "absent",
		`object.spec["nothing"] == null`:                     "absent",
		`object.spec.containers[2].name == "c"`:              "absent",
		`object.spec.containers[-1].name == "c"`:             "absent",
		`object.spec.containers.exists(c, c.args[0] == "?")`: "absent",
		// the other container decides
		`object.spec.containers.exists(c, c.args[0] == "-v")`: "true",
		`object.spec.absent == 1 || op == "updated"`:          "true",
		`object.spec.absent == 1 && op == "updated"`:          "absent",
		`object.spec.absent == 1 && op == "added"`:            "false",
		`object.?absent.value() == 1`:                         "absent",
		`{"a": 1}[object.metadata.name] == 1`:                 "absent",
		`get("nodes", "", "absent").spec.zone == "z"`:         "absent",
		`lookup("byNode", object.spec.nothing).size() == 0`:   "absent",
		// wrong types and values
		`object.metadata.name > 1`:       "type",
		`object.metadata.name + 1 == 2`:  "type",
		`object.spec`:                    "type",
		`object.spec.nodeName`:           "type",
		`int(object.metadata.name) == 1`: "type",
		`timestamp(object.metadata.name) > timestamp("2020-01-01T00:00:00Z")`: "type",
		`object.spec.containers["a"] == 1`:                                    "type",
		`object.spec.replicas / (object.spec.replicas - 3) == 1`:              "type",
		`"x".matches(object.metadata.annotations.users + "(")`:                "type",
		`lookup("byNode", "n1", 0).size() == 0`:                               "type",
		`lookup("byNode", "n1", object.metadata.name).size() == 0`:            "type",
		`lookup("byNode", object.spec).size() == 0`:                           "type",
	} {
		p := compile(t, text, cel.Filter)
		got, err := p.Match(t.Context(), in)
		result := fmt.Sprint(got)
		if err != nil {
			result = kindOf(err)
		}
		if result != want {
			t.Errorf("%s: %s (%v), want %s", text, result, err, want)
		}
	}
}

func TestOldObjectIsNullWhereThereIsNone(t *testing.T) {
	p := compile(t, `oldObject == null && object.metadata.name == "web-0"`, cel.Filter)
	in := cel.Input{Delta: &event.Delta{Op: event.Added, New: object(t, web)}}
	if ok, err := p.Match(t.Context(), in); !ok || err != nil {
		t.Error(ok, err)
	}
	p = compile(t, `object.metadata.name == "web-0" && oldObject == object && op == "deleted"`, cel.Filter)
	in = cel.Input{Delta: &event.Delta{Op: event.Deleted, Old: object(t, web)}}
	if ok, err := p.Match(t.Context(), in); !ok || err != nil {
		t.Error("a deleted object's last state:", ok, err)
	}
}

func TestChanged(t *testing.T) {
	const before = `{"metadata": {"name": "x"}, "a": {"k": 1, "l": [1, {"m": "v"}]}, "s": "\u00e9", "z": null, "y": null, "n": {"a": null}, "e": [null], "w": {"x": 1, "y": 2}, "gone": 1}`
	const after = `{"w":{"y":2.0,"x":1},"s":"é","a":{"l":[1,{"m":"w"}],"k":1.0},"metadata":{"name":"x"},"new":{"a.b/c":1},"y":1,"n":{"b":null},"e":[]}`
	del, sync := event.Deleted, event.Sync
	for _, test := range []struct {
		op   event.Op
		path string
		want bool
	}{
		{event.Updated, "a.k", false}, // 1 and 1.0
		{event.Updated, "w", false},   // the order of keys, white space
		{event.Updated, "s", false},   // the way it is escaped
		{event.Updated, "a", true},
		{event.Updated, "a.l", true},
		{event.Updated, "a.l[0]", false},
		{event.Updated, "a.l[1].m", true},
		{event.Updated, "a.l[2]", false},
		{event.Updated, "z", false}, // null before, absent now
		{event.Updated, "y", true},  // null before
		{event.Updated, "n", false},
		{event.Updated, "n.a", false},
		{event.Updated, "n[*]", false},
		{event.Updated, "e", true}, // an element is not a field
		{event.Updated, "e[0]", true},
		{event.Added, "y", true},
		{event.Added, "n.b", false},
		{event.Updated, "gone", true},
		{event.Updated, "never.there", false},
		{event.Updated, `new["a.b/c"]`, true},
		{event.Updated, `new['a.b/c']`, true},
		{event.Updated, `new[a.b/c]`, true},
		{event.Updated, `["new"]`, true},
		{event.Added, "a.l", true},
		{event.Added, "gone", false},
		{del, "a", false},
		{event.Deselected, "a", false},
		{sync, "a", false},
	} {
		p := compile(t, fmt.Sprintf("changed(%q)", test.path), cel.Filter)
		in := updated(t, before, after)
		in.Delta.Op = test.op
		if test.op == del || test.op == event.Deselected {
			in.Delta.New = nil
		}
		got, err := p.Match(t.Context(), in)
		if got != test.want || err != nil {
			t.Errorf("%s %s: %v %v, want %v", test.op, test.path, got, err, test.want)
		}
	}
	in := updated(t, before, after)
	in.Delta.Old = nil // the source keeps identities only
	if ok, err := compile(t, `changed("a.k")`, cel.Filter).Match(t.Context(), in); !ok || err != nil {
		t.Error("without an old state a path that exists has changed:", ok, err)
	}
}

// Errors end up in logs, and the object may be a Secret.
func TestErrorsQuoteNothingOfTheObject(t *testing.T) {
	in := updated(t, web, strings.ReplaceAll(web, "web-0", "hunter2"))
	name := "object.metadata.name"
	for _, text := range []string{
		`int(` + name + `) == 1`, `timestamp(` + name + `) == null`, `duration(` + name + `) == null`, `quantity(` + name + `) == null`,
		`ip(` + name + `) == null`, `url(` + name + `) == null`, `semver(` + name + `) == null`, `{"a": 1}[` + name + `] == 1`,
		`object[` + name + `] == 1`, `object.spec[` + name + `] == 1`, `[1][` + name + `] == 1`, `object.spec.containers[` + name + `] == 1`,
		`"x".matches(` + name + ` + "(")`, name + ` + 1 == ""`, `object.metadata + 1 == 2`, `lookup("byNode", object.metadata) == []`,
		`"%d".format([` + name + `]) == ""`, `bool(` + name + `)`, `double(` + name + `) == 1.0`, `object.metadata`, name,
		`cidr(` + name + `) == null`, `dyn(object).size(1)`, `type(object.metadata)(1)`, `int(object.metadata) == 1`, `[object][?"a"] == 1`,
		`{object.metadata: 1} == {}`, `{?"a": ` + name + `} == {}`, name + `.substring(100) == ""`, name + `.charAt(100) == ""`,
		`object.metadata.exists(k, k == k / 2)`, `optional.of(object).or(` + name + `) == 1`, `uint(` + name + `) == 1u`,
	} {
		p, err := environment(t).Compile(text, cel.Filter, "pods")
		if err != nil {
			continue // refused before it sees anything
		}
		if _, err = p.Match(t.Context(), in); err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	env, err := cel.NewEnv(cel.EnvConfig{Define: map[string]string{
		"second": "1 == 1 &&\n  object.spec.lost == 1",
		"first":  "second || op == 'added'",
		"starts": "timestamp(object.metadata.name) < timestamp('2030-01-01T00:00:00Z')",
	}})
	must.Succeed(t, err)
	in := updated(t, web, web)
	for text, want := range map[string]string{
		"object.spec.lost == 1":                           `1:12: no such key: "lost"`,
		"1 == 1 &&\n   object.spec.containers[7] == null": `2:26: index out of bounds`,
		"object.metadata.name.startsWith(object.spec)":    `1:32: no such overload: an operator or function does not take a value of this type`,
		"first":                             `define second: 2:14: no such key: "lost"`,
		"changed('spec') || first":          `define second: 2:14: no such key: "lost"`,
		"object[object.metadata.name] == 1": `1:7: no such key`,
		"object.spec.replicas / 0 == 1":     `1:22: division by zero`,
		"object.spec":                       `the result is of type map`,
		"int(object.metadata.name) > 3":     `1:4: object.metadata.name is not what int() takes`,
		"starts":                            `define starts: 1:10: object.metadata.name is not what timestamp() takes`,
		"['1h', object.metadata.name].exists(d, duration(d) > duration('2h'))": `1:48: d is not what duration() takes`,
	} {
		p, err := env.Compile(text, cel.Filter, "")
		must.Succeed(t, err)
		if _, err := p.Match(t.Context(), in); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestLimits(t *testing.T) {
	// Guarantee: cost-bounded
	long := `{"metadata": {"name": "x"}, "n": [` + strings.TrimSuffix(strings.Repeat("1,", 1500), ",") + `], "m": {` +
		strings.Repeat(`"k": "`+strings.Repeat("v", 2000)+`", `, 1)
	for i := range 1000 {
		long += fmt.Sprintf(`"k%d": "%s", `, i, strings.Repeat("v", 1000))
	}
	long += `"last": "1"}}`
	in := updated(t, long, long)
	in.Cache = cache{"pods//": make([]*event.Object, 1_100_000)}
	for text, want := range map[string]string{
		`object.n.all(a, object.n.all(b, a == b))`:                       "cost", // steps
		`object.n.all(a, object.n.all(b, object.m.last == "1"))`:         "cost", // bytes read
		`list("pods").size() == 1`:                                       "cost", // results
		`object.n.exists(a, a == 2) || object.m.all(k, v, v.size() > 0)`: "true",
	} {
		ok, err := compile(t, text, cel.Filter).Match(t.Context(), in)
		if got := kindOf(err); got != want && fmt.Sprint(ok) != want {
			t.Errorf("%s: %v %v", text, ok, err)
		}
	}
	big := strings.Repeat("b", 1<<20)
	big = `{"metadata": {"name": "x"}, "count": 2000000000, "a": "` + big + `", "l": [` + strings.TrimSuffix(strings.Repeat(`"",`, 1000), ",") + `]}`
	for text, want := range map[string]string{
		`object.a.replace("", object.a) == ""`:              "cost",
		`object.a.replace("b", object.a, 20) == ""`:         "cost",
		`object.l.join(object.a) == ""`:                     "cost",
		`object.a.replace("b", "c", 1).startsWith("cb")`:    "true",
		`object.a.replace("b", "") + object.l.join() == ""`: "true",
		`object.a.replace("b", object.l) == ""`:             "type",
		`[object.a, object.l].join() == ""`:                 "type",
		`lists.range(object.count).size() == 1`:             "cost",
	} {
		ok, err := compile(t, text, cel.Filter).Match(t.Context(), updated(t, big, big))
		if got := kindOf(err); got != want && fmt.Sprint(ok) != want {
			t.Errorf("%s: %v %v", text, ok, err)
		}
	}
	// an index has a tenth
	text := `object.n.filter(a, object.n.exists(b, a == b + 100)).map(a, "x")`
	if _, err := compile(t, text, cel.Index).Keys(in.Delta.New); kindOf(err) != "cost" {
		t.Error("index:", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := compile(t, `object.n.all(a, a == 1)`, cel.Filter).Match(ctx, in); kindOf(err) != "interrupted" {
		t.Error("ended context:", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	const text = `crashing && changed("status") && same.size() == 0 && object.spec.containers.exists(c, c.name == "b")`
	env := environment(t)
	p, err := env.Compile(text, cel.Filter, "pods")
	must.Succeed(t, err)
	wrong := compile(t, `object.metadata.name + 1 == 2`, cel.Filter)
	var wg sync.WaitGroup
	for i := range 8 {
		after := strings.ReplaceAll(web, "web-0", fmt.Sprint("web-", i))
		in := updated(t, strings.Replace(after, "Running", "Pending", 1), after)
		wg.Go(func() {
			for range 100 {
				if ok, err := p.Match(t.Context(), in); !ok || err != nil {
					t.Error(ok, err)
					return
				}
				if _, err := wrong.Match(t.Context(), in); kindOf(err) != "type" {
					t.Error(err)
				}
			}
			if _, err := env.Compile(text, cel.Filter, "pods"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
