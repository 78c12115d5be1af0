package cel_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestDocumentedExamples evaluates every example of docs/CEL.md, with types and without, and
// compares the result with the documented one.
func TestDocumentedExamples(t *testing.T) {
	text, err := os.ReadFile("../../docs/CEL.md")
	must.Succeed(t, err)
	objects := fenced(string(text), "json")
	if len(objects) != 2 {
		t.Fatalf("there are %d objects", len(objects))
	}
	var examples [][]string
	for _, block := range fenced(string(text), "cel") {
		for line := range strings.Lines(block) {
			example := regexp.MustCompile(`^(.*\S) +// (.+)\n$`).FindStringSubmatch(line)
			if example == nil {
				t.Fatalf("%q has no value", line)
			}
			examples = append(examples, example[1:])
		}
	}
	if len(examples) < 35 {
		t.Errorf("there are only %d examples", len(examples))
	}
	eachMode(t, func(t *testing.T, env *cel.Env, _ bool) {
		in := libraryInput(t, event.Updated, objects[1], objects[0])
		in.Cache = cache{
			"nodes//": {object(t, `{"metadata": {"name": "n1"}, "spec": {"unschedulable": true}}`)},
			"replicasets//": {object(t, `{"metadata": {"name": "web-5d", "namespace": "shop", "uid": "u2",
				"ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u3", "controller": true}]}}`)},
			"deployments//":  {object(t, deployment)},
			"pods/byNode/n1": {in.Delta.New},
		}
		for _, example := range examples {
			if got := valueOf(t, env, example[0], in); got != example[1] {
				t.Errorf("%s\n got %s\nwant %s", example[0], got, example[1])
			}
		}
	})
}

// fenced returns the blocks of a language.
func fenced(text, language string) (blocks []string) {
	for _, found := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, found[1])
	}
	return blocks
}

// TestFunctionsAreDocumented: each of our functions has an example.
func TestFunctionsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/CEL.md")
	must.Succeed(t, err)
	examples := strings.Join(fenced(string(text), "cel"), "\n")
	for _, name := range []string{"changed", "diff", "managers", "controller", "sha256", "lookup", "count", "get", "list"} {
		if !strings.Contains(examples, name+"(") {
			t.Errorf("%s has no example", name)
		}
	}
}

// TestKubernetesLibraries: each library that the API server has is there, in the newest version
// that this one was built with.
func TestKubernetesLibraries(t *testing.T) {
	for library, examples := range map[string][]string{
		"quantity": {
			`quantity("1Ki").add(quantity("1Ki")).compareTo(quantity("2Ki")) == 0`, `isQuantity("1.5Gi") && !isQuantity("x")`,
			`quantity("50k").isInteger() && quantity("50k").asInteger() == 50000`, `quantity("1.5").asApproximateFloat() == 1.5`,
		},
		"url":   {`isURL("https://a.b:80/c?d=e") && url("https://a.b:80/c?d=e").getPort() == "80"`, `url("https://a.b/c?d=e").getQuery() == {"d": ["e"]}`},
		"ip":    {`isIP("::1") && ip("::1").isLoopback() && ip.isCanonical("127.0.0.1")`, `string(ip("10.0.0.1")) == "10.0.0.1"`},
		"cidr":  {`isCIDR("10.0.0.0/8") && cidr("10.0.0.0/8").prefixLength() == 8`, `cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16")`},
		"regex": {`"abc 123".find("[0-9]+") == "123"`, `"a1b2".findAll("[0-9]") == ["1", "2"] && "ab".matches("^a")`},
		"lists of Kubernetes": {
			`[1, 2, 3].isSorted() && [1, 2].sum() == 3 && [1, 2].min() == 1 && [1, 2].max() == 2`, `["a", "b"].indexOf("b") == 1 && ["a", "a"].lastIndexOf("a") == 1`,
		},
		"format":  {`!format.named("uuid").value().validate("x").orValue([]).all(m, false)`, `format.dns1123Subdomain().validate("a.b") == optional.none()`},
		"semver":  {`isSemver("1.2.3") && semver("1.2.3").minor() == 2`, `semver("v1.2", true) == semver("1.2.0")`},
		"sets":    {`sets.contains([1, 2], [1]) && sets.equivalent([1, 1], [1])`},
		"lists":   {`[1, 2, 3].slice(1, 3) == [2, 3] && [[1], [2]].flatten() == [1, 2]`, `[2, 1].sort() == [1, 2] && [1, 2].reverse() == [2, 1] && lists.range(2) == [0, 1] && [1, 1].distinct() == [1]`, `[{"a": 2}, {"a": 1}].sortBy(e, e.a)[0].a == 1`},
		"strings": {`"a,b".split(",").join("-") == "a-b" && "abc".substring(1) == "bc" && "%d".format([1]) == "1"`, `"aBc".lowerAscii() == "abc" && "abc".replace("b", "x") == "axc" && " a ".trim() == "a" && "abc".charAt(1) == "b" && strings.quote("a") == "\"a\""`},
		"two-variable comprehensions": {
			`[1, 2].all(i, v, v == i + 1) && {"a": 1}.exists(k, v, k == "a" && v == 1)`,
			`{"a": 1}.transformMap(k, v, v + 1) == {"a": 2} && [1].transformList(i, v, [i, v]) == [[0, 1]] && {"a": 1}.transformMapEntry(k, v, {string(v): k}) == {"1": "a"}`,
		},
		"optionals": {
			`object.?x.y.orValue(1) == 1 && optional.of(1).hasValue() && optional.none().or(optional.of(2)).value() == 2`,
			`[?optional.none(), 1].size() == 1 && {?"a": optional.none()}.size() == 0 && optional.of(1).optMap(x, x + 1).value() == 2 && [1][?0].value() == 1`,
		},
		"math":                           {`math.greatest(1, 2.5) == 2.5 && math.least([3, 1]) == 1 && math.ceil(1.2) == 2.0 && math.bitAnd(6, 3) == 2 && math.sign(-3) == -1`},
		"encoders":                       {`base64.encode(b"a") == "YQ==" && base64.decode("YQ==") == b"a"`},
		"bindings":                       {`cel.bind(x, 2, x * x) == 4`},
		"comparison of numbers of kinds": {`dyn(1) == 1.0 && 1 < 1.5`},
		"times in UTC":                   {`timestamp("2026-01-02T00:00:00Z").getHours() == 0 && duration("1h") > duration("1m")`},
	} {
		for _, text := range examples {
			if ok, err := compile(t, text, cel.Filter).Match(t.Context(), updated(t, web, web)); !ok || err != nil {
				t.Errorf("%s: %s: %v %v", library, text, ok, err)
			}
		}
	}
}
