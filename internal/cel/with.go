package cel

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// maxWithValue is the maximum size of a value of `with`: a delta carries it to the handler, and to
// the workers of a fleet.
const maxWithValue = 256 << 10

// With evaluates the values of the `with` of a route, by their names, and returns them as a JSON
// object. Errors are as with [Program.Value]; a value that is too large is one, too.
func With(ctx context.Context, programs map[string]*Program, in Input) ([]byte, error) {
	values := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(programs)) {
		value, err := programs[name].Value(ctx, in)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		case len(value) > maxWithValue:
			return nil, fmt.Errorf("%s: the value has %d bytes, more than %d: select fewer objects or fields", name, len(value), maxWithValue)
		}
		if i > 0 {
			values = append(values, ',')
		}
		values = append(append(rawjson.AppendString(values, name), ':'), value...)
	}
	return append(values, '}'), nil
}
