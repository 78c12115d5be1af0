package inspect

import (
	"fmt"
	"slices"
	"testing"

	"github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestTogether: a change that arrived twice is shown once, and a decision behind its change, also
// if it ended after later ones.
func TestTogether(t *testing.T) {
	change := func(op event.Op, uid, version string) any {
		return &history.Change{Object: history.Object{UID: uid}, Op: op, Version: version}
	}
	decision := func(op event.Op, uid, version, route string) any {
		return &history.Decision{Object: history.Object{UID: uid}, Op: op, Version: version, Route: route}
	}
	var got []string
	for _, record := range together(once([]any{
		decision(event.Updated, "u", "0", "before"),
		change(event.Added, "u", "1"), change(event.Updated, "u", "2"), decision(event.Updated, "u", "2", "fast"),
		change(event.Deleted, "u", "2"), change(event.Updated, "u", "2"), decision(event.Added, "u", "1", "slow"),
		decision(event.Deleted, "u", "2", "gone"), decision(event.Updated, "u", "2", "slow"), decision(event.Left, "u", "2", "left"),
		change(event.Added, "other", "2"), decision(event.Entered, "other", "2", "entered"),
	})) {
		switch r := record.(type) {
		case *history.Change:
			got = append(got, fmt.Sprint(r.Op, r.UID, r.Version))
		case *history.Decision:
			got = append(got, r.Route)
		}
	}
	want := []string{"before", "addedu1", "slow", "updatedu2", "fast", "slow", "left", "deletedu2", "gone", "addedother2", "entered"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
