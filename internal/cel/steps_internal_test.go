//go:build !race

package cel

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/check"
	"github.com/deltarouter/deltarouter/internal/cel/cost"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// counted counts the evaluations of a call independently of the meter.
type counted struct {
	interpreter.InterpretableCall

	steps *int
}

func (c *counted) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	*c.steps++
	return c.InterpretableCall.Exec(frame)
}

func (c *counted) Eval(vars interpreter.Activation) ref.Val { return c.Exec(interpreter.AsFrame(vars)) }

// countSteps evaluates an expression and returns the calls in it that were made, and its cost.
func countSteps(t *testing.T, text string, obj *event.Object) (steps, spent int, err error) {
	t.Helper()
	env, err := NewEnv(EnvConfig{})
	must.Succeed(t, err)
	p, err := env.Compile(text, check.Value, "pods")
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	tree := p.linked.Texts.Main().AST
	count := cel.CustomDecorator(func(i interpreter.Interpretable) (interpreter.Interpretable, error) {
		if call, ok := i.(interpreter.InterpretableCall); ok {
			return &counted{call, &steps}, nil
		}
		return i, nil
	})
	if p.program, err = p.scope.CEL.Program(tree, append([]cel.ProgramOption{count}, cost.Options(p.scope.CEL, tree)...)...); err != nil {
		t.Fatal(err)
	}
	e := p.start(Input{})
	e.of = obj
	_, err = e.runToEnd()
	spent = e.cost
	e.release()
	return steps, spent, err
}

// hostile is an object of n elements of each kind that could make an expression long.
func hostile(t *testing.T, n int) *event.Object {
	t.Helper()
	repeat := func(elem string) string { return "[" + strings.TrimSuffix(strings.Repeat(elem+",", n), ",") + "]" }
	fields := strings.Builder{}
	for i := range n {
		fmt.Fprintf(&fields, `"k%d":{"x":%d},`, i, i)
	}
	obj, err := event.ParseObject(&event.Resource{}, `{"metadata":{"name":"x"},"long":`+repeat("1")+`,"texts":`+repeat(`"abc,def"`)+`,"lists":`+repeat("[1,[2],{}]")+
		`,"maps":`+repeat(`{"name":"a","value":"b"}`)+`,"text":"`+strings.Repeat("a,", n)+`","digits":"`+strings.Repeat("9", 2*n)+`","words":"`+
		strings.Repeat("%s ", n)+`","nasty":"(a+a+)+b|`+strings.Repeat(`.{99}`, 5)+`","fields":{`+strings.TrimSuffix(fields.String(), ",")+`}}`)
	must.Succeed(t, err)
	return obj
}

// loops are expressions whose time is proportional to the object; products take its square or more.
func loops() []string {
	return []string{
		`object.long.all(a, true)`, `object.long.all(a, a == 1)`, `object.long.filter(a, a + 1 == 2).size()`, `object.long.map(a, [a]).size()`,
		`object.texts.map(a, a + "x").size()`, `object.maps.exists(m, m.name == "z" || m.value == "z")`, `object.maps.exists_one(m, m.name in ["x", "y"])`,
		`object.fields.all(k, k != "")`, `object.fields.transformMap(k, v, v.x).size()`, `object.fields.transformList(k, v, v).size()`,
		`object.text.split(",").all(p, p.size() < 2)`, `object.texts.all(x, x.split(",").size() == 2)`, `object.texts.join().size()`,
		`object.lists.flatten().size()`, `object.text.replace("a", "bb").size()`, `object.texts.all(x, x.matches("^[a-f,]+$"))`,
		`object.texts.map(x, {"x": x}).all(m, m.x == "abc,def")`, `object.text.lowerAscii().size()`, `object.long.sum()`,
		`cel.bind(l, object.long + object.long, l.all(a, a == 1))`,
	}
}

func products() []string {
	return []string{
		`object.long.all(a, object.long.all(b, a == b))`, `object.long.all(a, object.maps.all(b, object.fields.all(c, d, true)))`,
		`object.long.map(a, object.long.map(b, a + b).size()).size()`, `object.texts.all(a, object.text.contains(a + "z") == false)`,
		`object.texts.all(a, object.text.split(",").size() > 1)`, `object.texts.all(a, object.text.replace("a", a).size() > 1)`,
		`object.texts.all(a, object.texts.join().size() > 1)`, `object.long.all(a, object.words.format(object.texts).size() > 1)`,
		`object.texts.all(a, object.text.matches("(a|b)+,c") == false)`, `object.texts.all(a, object.text.matches(object.nasty) == false)`,
		`cel.bind(t, object.text + "z", object.long.all(a, t == object.text + "z"))`, `object.long.all(a, object.text.size() > 1)`,
		`cel.bind(l, object.long, l.all(a, 2 in l == false))`, `cel.bind(l, object.lists, l.all(a, [2] in l == false))`,
		`cel.bind(l, object.lists.map(x, x), l.all(a, l == l))`, `cel.bind(l, object.maps, l.all(a, l == l))`, `object.maps.all(m, m in object.maps)`,
		`object.long.all(a, object.fields.size() > 1)`, `object.long.all(a, object.fields == object.fields)`, `object.long.all(a, object.long.sum() > 1)`,
		`object.long.all(a, object.texts.sort().size() > 1)`, `object.long.all(a, object.lists.flatten().size() > 1)`,
		`object.long.all(a, object.long.distinct().size() == 1)`, `object.long.all(a, object.text.lowerAscii() < object.text.upperAscii() || true)`,
		`object.long.all(a, object.text.reverse().size() > 1)`, `object.long.all(a, object.text.startsWith(object.text))`,
		`object.long.all(a, sets.contains(object.long, object.long))`, `object.long.all(a, isQuantity(object.digits) || true)`,
		`object.long.all(a, lists.range(100000).size() > 1)`, `object.long.all(a, object.long.slice(0, 1000).size() > 1)`,
		`object.long.all(a, (object.long + object.long).size() > 1)`, `object.long.all(a, double(object.digits) > 1.0)`,
		`cel.bind(a, object.long + object.long, cel.bind(b, a + a + a + a, cel.bind(c, b + b + b + b, cel.bind(d, c + c + c + c, d + d + d + d)))).all(x, true)`,
		`cel.bind(a, [object.long], cel.bind(b, [a, a, a, a, a, a], cel.bind(c, [b, b, b, b, b, b], cel.bind(d, [c, c, c, c, c, c], [d, d, d, d] == [d, d, d, d]))))`,
	}
}

// TestHostileObject: for any object, an expression ends within its limit of steps. Without the
// limit, each of the products would take from minutes to years.
func TestHostileObject(t *testing.T) {
	// Guarantee: cost-bounded
	obj := hostile(t, 100_000)
	if obj.Size() < 5<<20 {
		t.Fatalf("the object has %d bytes only", obj.Size())
	}
	for i, text := range append(loops(), products()...) {
		steps, spent, err := countSteps(t, text, obj)
		if long := i >= len(loops()); err != nil && !errors.Is(err, celerr.ErrCost) || err == nil && long {
			t.Errorf("%s: %v", text, err)
		}
		if most := cost.Limit * cost.WorkPerCost / cost.StepWork; steps > most || spent > cost.Limit {
			t.Errorf("%s: %d steps at a cost of %d, want at most %d", text, steps, spent, most)
		}
	}
}

// TestCostIsLinear: twice the object costs about twice as much in an expression that goes through
// it once.
func TestCostIsLinear(t *testing.T) {
	// Guarantee: cost-bounded
	small, large := hostile(t, 2_000), hostile(t, 4_000)
	for _, text := range loops() {
		steps, spent, err := countSteps(t, text, small)
		steps2, cost2, err2 := countSteps(t, text, large)
		if err != nil || err2 != nil {
			t.Errorf("%s: %v, %v", text, err, err2)
		}
		if cost2 > 22*spent/10+10 || steps2 > 22*steps/10+10 || cost2 < 15*spent/10 {
			t.Errorf("%s: a cost of %d and %d, %d steps and %d", text, spent, cost2, steps, steps2)
		}
	}
	if _, spent, err := countSteps(t, `object.long.size()`, large); err != nil || spent*cost.WorkPerCost < 40_000 {
		t.Errorf("a cost of %d for all that was read, %v", spent, err)
	}
}
