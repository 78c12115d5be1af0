package explain

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// shownWith is the number of bytes of a value of with that an explanation shows.
const shownWith = 300

// withOf compiles the values of with.
func (o *offline) withOf(route *config.Route) (map[string]*cel.Program, error) {
	programs := make(map[string]*cel.Program)
	for name := range route.With {
		e := route.With[name]
		program, err := o.env.Compile(e.Text, cel.Value, route.From...)
		if err != nil {
			return nil, compile.ProblemsOf(o.cfg, &e, route.From, err)
		}
		programs[name] = program
	}
	return programs, nil
}

// with adds the values of with to the explanation of a route that matches.
func (o *offline) with(ctx context.Context, route *config.Route, d *event.Delta, e *RouteExplanation) error {
	programs, err := o.withOf(route)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		value, err := programs[name].Value(ctx, o.look(ctx, d))
		text := string(value)
		if err != nil {
			_, text = ResultOf(false, err, programs[name].Sources())
		}
		if len(text) > shownWith {
			text = strings.ToValidUTF8(text[:shownWith], "") + "…"
		}
		e.Then = append(e.Then, "with."+name+": "+text)
	}
	return nil
}
