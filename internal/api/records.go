package api

import "github.com/deltarouter/deltarouter/internal/history"

// ChangeOf returns the form of a change in an answer, without its states and what follows from
// them.
func ChangeOf(c *history.Change) HistoryRecord {
	return HistoryRecord{
		Time: c.Seen.UTC(), Op: c.Op.String(), UID: c.UID, ResourceVersion: c.Version, Initial: c.Initial, Stale: c.Stale, NoStates: !c.Texts,
	}
}

// RunOf returns the form of a decision in an answer. text returns the part that is shown of a
// text that may name other objects.
func RunOf(d *history.Decision, text func(string) string) Run {
	r := Run{
		Time: d.At.UTC(), Source: d.Source, Namespace: d.Key.Namespace, Name: d.Key.Name, UID: d.UID, Op: d.Op.String(), ResourceVersion: d.Version,
		Decision: Decision{
			Route: d.Route, Outcome: d.Outcome.String(), Rule: d.Rule, Until: d.Until.UTC(), Latest: d.Latest.UTC(), Into: d.Into, Undone: d.Undone,
			Repeat: d.Repeat, Seen: d.Seen.UTC(), Matched: d.Matched.UTC(), Taken: d.Taken.UTC(),
			Events: d.Events, Suppressed: d.Suppressed, Redelivered: d.Redelivered, Reason: text(d.Reason), Skipped: d.Skipped,
		},
	}
	for i := range d.Steps {
		step := &d.Steps[i]
		r.Steps = append(r.Steps, Step{
			Kind: step.Kind.String(), Name: step.Name, Time: step.At.UTC(), Took: step.Took.Seconds(), Size: step.Size, Error: text(step.Err),
		})
	}
	return r
}
