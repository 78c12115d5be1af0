package filters

import (
	"fmt"

	"github.com/deltarouter/deltarouter/internal/cel"
)

// Compile returns the filter of a CEL expression, which is a bool, such as
// object.status.phase == "Failed". It sees the variables object, oldObject, op and source, and the
// functions of docs/CEL.md except look-ups of other objects. A delta whose object lacks a field of
// the expression does not match. An error has the place of a mistake in the text.
func Compile(text string) (Filter, error) {
	env, err := cel.NewEnv(cel.EnvConfig{})
	if err != nil {
		return nil, err
	}
	program, err := env.Compile(text, cel.Filter)
	if err != nil {
		return nil, fmt.Errorf("filter %q: %w", text, err)
	}
	return NewCEL(CELConfig{Program: program}), nil
}
