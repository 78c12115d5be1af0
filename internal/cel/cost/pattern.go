package cost

import (
	"regexp"
	"regexp/syntax"

	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
)

// maxProgram is how many instructions a regular expression may have: a{1000}{1000} is refused by Go
// itself, a{1000} three times is not.
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
func (p *pattern) weigh(_ *jsonval.Meter, args []ref.Val) int {
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
			return celerr.NoOverload(function)
		}
		re := p.re
		if re == nil {
			var err error
			if re, err = regexp.Compile(string(expression)); err != nil {
				return types.WrapErr(celerr.Wrong("the regular expression is not valid"))
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

// programSize is about how many instructions a regular expression compiles to; one that is not
// valid has one.
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
