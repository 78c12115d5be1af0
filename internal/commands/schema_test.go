package commands

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"gopkg.in/yaml.v3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/deltarouter/deltarouter/internal/config/reference"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestGeneratedDocs shows that the JSON Schema and the reference, which are generated from the
// structs of the configuration, are up to date.
func TestGeneratedDocs(t *testing.T) {
	for _, c := range []struct {
		file string
		args []string
	}{
		{"config.schema.json", []string{"schema"}},
		{"config.schema.json", []string{"schema", "config"}},
		{"include.schema.json", []string{"schema", "include"}},
		{"CONFIG.md", []string{"schema", "reference"}},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), c.args, &stdout, &stderr); code != 0 {
			t.Fatalf("%v: exit code %d: %s", c.args, code, &stderr)
		}
		if stdout.String() != mustRead(t, "../../docs/"+c.file) {
			t.Errorf("docs/%s is out of date: run make generate", c.file)
		}
	}
}

// validator validates YAML with the schema like an editor: without knowledge of variables.
func validator(t *testing.T) func(name string, text []byte) (problems []string) {
	t.Helper()
	var s spec.Schema
	must.Succeed(t, json.Unmarshal(reference.Schema(components().Kinds()), &s))
	v := validate.NewSchemaValidator(&s, nil, "", strfmt.Default)
	return func(name string, text []byte) (problems []string) {
		var value any
		if err := yaml.Unmarshal(text, &value); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, err := json.Marshal(value)
		if err == nil {
			err = json.Unmarshal(data, &value)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, problem := range v.Validate(value).Errors {
			problems = append(problems, problem.Error())
		}
		return problems
	}
}

// TestSchemaAccepts shows that the schema accepts all shipped configurations, and all valid ones in
// the tests of pkg/config.
func TestSchemaAccepts(t *testing.T) {
	valid := validator(t)
	files, err := filepath.Glob("../../examples/configs/*.yaml")
	must.Succeed(t, err)
	rules, err := filepath.Glob("../../examples/rules/*.yaml")
	must.Succeed(t, err)
	files = slices.DeleteFunc(append(files, rules...), func(f string) bool { return strings.HasSuffix(f, "_test.yaml") })
	if len(files) < 15 {
		t.Fatal("there are only", files)
	}
	files = append(files, "../../config.yaml")
	for _, file := range files {
		modeline, _, _ := strings.Cut(mustRead(t, file), "\n")
		schema, ok := strings.CutPrefix(modeline, "# yaml-language-server: $schema=")
		if !ok || filepath.Join(filepath.Dir(file), schema) != "../../docs/config.schema.json" {
			t.Errorf("%s: the first line does not name the schema", file)
		}
	}
	files = append(files, "../../internal/config/reference/example.yaml")
	texts := make(map[string]string)
	for _, file := range files {
		texts[file] = mustRead(t, file)
	}
	for _, golden := range goldens(t) {
		if golden.valid {
			texts[golden.name] = golden.text
		}
	}
	if len(texts) < 10 {
		t.Fatal("there are only", len(texts), "configurations")
	}
	for name, text := range texts {
		if problems := valid(name, []byte(text)); len(problems) > 0 {
			t.Errorf("%s: %s", name, strings.Join(problems, "; "))
		}
	}
}

// sample is a configuration of the tests of pkg/config.
type sample struct {
	name, text string
	valid      bool
}

func goldens(t *testing.T) (all []sample) {
	t.Helper()
	files, err := filepath.Glob("../../pkg/config/testdata/*.txtar")
	must.Succeed(t, err)
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil || len(archive.Files) != 2 {
			t.Fatal(file, err)
		}
		all = append(all, sample{
			strings.TrimSuffix(filepath.Base(file), ".txtar"), string(archive.Files[0].Data), archive.Files[1].Name == "config",
		})
	}
	return all
}

// TestSchemaRefuses shows that the schema finds the mistakes that an editor can find.
func TestSchemaRefuses(t *testing.T) {
	valid := validator(t)
	for _, golden := range goldens(t) {
		can := []string{"unknown_keys", "types", "missing", "list_expected", "values", "components"}
		if slices.Contains(can, golden.name) && len(valid(golden.name, []byte(golden.text))) == 0 {
			t.Errorf("%s: the schema accepts it", golden.name)
		}
	}
	const head = "version: 1\nsources: {pods: {resource: v1/pods}}\nroutes: [{name: r, from: pods, to: out}]\n"
	for _, c := range []struct{ name, parts, where string }{
		{"a good one", "sinks: {out: {webhook: {url: http://h, mode: binary}}}\nhandlers: {h: {wasm: {module: m, limits: {fuel: 10M}}}}", ""},
		{"a secret", "sinks: {out: {webhook: {url: {env: URL}, headers: {a: {file: f}}}}}", ""},
		{"no such kind of sink", "sinks: {out: {webhok: {url: http://h}}}", "sinks.out.webhok"},
		{"a handler is no sink", "sinks: {out: {wasm: {module: m}}}", "sinks.out.wasm"},
		{"a sink is no handler", "sinks: {out: {stdout: {}}}\nhandlers: {h: {stdout: {}}}", "handlers.h.stdout"},
		{"no such key", "sinks: {out: {webhook: {uri: http://h, url: x}}}", "sinks.out.webhook.uri"},
		{"a key is missing", "sinks: {out: {webhook: {mode: binary}}}", "sinks.out.webhook.url"},
		{"all keys are missing", "sinks: {out: {webhook: }}", "sinks.out.webhook"},
		{"no such value", "sinks: {out: {webhook: {url: x, mode: heaps}}}", "sinks.out.webhook.mode"},
		{"two ways to a secret", "sinks: {out: {webhook: {url: {env: A, file: b}}}}", "sinks.out.webhook.url"},
		{"deep below", "sinks: {out: {stdout: {}}}\nhandlers: {h: {wasm: {module: m, allow: {http: [{hots: a}]}}}}", "handlers.h.wasm.allow.http"},
		{"no count", "sinks: {out: {stdout: {}}}\nhandlers: {h: {wasm: {module: m, limits: {fuel: 10 M}}}}", "handlers.h.wasm.limits.fuel"},
	} {
		problems := strings.Join(valid(c.name, []byte(head+c.parts)), "; ")
		if (problems == "") != (c.where == "") || !strings.Contains(problems, c.where) {
			t.Errorf("%s: %q", c.name, problems)
		}
	}
}

// refused are the limits that a kind has in common with others, but does not permit.
var refused = map[string][]string{"stdio": {"batch", "input", "kv"}}

// TestExamplesOfKinds shows that the example of each kind has each of its keys, and fits the
// schema.
func TestExamplesOfKinds(t *testing.T) {
	valid := validator(t)
	const head = "version: 1\nsources: {pods: {resource: v1/pods}}\nroutes: [{name: r, from: pods, to: out}]\n"
	kinds := components().Kinds()
	for what, all := range map[string][]config.Kind{"handlers": kinds.Handlers, "sinks": kinds.Sinks} {
		for _, kind := range all {
			piece := what + ":\n  x:\n    " + kind.Name + ":\n      " + strings.ReplaceAll(kind.Example, "\n", "\n      ") + "\n"
			if what == "handlers" {
				piece += "sinks: {out: {stdout: {}}}\n"
			}
			if problems := valid(kind.Name, []byte(head+piece)); len(problems) > 0 {
				t.Errorf("%s: %s", kind.Name, strings.Join(problems, "; "))
			}
			for _, key := range keysOf(reflect.TypeOf(kind.Config)) {
				if !strings.Contains(kind.Example, key+":") && !slices.Contains(refused[kind.Name], key) {
					t.Errorf("the example of %s has no %s", kind.Name, key)
				}
			}
		}
	}
}

// keysOf returns the keys of a struct and of its nested structs.
func keysOf(t reflect.Type) (keys []string) {
	switch {
	case t == reflect.TypeFor[config.Node](), t == reflect.TypeFor[config.Secret]():
		return nil
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Map, t.Kind() == reflect.Pointer:
		return keysOf(t.Elem())
	case t.Kind() != reflect.Struct:
		return nil
	}
	for i := range t.NumField() {
		if key, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); key != "" && key != "-" {
			keys = append(keys, key)
			keys = append(keys, keysOf(t.Field(i).Type)...)
		}
	}
	return keys
}

func TestSchemaCommand(t *testing.T) {
	for _, c := range []struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		{args: "schema help", stdout: "Usage:"},
		{args: "schema -h", stdout: "Usage:"},
		{args: "schema pull -h", stdout: "-kubeconfig FILE"},
		{args: "schema confg", code: 2, stderr: `router schema: there is no command "confg"; did you mean "config"?`},
		{args: "schema config x", code: 2, stderr: `unexpected argument "x"`},
		{args: "schema pull", code: 2, stderr: "-o FOLDER is missing"},
		{args: "schema pull -o d x", code: 2, stderr: `unexpected argument "x"`},
		{args: "schema pull -o d -config c.yaml -context x", code: 2, stderr: "-config names the cluster"},
		{args: "schema pull -o d -config does-not-exist.yaml", code: 2, stderr: "does-not-exist.yaml"},
		{args: "schema pull -o d -kubeconfig does-not-exist", code: 1, stderr: "no usable kubeconfig (does-not-exist)"},
		{args: "schema pull -d d", code: 2, stderr: "-d"},
		{args: "check -config x -connect -schemas d", code: 2, stderr: "leave one out"},
	} {
		checkRun(t, strings.Fields(c.args), c.code, c.stdout, c.stderr)
	}
}
