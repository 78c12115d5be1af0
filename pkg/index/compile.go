package index

import (
	"fmt"
	"log/slog"

	"github.com/deltarouter/deltarouter/internal/cel"
)

// Compile returns an index over the union of the values of CEL expressions, such as
// object.spec.nodeName. Each yields the values of an object: a string or a list of strings. It sees
// the variable object, and the functions of docs/CEL.md except look-ups of other objects.
//
// An error has the place of a mistake in the text. An object on which an expression fails is not
// indexed; the first such failure is logged by [slog.Default].
func Compile(texts ...string) (Spec, error) {
	env, err := cel.NewEnv(cel.EnvConfig{})
	if err != nil {
		return Spec{}, err
	}
	programs := make([]*cel.Program, len(texts))
	for i, text := range texts {
		if programs[i], err = env.Compile(text, cel.Index); err != nil {
			return Spec{}, fmt.Errorf("index %q: %w", text, err)
		}
	}
	return NewSpec(texts, programs, uncounted{}, slog.Default(), "index"), nil
}

// uncounted is a counter that nothing reads.
type uncounted struct{}

// Inc implements counter.
func (uncounted) Inc() {}
