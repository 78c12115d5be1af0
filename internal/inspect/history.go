package inspect

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/internal/history/fields"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

const (
	// maxFields bounds the fields of a change in an answer.
	maxFields = 50
	// maxStates bounds the states of all changes in an answer, in bytes.
	maxStates = 32 << 20
)

// History answers questions about the history. The caller needs the same rights as for the objects,
// at the time of the question.
type History struct {
	objects *Current
	log     *history.Log
	turns   chan struct{} // has room for the questions that are answered at a time

	followers *places
}

// atOnce is the number of questions that are answered at a time: each may unpack much of the
// history.
const atOnce = 2

// The number of followers of routes, and that of one user.
const (
	maxFollowers    = 16
	followersOfUser = 4
)

// NewHistory returns the history of a running router.
func NewHistory(objects *Current, log *history.Log) *History {
	return &History{objects: objects, log: log, turns: make(chan struct{}, atOnce), followers: newPlaces(maxFollowers, followersOfUser)}
}

// reader returns a reader, when it is the turn of the caller, who calls done.
func (h *History) reader(ctx context.Context, gaps *api.HistoryGaps) (r *history.Reader, done func(), err error) {
	select {
	case h.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	done = func() { <-h.turns }
	if r, err = h.log.Reader(ctx); err != nil {
		done()
		return nil, nil, err
	}
	r.Damaged = func(string, error) { gaps.Damaged++ }
	return r, done, nil
}

// Object implements api.History.
func (h *History) Object(ctx context.Context, q api.HistoryQuery) (answer api.HistoryAnswer, err error) {
	inv := h.objects.Load()
	// The right on a source that is not configured any more is that on everything.
	if err := access.Check(ctx, inv.rights("get", q.Source, q.Namespace, q.Name)...); err != nil {
		return answer, err
	}
	reader, done, err := h.reader(ctx, &answer.HistoryGaps)
	if err != nil {
		return answer, err
	}
	defer done()
	answer.Source, answer.From, answer.Kept = q.Source, reader.First().UTC(), inv.keptFields(q.Source)
	in := history.Span{From: q.Since, To: q.Until}
	records, more, err := reader.Object(ctx, q.Source, event.Key{Namespace: q.Namespace, Name: q.Name}, in, q.Limit)
	if answer.More = more; err != nil {
		return answer, err
	}
	if answer.Lost, err = lostIn(ctx, reader, in); err != nil {
		return answer, err
	}
	records = together(once(records))
	shown := &shown{inv: inv, may: make(map[string]bool)}
	states := maxStates
	for _, record := range records {
		switch r := record.(type) {
		case *history.Change:
			one := changeOf(r)
			if size := len(r.Before) + len(r.After); q.States && size <= states {
				states -= size
				one.Before, one.After = json.RawMessage(r.Before), json.RawMessage(r.After)
			}
			answer.Records = append(answer.Records, one)
		case *history.Decision:
			d := shown.run(ctx, r).Decision
			answer.Records = append(answer.Records, api.HistoryRecord{
				Time: r.At.UTC(), Op: r.Op.String(), UID: r.UID, ResourceVersion: r.Version, Initial: r.Initial, Stale: r.Stale, Decision: &d,
			})
		}
	}
	return answer, nil
}

// lostIn returns the number of records that could not be written.
func lostIn(ctx context.Context, reader *history.Reader, in history.Span) (n int, err error) {
	losses, err := reader.Losses(ctx, in)
	for _, l := range losses {
		n += l.Number
	}
	return n, err
}

// once removes changes that are there twice: after a crash, the changes since the last cut arrive
// again.
func once(records []any) []any {
	type change struct {
		uid, version string
		op           event.Op
	}
	seen := make(map[change]bool)
	return slices.DeleteFunc(records, func(record any) bool {
		c, ok := record.(*history.Change)
		if !ok {
			return false
		}
		key := change{c.UID, c.Version, c.Op}
		again := seen[key]
		seen[key] = true
		return again
	})
}

// together moves decisions behind their changes. A decision whose change is not among the records
// stays at its time.
func together(records []any) []any {
	type state struct {
		uid, version string
		deleted      bool // by a change, or by what a route did with it
	}
	of := make(map[state][]any)
	for _, record := range records {
		if c, ok := record.(*history.Change); ok {
			of[state{c.UID, c.Version, isEnd(c.Op)}] = nil
		}
	}
	behind := func(d *history.Decision) (key state, ok bool) {
		key = state{d.UID, d.Version, isEnd(d.Op)}
		if _, ok = of[key]; !ok && d.Op == event.Left { // a delete ends a condition
			key.deleted = true
			_, ok = of[key]
		}
		return key, ok
	}
	for _, record := range records {
		if d, ok := record.(*history.Decision); ok {
			if key, ok := behind(d); ok {
				of[key] = append(of[key], d)
			}
		}
	}
	all := make([]any, 0, len(records))
	for _, record := range records {
		switch r := record.(type) {
		case *history.Change:
			all = append(append(all, r), of[state{r.UID, r.Version, isEnd(r.Op)}]...)
		case *history.Decision:
			if _, ok := behind(r); !ok {
				all = append(all, r)
			}
		}
	}
	return all
}

func isEnd(op event.Op) bool { return op == event.Deleted || op == event.Deselected }

// changeOf returns the form of a change in an answer.
func changeOf(c *history.Change) api.HistoryRecord {
	one := api.ChangeOf(c)
	one.Manager = managerOf(c.After)
	if c.Op == event.Updated && c.Before != "" {
		changes, more := fields.Compare(c.Before, c.After, maxFields)
		for _, f := range changes {
			one.Fields = append(one.Fields, api.FieldChange(f))
		}
		one.MoreFields = more
	}
	return one
}

// managerOf returns the manager of the last entry of managedFields; empty: they are not kept.
func managerOf(state string) (manager string) {
	last := ""
	for entry := range rawjson.Value(state).Path("metadata", "managedFields").Elems() {
		if at := entry.Get("time").Str(); at >= last {
			last, manager = at, entry.Get("manager").Str()
		}
	}
	return manager
}

// shown hides the texts of decisions that may name objects which the caller may not list.
type shown struct {
	inv *Inventory
	may map[string]bool // by route
}

// run returns the form of a decision in an answer.
func (s *shown) run(ctx context.Context, d *history.Decision) api.Run {
	may, known := s.may[d.Route]
	if !known {
		may = s.inv.mayListSeen(ctx, d.Route)
		s.may[d.Route] = may
	}
	return api.RunOf(d, func(reason string) string {
		if reason != "" && !may {
			return hidden
		}
		return reason
	})
}

// Runs implements api.History.
func (h *History) Runs(ctx context.Context, q api.RunsQuery) (answer api.RunsAnswer, err error) {
	inv := h.objects.Load()
	if _, known := inv.seen[q.Route]; !known {
		if err := access.Check(ctx, everything); err != nil {
			return answer, err
		}
	} else if err := inv.checkSeen(ctx, "list", q.Route); err != nil {
		return answer, err
	}
	reader, done, err := h.reader(ctx, &answer.HistoryGaps)
	if err != nil {
		return answer, err
	}
	defer done()
	answer.Route, answer.From = q.Route, reader.First().UTC()
	in := history.Span{From: q.Since, To: q.Until}
	decisions, err := reader.Decisions(ctx, q.Route, in, q.Limit, func(d *history.Decision) bool { return wants(&q, d) })
	if err != nil {
		return answer, err
	}
	if answer.Lost, err = lostIn(ctx, reader, in); err != nil {
		return answer, err
	}
	if _, known := inv.seen[q.Route]; !known && len(decisions) == 0 {
		var routes []string
		for _, route := range inv.config.Routes {
			routes = append(routes, route.Name)
		}
		return answer, unknown("there is no route %q, and the history has none%s", q.Route, config.Suggest(q.Route, routes))
	}
	shown := &shown{inv: inv, may: make(map[string]bool)}
	for _, d := range decisions {
		answer.Runs = append(answer.Runs, shown.run(ctx, d))
	}
	return answer, nil
}

// wants reports whether a query is about a decision of its route.
func wants(q *api.RunsQuery, d *history.Decision) bool {
	return (q.Held || d.Outcome.IsEnd()) && (!q.Failed || failed(d))
}

// FollowRuns implements api.History.
func (h *History) FollowRuns(ctx context.Context, q api.RunsQuery, show func(api.RunEvent) error) error {
	leave, err := h.followers.try(ctx, "followers of routes")
	if err != nil {
		return err
	}
	defer leave()
	// before the others are read, so that none is missed between
	follower, end := h.log.Follow(q.Route)
	defer end()
	past, err := h.Runs(ctx, q)
	if err != nil {
		return err
	}
	known := make(map[api.RunKey]bool, len(past.Runs))
	for i := range slices.Backward(past.Runs) {
		known[past.Runs[i].Key()] = true
		if err := show(api.RunEvent{Run: &past.Runs[i]}); err != nil {
			return err
		}
	}
	if err := show(api.RunEvent{Listed: &past.HistoryGaps}); err != nil {
		return err
	}
	var shows *shown
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case d := <-follower.Decisions():
			if inv := h.objects.Load(); shows == nil || shows.inv != inv { // a reload
				shows = &shown{inv: inv, may: make(map[string]bool)}
			}
			if !wants(&q, d) {
				continue
			}
			run := shows.run(ctx, d)
			if known[run.Key()] {
				continue
			}
			if err := show(api.RunEvent{Run: &run, Missed: follower.Missed()}); err != nil {
				return err
			}
		}
	}
}

// failed reports whether a decision has a failure, or did not end in a delivery.
func failed(d *history.Decision) bool {
	return d.Reason != "" || d.Outcome == history.Dropped || d.Outcome == history.DeadLettered
}
