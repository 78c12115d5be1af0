package expr

import (
	"regexp"
	"regexp/syntax"

	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// weighed is a call that may take far longer than its arguments are long. CEL's cost is counted after a call; this one is charged to the
// meter before it begins, by about one byte per nanosecond.
type weighed struct {
	interpreter.InterpretableCall

	weigh func(args []ref.Val) int
	impl  functions.FunctionOp
}

// Function hides the name from cel-go's optimizer, which would put the plain function back if the pattern is a constant.
func (w *weighed) Function() string { return at + w.InterpretableCall.Function() }

// Exec implements interpreter.InterpretableV2.
func (w *weighed) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	var few [4]ref.Val
	args := few[:0]
	for _, arg := range w.Args() {
		v := arg.Exec(frame)
		if types.IsUnknownOrError(v) {
			return v
		}
		args = append(args, v)
	}
	if in, ok := frame.ResolveName(nameInput); ok {
		if in, ok := in.(*evaluation); ok {
			in.meter.charge(w.weigh(args))
		}
	}
	return types.LabelErrNode(w.ID(), w.impl(args...))
}

// Eval implements interpreter.Interpretable.
func (w *weighed) Eval(vars interpreter.Activation) ref.Val { return w.Exec(interpreter.AsFrame(vars)) }

// weigh wraps a call that has to be weighed; nil: it has not.
func (p *Program) weigh(call interpreter.InterpretableCall) interpreter.Interpretable {
	w := &weighed{InterpretableCall: call}
	switch call.Function() {
	case "matches", "find", "findAll":
		pattern := newPattern(call)
		w.weigh, w.impl = pattern.weigh, pattern.run(call.Function())
		return w
	case "sets.contains", "sets.intersects", "sets.equivalent":
		w.weigh = func(args []ref.Val) int { return product(64, args) }
	case "indexOf", "lastIndexOf":
		w.weigh = func(args []ref.Val) int { return product(1, args) }
	case "distinct":
		w.weigh = func(args []ref.Val) int { return product(32, []ref.Val{args[0], args[0]}) }
	case "quantity", "isQuantity":
		w.weigh = func(args []ref.Val) int { return product(1, []ref.Val{args[0], args[0]}) / 16 }
	case fnSHA256:
		w.weigh = func(args []ref.Val) int { return sizeOfText(args[0]) }
	case "lists.range":
		w.weigh = func(args []ref.Val) int {
			n, _ := args[0].(types.Int)
			return product(32, []ref.Val{n})
		}
	default:
		return nil
	}
	if w.impl = p.binding(call); w.impl == nil {
		return nil
	}
	return w
}

// sizeOfText is how many bytes a text, or bytes, have.
func sizeOfText(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 1
}

// tooHeavy is more than any meter has.
const tooHeavy = 1 << 40

// product multiplies the lengths of texts and lists, and numbers, up to tooHeavy. What is neither has the length 1.
func product(by int, args []ref.Val) int {
	n := by
	for _, arg := range args[:min(2, len(args))] {
		length := 1
		switch v := arg.(type) {
		case types.String:
			length = len(v)
		case types.Int:
			length = int(min(max(v, 0), tooHeavy))
		case traits.Lister:
			size, _ := v.Size().(types.Int)
			length = int(size)
		}
		if length = max(1, length); n > tooHeavy/length {
			return tooHeavy
		}
		n *= length
	}
	return n
}

// binding returns what a call calls.
func (p *Program) binding(call interpreter.InterpretableCall) functions.FunctionOp {
	decl := p.scope.cel.Functions()[call.Function()]
	if decl == nil {
		return nil
	}
	bindings, err := decl.Bindings()
	if err != nil {
		return nil
	}
	for _, name := range []string{call.OverloadID(), call.Function()} { // the latter chooses by the types of the arguments
		for _, b := range bindings {
			if b.Operator != name {
				continue
			}
			switch n := len(call.Args()); {
			case n == 1 && b.Unary != nil:
				return func(args ...ref.Val) ref.Val { return b.Unary(args[0]) }
			case n == 2 && b.Binary != nil:
				return func(args ...ref.Val) ref.Val { return b.Binary(args[0], args[1]) }
			case b.Function != nil:
				return b.Function
			}
		}
	}
	return nil
}

// maxProgram is how many instructions a regular expression may have: a{1000}{1000} is refused by Go itself, a{1000} three times is not.
const maxProgram = 10_000

// pattern is the regular expression of a call.
type pattern struct {
	text string
	re   *regexp.Regexp // nil: it is not known before the call
	size int
}

func newPattern(call interpreter.InterpretableCall) *pattern {
	p := &pattern{}
	if constant, ok := call.Args()[1].(interpreter.InterpretableConst); ok {
		if text, ok := constant.Value().(types.String); ok {
			p.text, p.size = string(text), programSize(string(text))
			if p.size <= maxProgram {
				p.re, _ = regexp.Compile(p.text)
			}
		}
	}
	return p
}

// weigh: a step for each instruction and byte, and some for making instructions.
func (p *pattern) weigh(args []ref.Val) int {
	text, _ := args[0].(types.String)
	size := p.size
	if p.re == nil {
		pattern, _ := args[1].(types.String)
		if size = programSize(string(pattern)); size > maxProgram {
			return tooHeavy
		}
		return product(2, []ref.Val{types.Int(size), text + "0123456789012345678901234567890123456789"})
	}
	return product(2, []ref.Val{types.Int(size), text})
}

// run returns the function, on a pattern that is compiled already if it is constant.
func (p *pattern) run(function string) functions.FunctionOp {
	return func(args ...ref.Val) ref.Val {
		text, ok1 := args[0].(types.String)
		expression, ok2 := args[1].(types.String)
		n := types.Int(-1)
		if len(args) > 2 {
			n, _ = args[2].(types.Int)
		}
		if !ok1 || !ok2 {
			return noOverload(function)
		}
		re := p.re
		if re == nil {
			var err error
			if re, err = regexp.Compile(string(expression)); err != nil {
				return types.WrapErr(wrong("the regular expression is not valid"))
			}
		}
		switch function {
		case "matches":
			return types.Bool(re.MatchString(string(text)))
		case "find":
			return types.String(re.FindString(string(text)))
		}
		return types.NewStringList(types.DefaultTypeAdapter, re.FindAllString(string(text), int(n)))
	}
}

// programSize is about how many instructions a regular expression compiles to; one that is not valid has one.
func programSize(text string) int {
	if len(text) > maxProgram {
		return maxProgram + 1
	}
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 1
	}
	return sizeOf(re)
}

func sizeOf(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n += sizeOf(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(1, re.Min+1, re.Max)
	}
	return min(n, tooHeavy)
}
