package commands

import (
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
)

// TestSummary: a decision is described with what held the change back, and until when.
func TestSummary(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	for _, c := range []struct {
		op   string
		d    api.Decision
		want string
	}{
		{"updated", api.Decision{Outcome: "delivered", Seen: at.Add(-3 * time.Millisecond), Events: 1, Steps: []api.Step{{Kind: "deliver", Name: "hook"}}}, "delivered 3ms after the change, 1 event, to hook"},
		{"entered", api.Decision{Outcome: "delivered", Seen: at, Repeat: 2}, "delivered 0s after the change (entered), reminder 2"},
		{"entered", api.Decision{Outcome: "held", Rule: "for", Until: at.Add(5 * time.Minute)}, "held by for until 12:05:00 (entered)"},
		{"entered", api.Decision{Outcome: "held", Rule: "limit"}, "held by the limit (entered)"},
		{"updated", api.Decision{Outcome: "held", Rule: "debounce", Until: at.Add(time.Minute), Latest: at.Add(24 * time.Hour)}, "held by debounce until 12:01:00, at the latest 2026-12-01 12:00:00"},
		{"updated", api.Decision{Outcome: "held", Rule: "batch", Until: at.Add(time.Minute), Latest: at.Add(time.Minute)}, "held by batch until 12:01:00"},
		{"left", api.Decision{Outcome: "cancelled", Rule: "for"}, "cancelled, the condition ended before for allowed a report (left)"},
		{"left", api.Decision{Outcome: "cancelled", Rule: "limit"}, "cancelled, the condition ended before limit allowed a report (left)"},
		{"deleted", api.Decision{Outcome: "cancelled", Rule: "for"}, "cancelled, the object exists again before the end of for"},
		{"entered", api.Decision{Outcome: "skipped", Rule: "existing"}, "skipped, the condition held before the route began (existing) (entered)"},
		{"updated", api.Decision{Outcome: "suppressed"}, "suppressed by the limit"},
		{"updated", api.Decision{Outcome: "suppressed", Rule: "limit", Until: at.Add(time.Second)}, "suppressed by the limit until 12:00:01"},
		{"left", api.Decision{Outcome: "suppressed", Rule: "limit"}, "suppressed by the limit, the condition still holds for objects of its key (left)"},
		{"updated", api.Decision{Outcome: "coalesced"}, "coalesced, a later change has it"},
		{"updated", api.Decision{Outcome: "coalesced", Into: "7"}, "coalesced, change 7 has it"},
		{"added", api.Decision{Outcome: "coalesced", Undone: true}, "coalesced, a later change has undone it"},
	} {
		if got := summary(&c.d, at, c.op, true); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}
