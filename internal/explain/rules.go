package explain

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// condition explains a route with a condition: whether it holds, and the reports.
func (o *offline) condition(ctx context.Context, route *config.Route, d *event.Delta, e *RouteExplanation) error {
	selected := e.Verdict == Matches
	when, err := o.compile(ctx, "when", route.When, cel.When, route, d, e)
	if err != nil {
		return err
	}
	ask := func(object *event.Object) string {
		if object == nil {
			return No
		}
		in := o.look(ctx, d)
		in.Delta = &event.Delta{Source: d.Source, Op: event.Sync, New: object, Seen: d.Seen}
		holds, err := when.Match(ctx, in)
		result, _ := ResultOf(holds, err, when.Sources())
		return result
	}
	now, before := ask(d.New), ask(d.Old)
	if d.Old == nil && d.Op != event.Added {
		before = Unknown
	}
	e.Verdict = map[string]string{Yes: Holds, No: HoldsNot, Absent: HoldsNot, Unknown: MatchUnknown, Fails: MatchFails}[now]
	if !selected { // the source would not get this object
		e.Verdict = MatchesNot
		return nil
	}
	switch now {
	case Fails:
		e.then("onFailure (%s) applies to the change; a pending report starts again, an earlier report stays", route.OnFailure)
		return nil
	case Unknown:
		return nil
	case Yes:
		return o.entered(ctx, route, d, before, e)
	}
	switch before {
	case No, Absent:
		e.then("nothing: it did not hold before either")
	default:
		what := "left, if entered was reported"
		if route.For > 0 {
			what += "; nothing if entered is pending"
		}
		e.tells(route, event.Left, what)
	}
	return nil
}

// entered explains the reports of a condition that holds now.
func (o *offline) entered(ctx context.Context, route *config.Route, d *event.Delta, before string, e *RouteExplanation) error {
	what := "entered"
	if route.For > 0 {
		what += " after " + brief(route.For) + ", if it holds until then"
	}
	switch before {
	case Yes:
		e.then("nothing new: it held before; entered was reported then, or is pending")
	case Unknown, Fails:
		e.tells(route, event.Entered, what+", unless it held before")
	default:
		e.tells(route, event.Entered, what)
	}
	if route.Every > 0 {
		e.then("reminders every %s while it holds", brief(route.Every))
	}
	if before == Yes || !slices.Contains(route.Ops, event.Entered.String()) {
		return nil
	}
	edge := *d
	edge.Op = event.Entered
	return o.bounds(ctx, route, &edge, e)
}

// waits explains the effect of rules about time on a delta that the route wants.
func (o *offline) waits(ctx context.Context, route *config.Route, d *event.Delta, e *RouteExplanation) error {
	if route.For > 0 && d.New == nil {
		back := "an object of that name"
		if route.Key != nil {
			key, err := o.key(ctx, route, route.Key, d)
			if err != nil {
				return err
			}
			back += ", or of key " + key + ","
		}
		e.then("%s after %s, unless %s is created before", d.Op, brief(route.For), back)
	}
	if route.Debounce.Quiet > 0 {
		e.then("after %s without further changes of it", brief(route.Debounce.Quiet))
	}
	return o.bounds(ctx, route, d, e)
}

// bounds explains the group of a delta and the limits that may hold it back.
func (o *offline) bounds(ctx context.Context, route *config.Route, d *event.Delta, e *RouteExplanation) error {
	if route.Batch.By != nil {
		key, err := o.key(ctx, route, route.Batch.By, d)
		if err != nil {
			return err
		}
		e.then("in one batch with the deltas of %s within %s, at most %d", key, brief(route.Batch.Wait), route.Batch.Size)
	}
	if err := o.limits(ctx, route, d, e); err != nil {
		return err
	}
	if route.MaxAge > 0 {
		e.then("maxAge: if it is older than %s by then, onFailure (%s) instead", brief(route.MaxAge), route.OnFailure)
	}
	return nil
}

// limits explains the counting of a limit.
func (o *offline) limits(ctx context.Context, route *config.Route, d *event.Delta, e *RouteExplanation) error {
	if route.Limit == nil {
		return nil
	}
	key := "the object"
	if route.Limit.Key != nil {
		var err error
		if key, err = o.key(ctx, route, route.Limit.Key, d); err != nil {
			return err
		}
	}
	e.then("limit: of %s at most %d, and one more each %s; further ones are suppressed and counted", key, max(1, route.Limit.Burst), brief(route.Limit.Every))
	return nil
}

// key evaluates a key and renders it for users.
func (o *offline) key(ctx context.Context, route *config.Route, text *config.Expr, d *event.Delta) (string, error) {
	program, err := o.env.Compile(text.Text, cel.Key, route.From...)
	if err != nil {
		return "", compile.ProblemsOf(o.cfg, text, route.From, err)
	}
	key, err := program.Key(ctx, o.look(ctx, d))
	switch result, reason := ResultOf(true, err, program.Sources()); result {
	case Yes:
		return strconv.Quote(key), nil
	case Absent:
		return "the object (" + reason + ")", nil
	default:
		return "its key (" + reason + ")", nil
	}
}

// tells adds a report if the route's ops include it.
func (e *RouteExplanation) tells(route *config.Route, op event.Op, what string) {
	if !slices.Contains(route.Ops, op.String()) {
		e.then("nothing: ops is %s, and this is %s", strings.Join(route.Ops, ", "), op)
		return
	}
	e.then("%s", what)
}

func (e *RouteExplanation) then(format string, args ...any) {
	e.Then = append(e.Then, fmt.Sprintf(format, args...))
}

// brief renders a duration without zero units: 2m instead of 2m0s.
func brief(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
