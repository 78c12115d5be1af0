package cel_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/equality"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestConjuncts: the conjuncts of a filter, read in web updated from web: value or reading, the
// values to compare with, * for a rest, ~ for an equality behind another kind of conjunct.
func TestConjuncts(t *testing.T) {
	tests := map[string]string{
		`object.metadata.namespace == "a"`:                                   `default=a`,
		`"a" == object.metadata.namespace`:                                   `default=a`,
		`object.spec.nodeName in ["n2", "n1", "n2"]`:                         `n1=n1|n2`,
		`object.metadata.labels["app"] == "web"`:                             `web=web`,
		`object.metadata.labels.app == "web"`:                                `web=web`,
		`object.metadata.labels["a.b/c"] == "x" && op == "updated"`:          `x=x updated=updated`,
		`oldObject.spec.nodeName == "n1" && source in ["pods"]`:              `n1=n1 pods=pods`,
		`object.spec.replicas == 3 && object.spec.big == 1`:                  `3=3 9007199254740993=1`,
		`object.spec.ratio == 3 || true`:                                     `*`,
		`object.spec.whole == 2`:                                             `unclear=2`,
		`object.metadata.labels.zero == 0`:                                   `missing=0`,
		`object.spec.huge == 2`:                                              `unclear=2`,
		`object.spec.nodeName == 2`:                                          `unclear=2`,
		`object.spec.nothing == "x"`:                                         `unclear=x`,
		`object.spec.nodeName.x == "x"`:                                      `unclear=x`,
		`object.spec.missing == "x"`:                                         `missing=x`,
		`object.missing.too == "x"`:                                          `missing=x`,
		`has(object.spec.missing)`:                                           `false=true`,
		`!has(object.spec.nodeName)`:                                         `true=false`,
		`has(object.spec.nothing)`:                                           `unclear=true`,
		`has(object.missing.too)`:                                            `missing=true`,
		`object.spec.replicas && !object.spec.nodeName`:                      `unclear=true unclear=false`,
		`object.?spec.nodeName.orValue("") == "n1"`:                          `n1=n1`,
		`object.?missing.too.orValue("") in ["", "x"]`:                       `=|x`,
		`object.missing.?too.orValue("") == ""`:                              `missing=`,
		`object[?"spec"].missing.orValue("no") == "yes"`:                     `no=yes`,
		`object.?spec.nodeName.orValue("") == 1`:                             `*`,
		`object.?spec.nodeName == optional.of("n1")`:                         `*`,
		`object.metadata.name.startsWith("web") && object.spec.missing == 1`: `missing=~1 *`,
		`object.spec.containers[0].name == "a"`:                              `*`,
		`object.metadata.__namespace__ == "a"`:                               `*`,
		`object.metadata.labels["__x__"] == "a"`:                             `missing=a`,
		`object.spec.nodeName in []`:                                         `*`,
		`object.spec.nodeName in ["a", 1]`:                                   `*`,
		`"web" in object.metadata.labels`:                                    `*`,
		`object.spec.nodeName != "n1"`:                                       `*`,
		`object.spec.ratio == 0.5`:                                           `*`,
		`cluster == "prod"`:                                                  `*`,
		`"a" == "a"`:                                                         `*`,
		`changed("spec") && crashing`:                                        `* `,
		`crashing && (object.spec.nodeName == "n1" && same.size() > 0)`:      `n1=~n1 *`,
		`[object].exists(object, object.spec.nodeName == "n1")`:              `*`,
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			p := compile(t, text, cel.Filter)
			equalities, rest := p.Conjuncts()
			if got := describe(equalities, rest, updated(t, web, web).Delta); got != strings.TrimSpace(want) {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func describe(equalities []equality.Equality, rest bool, d *event.Delta) string {
	var parts []string
	for i := range equalities {
		value, r := equalities[i].Field.Read(d)
		switch r {
		case equality.Unclear:
			value = "unclear"
		case equality.Missing:
			value = "missing"
		case equality.Known:
		}
		wants := strings.Join(equalities[i].Values, "|")
		for _, v := range equalities[i].Values {
			if !equalities[i].Holds(v) || equalities[i].Holds(v+"!") {
				wants = "wrong"
			}
		}
		parts = append(parts, value+"="+map[bool]string{false: "~"}[equalities[i].Leading]+wants)
	}
	if rest {
		parts = append(parts, "*")
	}
	return strings.Join(parts, " ")
}

// TestAbsentEquality: the error about a missing field of an equality is the one that the evaluation
// gives, in defines too.
func TestAbsentEquality(t *testing.T) {
	env, err := cel.NewEnv(cel.EnvConfig{Define: map[string]string{"there": "\n  object.spec.gone == 'x'"}})
	must.Succeed(t, err)
	for _, text := range []string{`object.spec.gone == "x"`, "true &&\n object.gone.x in ['a']", `there`} {
		p, err := env.Compile(text, cel.Filter, "pods")
		must.Succeed(t, err)
		equalities, _ := p.Conjuncts()
		_, want := p.Match(t.Context(), updated(t, web, web))
		key, _ := equalities[0].Field.Read(updated(t, web, web).Delta)
		got := equalities[0].Absent(key)
		if !errors.Is(got, cel.ErrAbsent) || got.Error() != want.Error() {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

func TestIdentity(t *testing.T) {
	env := environment(t)
	ids := map[cel.Identity]string{}
	for _, c := range []struct{ text, source string }{{"true", "pods"}, {"true", "nodes"}, {"op == ''", "pods"}} {
		for range 2 {
			p, err := env.Compile(c.text, cel.Filter, c.source)
			must.Succeed(t, err)
			ids[p.Identity()] = fmt.Sprint(c)
		}
	}
	if len(ids) != 3 {
		t.Errorf("got %v", ids)
	}
}
