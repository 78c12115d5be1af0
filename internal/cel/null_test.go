package cel_test

import (
	"errors"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestNull: null in a field, or at a key of a map, is an absent one in every operator, whether the
// schema of the source is known (pods) or not (widgets).
func TestNull(t *testing.T) {
	const before = `{"metadata": {"name": "a", "annotations": {"b": "1"}}, "spec": {"hostname": null, "containers": [{"name": "c", "image": "i"}]}}`
	const after = `{"metadata": {"name": "a", "labels": null, "annotations": {"n": null, "b": "1"}},
		"spec": {"nodeName": null, "containers": [{"name": "c", "image": null}]}}`
	env := typedEnv(t, nil)
	for text, want := range map[string]string{
		`has(object.spec.nodeName) || has(object.metadata.labels)`:                           "false",
		`has(object.metadata.annotations.n) || has(object.metadata.labels.n)`:                "absent",
		`"n" in object.metadata.annotations`:                                                 "false",
		`object.spec.?nodeName.hasValue() || object.metadata.annotations[?"n"].hasValue()`:   "false",
		`object.spec.?nodeName.orValue("none") == "none"`:                                    "true",
		`object.metadata.?labels.n.orValue("none") == "none"`:                                "true",
		`object.metadata.annotations[?"n"].orValue("none") == "none"`:                        "true",
		`object.spec.nodeName == ""`:                                                         "absent",
		`object.spec.nodeName != "x"`:                                                        "absent",
		`dyn(object.spec).nodeName == null`:                                                  "absent",
		`object.metadata.annotations["n"] == "1"`:                                            "absent",
		`object.metadata.annotations.size() == 1`:                                            "true",
		`object.metadata.annotations == {"b": "1"}`:                                          "true",
		`object.metadata.annotations == oldObject.metadata.annotations`:                      "true",
		`dyn(object.metadata.annotations) == dyn(oldObject.metadata.annotations)`:            "true",
		`object.metadata.annotations.all(k, k == "b")`:                                       "true",
		`object.metadata.annotations.transformList(k, v, v) == ["1"]`:                        "true",
		`object.spec.containers.exists(c, has(c.image))`:                                     "false",
		`object.spec.containers == oldObject.spec.containers`:                                "false",
		`oldObject.spec.containers == oldObject.spec.containers`:                             "true",
		`changed("metadata.annotations") || changed("metadata.annotations[*]")`:              "false",
		`changed("metadata.labels") || changed("spec.nodeName") || changed("spec.hostname")`: "false",
		`changed("spec.containers[*].image") && changed("spec.containers[0].image")`:         "true",
		`diff(oldObject, object).map(d, d.path).size() == 1`:                                 "true",
	} {
		for _, source := range []string{"pods", "widgets"} {
			p, err := env.Compile(text, cel.Filter, source)
			if err != nil {
				t.Errorf("%s: %s: %v", source, text, err)
				continue
			}
			ok, err := p.Match(t.Context(), typedInput(t, source, before, after))
			got := map[bool]string{true: "true", false: "false"}[ok]
			switch {
			case errors.Is(err, cel.ErrAbsent):
				got = "absent"
			case err != nil:
				got = err.Error()
			}
			if got != want {
				t.Errorf("%s: %s: %s, want %s", source, text, got, want)
			}
		}
	}
	for _, source := range []string{"pods", "widgets"} {
		in := typedInput(t, source, "", after)
		p, err := env.Compile(`changed("spec.nodeName") || changed("metadata.annotations.n") || changed("spec.containers[*].image")`, cel.Filter, source)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.Match(t.Context(), in); got || err != nil || in.Delta.Op != event.Added {
			t.Errorf("%s: a field with null exists: %v %v", source, got, err)
		}
	}
}
