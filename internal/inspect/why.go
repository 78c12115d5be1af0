package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/explain"
	"github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// notRecorded is the verdict of a change whose states the history does not have.
const notRecorded = "not known"

// Why implements api.History: for each change of an object it says whether the route wanted it, by
// the rules of the running configuration, and what the route did.
func (h *History) Why(ctx context.Context, q api.WhyQuery) (answer api.WhyAnswer, err error) {
	inv := h.objects.Load()
	route, err := inv.routeNamed(q.Route)
	if err == nil {
		err = inv.checkSeen(ctx, "list", q.Route)
	}
	if err == nil {
		err = access.Check(ctx, inv.rights("get", q.Source, q.Namespace, q.Name)...)
	}
	if err != nil {
		return answer, err
	}
	past, err := h.Object(ctx, api.HistoryQuery{
		Source: q.Source, Namespace: q.Namespace, Name: q.Name, Since: q.Since, Until: q.Until, States: true, Limit: q.Limit,
	})
	if err != nil {
		return answer, err
	}
	answer.Route, answer.Source, answer.From, answer.HistoryGaps, answer.More = q.Route, q.Source, past.From, past.HistoryGaps, past.More
	begins, err := h.beginsOf(ctx)
	if err != nil {
		return answer, err
	}
	answer.Notes = notesOn(route, q, begins)
	judge := &tap{inventory: inv, explainers: make(map[[2]string]explainer)}
	for i := range past.Records {
		record := &past.Records[i]
		switch {
		case record.Decision == nil:
			why, err := judge.change(ctx, route, q.Source, record)
			if err != nil {
				return answer, err
			}
			answer.Changes = append(answer.Changes, why)
		case record.Decision.Route != q.Route:
		case len(answer.Changes) == 0:
			answer.Changes = append(answer.Changes, api.Why{Decisions: []api.HistoryRecord{*record}})
		default:
			last := &answer.Changes[len(answer.Changes)-1]
			last.Decisions = append(last.Decisions, *record)
		}
	}
	if len(answer.Changes) == 0 && slices.Contains(route.From, q.Source) {
		answer.Notes = append(answer.Notes, inv.unseen(q))
	}
	return answer, nil
}

func (h *History) beginsOf(ctx context.Context) ([]*history.Begin, error) {
	var gaps api.HistoryGaps
	reader, done, err := h.reader(ctx, &gaps)
	if err != nil {
		return nil, err
	}
	defer done()
	return reader.Begins(ctx, history.Span{})
}

// routeNamed returns a route of the configuration.
func (inv *Inventory) routeNamed(name string) (*config.Route, error) {
	var known []string
	for _, route := range inv.config.Routes {
		if route.Name == name {
			return route, nil
		}
		known = append(known, route.Name)
	}
	return nil, unknown("there is no route %q%s", name, config.Suggest(name, known))
}

// change judges a change of an object as the filter of the route does, with the recorded states.
// The other objects that it looks up are those of now.
func (t *tap) change(ctx context.Context, route *config.Route, source string, record *api.HistoryRecord) (why api.Why, err error) {
	why.HistoryRecord = *record
	why.Before, why.After = nil, nil
	if !slices.Contains(route.From, source) {
		why.Verdict, why.Because = explain.MatchesNot, "from: "+strings.Join(route.From, ", ")
		return why, nil
	}
	if record.Initial && route.When == nil && route.Existing != config.ExistingDeliver {
		why.Verdict, why.Because = explain.MatchesNot, "existing: "+route.Existing
		return why, nil
	}
	d, ok := t.inventory.deltaOf(source, record)
	if !ok {
		why.Verdict, why.Because = notRecorded, "the history does not have the states of the object"
		if record.Initial {
			why.Because = "the router saw the object for the first time, and the history has its state only before the next change"
		}
		return why, nil
	}
	tapped := tappedOf(d, route)
	if err := t.judge(ctx, route, item{delta: d}, &tapped); err != nil {
		return why, err
	}
	why.Verdict, why.Because, why.At, why.Reason = tapped.Verdict, tapped.Why, tapped.At, tapped.Reason
	return why, nil
}

// deltaOf makes the delta of a change; ok is false if its states are not recorded.
func (inv *Inventory) deltaOf(source string, record *api.HistoryRecord) (d *event.Delta, ok bool) {
	op, ok := event.ParseOp(record.Op)
	resource := &event.Resource{Cluster: inv.config.Cluster.Name}
	if specs := inv.watches[source]; len(specs) > 0 {
		resource.GroupVersionResource = specs[0].Resource
	}
	d = &event.Delta{Source: source, Op: op, Initial: record.Initial, Stale: record.Stale, Seen: record.Time}
	for _, state := range []struct {
		text string
		into **event.Object
	}{{string(record.Before), &d.Old}, {string(record.After), &d.New}} {
		if state.text == "" {
			continue
		}
		o, err := event.ParseObject(resource, state.text)
		if err != nil {
			return nil, false
		}
		*state.into = o
	}
	return d, ok && (d.Old != nil || d.New != nil)
}

// notesOn says in which parts of the span the route was not what it is now.
func notesOn(route *config.Route, q api.WhyQuery, begins []*history.Begin) (notes []string) {
	if !slices.Contains(route.From, q.Source) {
		notes = append(notes, fmt.Sprintf("the route does not read source %s; its sources are %s", q.Source, strings.Join(route.From, ", ")))
	}
	if len(begins) == 0 {
		return notes
	}
	last := hashIn(begins[len(begins)-1], route.Name)
	since := begins[len(begins)-1].At // the route has been what it is
	for _, b := range slices.Backward(begins) {
		if hashIn(b, route.Name) != last {
			break
		}
		since = b.At
	}
	first := begins[0].At
	if since.After(first) && q.Since.Before(since) {
		before := "was another one"
		for _, b := range begins {
			if b.At.Before(since) && hashIn(b, route.Name) == "" {
				before = "did not exist, or was another one"
			}
		}
		notes = append(notes, fmt.Sprintf("before %s the route %s: changes of that time are judged by the present one", since.UTC().Format(time.RFC3339), before))
	}
	return notes
}

// hashIn returns the hash of a route in a configuration; empty: it did not have it.
func hashIn(b *history.Begin, route string) string {
	for _, r := range b.Routes {
		if r.Name == route {
			return r.Hash
		}
	}
	return ""
}

// unseen says why there is nothing about an object.
func (inv *Inventory) unseen(q api.WhyQuery) string {
	key := event.Key{Namespace: q.Namespace, Name: q.Name}
	for _, store := range inv.stores[q.Source] {
		if store.Get(key) != nil {
			return "the object is in the cache, and the source saw no change of it in that time"
		}
	}
	return "the source has no such object, and saw no change of it in that time: look at its namespaces and selectors, and at router status"
}
