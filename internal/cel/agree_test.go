//go:build !race

// Comparing some hundred thousand values takes minutes under the race detector, and there are no
// goroutines in it.

package cel

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	k8sjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/check"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestAgreement evaluates expressions over the text of each object in the test data of k8s.io/api,
// all kinds and versions, and of our own, and the same programs with cel-go's own values over the
// objects that Kubernetes unmarshals, without their null fields. Values and kinds of errors must be
// equal.
//
// The expressions come from the objects: for each leaf its path, alone, compared with its value,
// and with has(), in and .?; for each map and list its size, its elements, macros over it, and an
// absent member. Compilation is expensive, so the expressions about one map or list are one
// program, and a part of an object that equals the same part of an earlier one is only compared as
// a whole. At the effort fast it takes a part of the objects.
func TestAgreement(t *testing.T) {
	env, err := NewEnv(EnvConfig{Cluster: "test"})
	must.Succeed(t, err)
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // compiling makes much garbage
	a := &agreement{env: env, programs: make(map[string]*Program), seen: make(map[string]bool)}
	const parts = 16
	part := effort.Rounds(1, parts, parts)
	for i, object := range testObjects(t) {
		if i%parts < part {
			a.object(t, object[0], object[1])
		}
	}
	t.Logf("%d objects, %d programs, %d evaluations, %d values compared, %d errors compared",
		a.objects, len(a.programs), a.evaluations, a.values, a.errors)
	if a.objects < 300*part/parts || a.values < 200_000*part/parts || a.errors < 3000*part/parts {
		t.Error("too little was compared: is the test data there?")
	}
}

// testObjects are the different texts, each with the name of the first file that has it.
func testObjects(t *testing.T) (objects [][2]string) {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		t.Fatal("find the module k8s.io/api: ", err)
	}
	files, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "*", "*.json"))
	own, _ := filepath.Glob("testdata/*.json")
	seen := make(map[string]bool)
	for _, file := range append(files, own...) {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		if !seen[string(text)] {
			seen[string(text)] = true
			objects = append(objects, [2]string{filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file), string(text)})
		}
	}
	return objects
}

type agreement struct {
	env      *Env
	programs map[string]*Program
	seen     map[string]bool // path and value

	turns                                int
	objects, evaluations, values, errors int
}

func (a *agreement) object(t *testing.T, name, text string) {
	t.Helper()
	if err := rawjson.Check(text); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	obj, err := event.ParseObject(&event.Resource{}, text)
	if err != nil { // options, events of a watch: not objects themselves
		text = `{"metadata": {"name": "x"}, "spec": ` + text + "}"
		if obj, err = event.ParseObject(&event.Resource{}, text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	var standard map[string]any
	if err := k8sjson.Unmarshal([]byte(text), &standard); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	a.objects++
	a.expression(t, name, "object", obj, standard)
	for _, source := range a.pathExpressions("object", standard) {
		a.expression(t, name, source, obj, standard)
	}
}

func (a *agreement) expression(t *testing.T, name, source string, obj *event.Object, standard map[string]any) {
	t.Helper()
	p := a.programs[source]
	if p == nil {
		var err error
		if p, err = a.env.Compile("dyn("+source+")", check.Filter, ""); err != nil {
			t.Fatalf("%s: %s: %v", name, source, err)
		}
		a.programs[source] = p
	}
	a.evaluations++
	want, wantErr := standardEval(p, withoutNulls(standard).(map[string]any))
	in := p.start(Input{Delta: &event.Delta{Op: event.Added, New: obj}})
	defer in.release()
	got, gotErr := in.evaluate(t.Context())
	switch {
	case (gotErr == nil) != (wantErr == nil), errors.Is(gotErr, celerr.ErrAbsent) != errors.Is(wantErr, celerr.ErrAbsent):
		t.Errorf("%s: %s: error %v, standard %v", name, source, gotErr, wantErr)
	case gotErr != nil:
		a.errors++
	default:
		if difference := a.compare(got, want); difference != "" {
			t.Errorf("%s: %s: %s", name, source, difference)
		}
	}
}

// withoutNulls returns a copy of a value without the fields that are null.
func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := make(map[string]any, len(value))
		for key, field := range value {
			if field != nil {
				kept[key] = withoutNulls(field)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(value))
		for i, elem := range value {
			kept[i] = withoutNulls(elem)
		}
		return kept
	}
	return value
}

func standardEval(p *Program, object map[string]any) (ref.Val, error) {
	v, _, err := p.program.Eval(map[string]any{syntax.VarObject: object})
	if err != nil {
		return nil, p.evalError(err)
	}
	return v, nil
}

// compare walks through both values. It reads ours in all possible ways: iterators, find, get.
func (a *agreement) compare(got, want ref.Val) string {
	a.values++
	if got.Type() != want.Type() {
		return fmt.Sprintf("type %s, standard %s", got.Type().TypeName(), want.Type().TypeName())
	}
	switch want := want.(type) {
	case traits.Mapper:
		return a.compareMaps(got.(traits.Mapper), want)
	case traits.Lister:
		got := got.(traits.Lister)
		if got.Size() != want.Size() {
			return fmt.Sprintf("size %v, standard %v", got.Size(), want.Size())
		}
		for i := types.Int(0); i < want.Size().(types.Int); i++ {
			if d := a.compare(got.Get(i), want.Get(i)); d != "" {
				return fmt.Sprintf("[%d]: %s", i, d)
			}
		}
		return ""
	}
	if got.Equal(want) != types.True || want.Equal(got) != types.True {
		return fmt.Sprintf("%v, standard %v", got.Value(), want.Value())
	}
	return ""
}

func (a *agreement) compareMaps(got, want traits.Mapper) string {
	if got.Size() != want.Size() {
		return fmt.Sprintf("size %v, standard %v", got.Size(), want.Size())
	}
	for it := got.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		wanted, ok := want.Find(key)
		if !ok || want.Contains(key) != types.True || got.Contains(key) != types.True {
			return fmt.Sprintf("%v: only in one of them", key)
		}
		if d := a.compare(got.Get(key), wanted); d != "" {
			return fmt.Sprintf("%v: %s", key, d)
		}
	}
	return ""
}

// pathExpressions are the expressions about the value at a path and all below it.
func (a *agreement) pathExpressions(path string, value any) []string {
	place := fmt.Sprint(path, value)
	if a.seen[place] {
		return nil
	}
	a.seen[place] = true
	var all, batch []string
	add := func(format string, args ...any) { batch = append(batch, fmt.Sprintf(format, args...)) }
	// All of a leaf's expressions on each leaf would take a minute: they take turns.
	turn := func(of ...string) string { a.turns++; return of[a.turns%len(of)] }
	switch value := value.(type) {
	case map[string]any:
		add(`[size(x), x == x && x == dyn(%s), x.all(k, k in x && x[k] == x[k])]`, path)
		add("%s", turn(`x.map(k, k).sort()`, `x.transformList(k, v, [k, v]).size()`, `x.transformMap(k, v, [v])`))
		add("%s", turn(`"absent" in x || has(x.absent)`, `x.?absent.hasValue()`, `x.?absent.inner.orValue(1)`))
		for _, key := range sortedKeys(value) {
			inner, text := path+selector(key), literalText(value[key])
			if text != "" {
				quoted := strconv.Quote(key)
				present, optional := quoted+" in x", "x[?"+quoted+"]"
				if strings.HasPrefix(selector(key), ".") {
					present, optional = "has("+inner+")", "x.?"+key+".orValue(null)"
				}
				add("%s == %s", inner, text)
				add("%s", turn(
					inner, "x["+quoted+"]", quoted+" in x", text+" == x["+quoted+"]",
					present, optional,
					"x.exists(k, k == "+quoted+" && x[k] == "+text+")", "x.exists(k, v, k == "+quoted+" && v == "+text+")"))
				if a.turns%4 == 0 {
					all = append(all, turn(inner+".absent", inner+" + 1", inner+" > "+text))
				}
			}
			all = append(all, a.pathExpressions(inner, value[key])...)
		}
		all = append(all, turn(path+".absent", path+"[1]", path+" + 1"))
	case []any:
		add("[size(x), x == x && x == dyn(%s), x.map(e, e in x), (x + x).size() == 2 * x.size()]", path)
		add("%s", turn("x.map(e, type(e) == string)", "x.filter(e, e != null)", "x.transformList(i, e, [i, e == x[i]])"))
		add("[x[?0].hasValue(), x[?%d].hasValue()]", len(value))
		for i, elem := range value {
			inner := path + "[" + strconv.Itoa(i) + "]"
			if text := literalText(elem); text != "" {
				add("%s == %s", inner, text)
				add("%s", turn(inner, "x.exists(e, e == "+text+")", text+" in x", inner+" in [1.5]"))
			}
			all = append(all, a.pathExpressions(inner, elem)...)
		}
		all = append(all, turn(fmt.Sprintf("%s[%d]", path, len(value)), path+"[-1]", path+`["a"]`, path+".absent"))
	default:
		return nil
	}
	return append(all, fmt.Sprintf("cel.bind(x, %s, [%s])", path, strings.Join(batch, ", ")))
}

// selector is .key where CEL's syntax allows that, else ["key"].
func selector(key string) string {
	reserved := []string{
		"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
		"package", "namespace", "null", "return", "true", "var", "void", "while",
	}
	isName := key != "" && !slices.Contains(reserved, key)
	for i, c := range key {
		isName = isName && (c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9')
	}
	if isName {
		return "." + key
	}
	return "[" + strconv.Quote(key) + "]"
}

// literalText writes a leaf as CEL does; "" for other values.
func literalText(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case string:
		return "dyn(" + strconv.Quote(value) + ")"
	case float64:
		text := strconv.FormatFloat(value, 'e', -1, 64)
		if !strings.Contains(text, ".") {
			text = strings.Replace(text, "e", ".0e", 1)
		}
		return "dyn(" + text + ")"
	case map[string]any, []any:
		return ""
	}
	return fmt.Sprintf("dyn(%v)", value)
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
