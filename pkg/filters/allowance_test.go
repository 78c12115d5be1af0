package filters_test

import (
	"slices"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/allowance"
	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestAllowance: beyond the allowance of an owner, its filters and the keys of its routes are
// deferred, with any number of filters in one delta. Equalities still exclude deltas, the routes of
// others have verdicts as ever, and so has the owner when its allowance has returned.
func TestAllowance(t *testing.T) {
	// Guarantee: filter-cpu
	clock := timer.NewFake(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	team := allowance.New(clock).Of("team")
	env := tableEnv(t)
	entry := func(text string, of *allowance.Owner) filters.Entry {
		e := filters.Entry{Sources: []string{"pods"}, Ops: event.SourceOps()}
		if of != nil {
			e.Allowance, e.Scope = of, &filters.Scope{Prefix: "team", Namespaces: []string{"n"}}
		}
		if text != "" {
			program, err := env.Compile(text, cel.Filter, "pods")
			must.Succeed(t, err)
			e.Filter = filters.NewCEL(filters.CELConfig{Program: program})
		}
		return e
	}
	keyed := entry("", team)
	keyed.Keyed = true
	const costly, same = `lists.range(1000).all(a, a >= 0)`, `lists.range(1000).all(a, a > 0)`
	entries := []filters.Entry{
		entry(costly, team), entry(same, nil), entry(`object.metadata.name == "x"`, team), entry(`object.metadata.name == "y" && `+costly, team),
		keyed, entry("", team),
	}
	table := filters.NewTable(entries)
	o, err := event.ParseObject(&event.Resource{}, `{"metadata":{"name":"x","namespace":"n"}}`)
	must.Succeed(t, err)
	d := &event.Delta{Source: "pods", Op: event.Updated, Old: o, New: o}
	verdicts := func(step string, first, ofKeyed filters.Verdict) {
		t.Helper()
		want := []filters.Match{{Entry: 0, Verdict: first}, {Entry: 1}, {Entry: 2, Verdict: filters.Matched}, {Entry: 4, Verdict: ofKeyed}, {Entry: 5, Verdict: filters.Matched}}
		if got := table.Match(t.Context(), d, nil); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", step, got, want)
		}
	}
	verdicts("full", filters.Matched, filters.Matched)
	if team.Left() == allowance.PerSecond {
		t.Fatal("the filter costs nothing")
	}
	team.Charge(team.Left() - 1)
	verdicts("one unit is left", filters.Matched, filters.Deferred)
	verdicts("in debt", filters.Deferred, filters.Deferred)
	if m := table.Evaluate(t.Context(), 0, d); m.Verdict != filters.Matched {
		t.Errorf("the worker's verdict is %d", m.Verdict)
	}
	clock.Advance(clock.Now().Add(time.Second))
	verdicts("a second later", filters.Matched, filters.Matched)
}

// TestEntersIsCharged: the evaluations of [filters.Table.Enters] count, too.
func TestEntersIsCharged(t *testing.T) {
	team := allowance.New(timer.NewFake(time.Now())).Of("team")
	program, err := tableEnv(t).Compile(`lists.range(1000).all(a, a > 0)`, cel.Filter, "pods")
	must.Succeed(t, err)
	table := filters.NewTable([]filters.Entry{{Sources: []string{"pods"}, Ops: event.SourceOps(), Allowance: team, Filter: filters.NewCEL(filters.CELConfig{Program: program})}})
	d := delta(t, "pods", event.Added, "a")
	d.Op, d.Old = event.Updated, d.New
	var budget filters.Budget
	table.Enters(t.Context(), 0, d, &budget)
	if team.Left() == allowance.PerSecond {
		t.Error("the owner was not charged")
	}
}
