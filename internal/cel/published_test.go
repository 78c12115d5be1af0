//go:build !race

package cel

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/scanner"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	k8sjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/deltarouter/deltarouter/internal/cel/check"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// published is an expression of another project's tests. Its value of `self` is in object.
type published struct {
	from   string
	text   string
	object string // JSON; empty: the expression needs none
	want   string // as fmt prints the value; empty: it is not known
	fails  bool
	// foreign is a feature of the test that our expressions do not have; empty: none.
	foreign string
}

// TestPublished evaluates the expressions of the tests of CEL's specification and of Kubernetes
// over lazy values and over standard ones: their constants are moved into an object, so that all
// that they compute with is read from its text.
func TestPublished(t *testing.T) {
	for _, suite := range []struct {
		name  string
		tests []published
		least int // that fit
	}{
		{"cel-spec", specTests(t), 1400},
		{"apiserver", libraryTests(t), 250},
		{"apiextensions", validationTests(t), 650},
	} {
		t.Run(suite.name, func(t *testing.T) {
			env, err := NewEnv(EnvConfig{})
			must.Succeed(t, err)
			if len(suite.tests) == 0 {
				t.Skip("the module is not in the module cache, or has no tests there")
			}
			var fit, values, failures, known int
			missing := make(map[string]int) // by where they are from
			a := &agreement{}
			for _, test := range suite.tests {
				file, _, _ := strings.Cut(test.from, ": ")
				text, object, ok := lift(env, test)
				if test.foreign != "" || !ok {
					missing[file+": "+cmp.Or(test.foreign, "lift")]++
					continue
				}
				p, err := env.Compile(text, check.Value, "")
				if err != nil {
					missing[file+": compile"]++
					continue // messages, enumerations, errors of types
				}
				fit++
				got, want, gotErr, wantErr := evaluateBoth(t, p, object)
				switch {
				case (gotErr == nil) != (wantErr == nil):
					t.Errorf("%s: %s: error %v, standard %v", test.from, text, gotErr, wantErr)
				case gotErr != nil:
					failures++
					if test.want != "" {
						t.Errorf("%s: %s: %v, want %s", test.from, text, gotErr, test.want)
					}
				default:
					values++
					if difference := a.compare(got, want); difference != "" {
						t.Errorf("%s: %s: %s", test.from, text, difference)
					}
					if test.fails {
						t.Errorf("%s: %s: no error", test.from, text)
					}
					if test.want != "" {
						known++
						if has := fmt.Sprint(got.Value()); has != test.want {
							t.Errorf("%s: %s: %s, want %s", test.from, text, has, test.want)
						}
					}
				}
			}
			t.Logf("%d of %d fit: %d values, %d of them known, and %d errors", fit, len(suite.tests), values, known, failures)
			for _, what := range slices.Sorted(maps.Keys(missing)) {
				t.Logf("%s: %d", what, missing[what])
			}
			if fit < suite.least {
				t.Errorf("only %d fit, want %d", fit, suite.least)
			}
		})
	}
}

// evaluateBoth evaluates over our values and over those that Kubernetes makes of JSON, without null
// fields.
func evaluateBoth(t *testing.T, p *Program, object string) (got, want ref.Val, gotErr, wantErr error) {
	t.Helper()
	if err := rawjson.Check(object); err != nil {
		t.Fatal(object, err)
	}
	obj, err := event.ParseObject(&event.Resource{}, object)
	must.Succeed(t, err)
	var standard map[string]any
	must.Succeed(t, k8sjson.Unmarshal([]byte(object), &standard))
	want, wantErr = standardEval(p, withoutNulls(standard).(map[string]any))
	got, gotErr = p.start(Input{Delta: &event.Delta{Op: event.Added, New: obj}}).evaluate(t.Context())
	return got, want, gotErr, wantErr
}

// movable matches the constants of CEL that JSON has too. The first group matches text before them
// that contains no such constant: names, bytes and raw strings.
var movable = regexp.MustCompile(`([A-Za-z_.@][A-Za-z_0-9.]*(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")?|'''|"""|0[xX][0-9a-fA-F]+u?|[0-9.eE]+[uU])` +
	`|('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+)`)

// lift moves the constants of an expression into an object.
func lift(env *Env, test published) (text, object string, ok bool) {
	if strings.Contains(test.text, "'''") || strings.Contains(test.text, `"""`) {
		return "", "", false
	}
	var fields []string
	ok = true
	text = movable.ReplaceAllStringFunc(test.text, func(found string) string {
		match := movable.FindStringSubmatch(found)
		if match[2] == "" {
			return found
		}
		value, err := jsonOf(env, found)
		if err != nil {
			ok = false
			return found
		}
		fields = append(fields, value)
		return fmt.Sprintf("object.c[%d]", len(fields)-1)
	})
	if test.object == "" {
		test.object = "null"
	}
	text = regexp.MustCompile(`\bself\b`).ReplaceAllString(text, "object.self")
	return text, `{"metadata":{"name":"x"},"self":` + test.object + `,"c":[` + strings.Join(fields, ",") + `]}`, ok
}

// jsonOf is the JSON of one.
func jsonOf(env *Env, text string) (string, error) {
	tree, issues := env.checker.Scope("").CEL.Compile(text)
	if issues.Err() != nil {
		return "", issues.Err()
	}
	program, err := env.checker.Scope("").CEL.Program(tree)
	if err != nil {
		return "", err
	}
	v, _, err := program.Eval(cel.NoVars())
	if err != nil {
		return "", err
	}
	switch v := v.(type) {
	case types.Double:
		if text := strconv.FormatFloat(float64(v), 'f', -1, 64); !math.IsInf(float64(v), 0) {
			return strings.TrimSuffix(text, ".0") + map[bool]string{true: "", false: ".0"}[strings.Contains(text, ".")], nil
		}
	case types.Int, types.String:
		out, err := json.Marshal(v.Value())
		return string(out), err
	}
	return "", fmt.Errorf("%s cannot be moved", text)
}

// moduleDir returns the source folder of a module, according to the go command in dir; "" if it is
// not there.
func moduleDir(dir, module string) string {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// specTests returns the tests of cel-spec, from its files in the text format of protocol buffers.
func specTests(t *testing.T) (tests []published) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(moduleDir(".", "cel.dev/expr"), "tests/simple/testdata/*.textproto"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		for _, section := range message(string(text))["section"] {
			for _, test := range section.(map[string][]any)["test"] {
				one := specTest(test.(map[string][]any))
				one.from = filepath.Base(file) + ": " + one.from
				tests = append(tests, one)
			}
		}
	}
	return tests
}

// otherwise lists tests whose result differs in cel-go with the settings of Kubernetes, for any
// values: duplicate and floating-point keys are allowed, an absent field of a null or an int is
// just absent, and the library of strings, with its format(), is an older one.
func otherwise() []string {
	return []string{
		"map_key_float", "map_value_repeat_key", "map_value_repeat_key_heterogeneous", "map_null_entry_no_such_key", "map_present_key_invalid_field",
		"indexof_out_of_range", "lastindexof_out_of_range",
	}
}

func specTest(test map[string][]any) (one published) {
	one = published{from: fmt.Sprint(test["name"]...), text: fmt.Sprint(test["expr"]...), fails: test["eval_error"] != nil}
	for _, other := range []string{"bindings", "container", "disable_check", "disable_macros", "check_only", "unknown", "typed_result", "locale"} {
		if test[other] != nil {
			one.foreign = other
		}
	}
	if slices.Contains(otherwise(), fmt.Sprint(test["name"]...)) || strings.Contains(one.text, ".format(") {
		one.fails = false
		return one
	}
	if test["value"] != nil {
		for kind, value := range test["value"][0].(map[string][]any) {
			switch kind {
			case "bool_value", "int64_value", "string_value":
				one.want = fmt.Sprint(value...)
			}
		}
	}
	return one
}

// message reads a message in the text format: fields by name, each a text or a message.
func message(text string) map[string][]any {
	var s scanner.Scanner
	s.Init(strings.NewReader(regexp.MustCompile(`(?m)^\s*#.*$`).ReplaceAllString(text, "")))
	s.Mode = scanner.ScanIdents | scanner.ScanInts | scanner.ScanFloats
	s.Error = func(*scanner.Scanner, string) {}
	return fields(&s)
}

func fields(s *scanner.Scanner) map[string][]any {
	all := make(map[string][]any)
	name, values := "", 0
	for tok := s.Scan(); tok != scanner.EOF && tok != '}' && tok != '>'; tok = s.Scan() {
		switch {
		case tok == '{' || tok == '<':
			all[name], values = append(all[name], fields(s)), 0
		case tok == '"' || tok == '\'':
			piece := quoted(s, tok)
			if last := len(all[name]) - 1; values > 0 { // pieces of one text
				all[name][last] = all[name][last].(string) + piece
			} else {
				all[name] = append(all[name], piece)
			}
			values++
		case tok == scanner.Ident && values == 0 && s.Peek() != ':' && s.Peek() != ' ' && s.Peek() != '{':
			// true, or the name of an enumeration's value
			all[name] = append(all[name], s.TokenText())
		case tok == scanner.Ident:
			name, values = s.TokenText(), 0
		case tok == scanner.Int || tok == scanner.Float:
			all[name] = append(all[name], s.TokenText())
		case tok == '-':
			s.Scan()
			all[name] = append(all[name], "-"+s.TokenText())
		}
	}
	return all
}

// quoted reads to the closing quote.
func quoted(s *scanner.Scanner, quote rune) string {
	var raw, out strings.Builder
	for c := s.Next(); c != quote && c != scanner.EOF; c = s.Next() {
		if raw.WriteRune(c); c == '\\' {
			raw.WriteRune(s.Next())
		}
	}
	for rest := raw.String(); rest != ""; {
		if len(rest) > 1 && rest[0] == '\\' && strings.ContainsRune("?`'\"", rune(rest[1])) {
			out.WriteByte(rest[1])
			rest = rest[2:]
			continue
		}
		c, wide, tail, err := strconv.UnquoteChar(rest, 0)
		switch {
		case err != nil:
			return raw.String()
		case wide:
			out.WriteRune(c)
		default:
			out.WriteByte(byte(c)) //nolint:gosec // it is one
		}
		rest = tail
	}
	return out.String()
}
