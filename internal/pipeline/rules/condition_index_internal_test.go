package rules

import (
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestIndexCollision: objects with the same hash are distinguished, and each can be removed, also
// during an iteration.
func TestIndexCollision(t *testing.T) {
	const h = 7
	names := []string{"a", "b", "c"}
	for _, gone := range [][]string{nil, {"a"}, {"b"}, {"c"}, {"a", "b"}, {"c", "a"}, {"b", "c"}, {"a", "b", "c"}} {
		x := index{census: NewCensus(), byHash: map[uint64]*Condition{}}
		for _, name := range names {
			x.add(h, &Condition{object: event.Identity(&event.Resource{}, event.Key{Name: name}, "uid")})
		}
		for c := range x.all {
			if slices.Contains(gone, c.object.Key().Name) {
				x.remove(h, c)
			}
		}
		var left []string
		for c := range x.all {
			left = append(left, c.object.Key().Name)
		}
		slices.Sort(left)
		var found []string
		for _, name := range names {
			if c := x.find(h, 0, event.Key{Name: name}); c != nil && c.object.Key().Name == name {
				found = append(found, name)
			}
		}
		want := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(gone, name) })
		if !slices.Equal(left, want) || !slices.Equal(found, want) || int(x.census.place(h).Load()) != len(want) || (len(x.byHash) > 0) != (len(want) > 0) {
			t.Errorf("without %s: left %q, found %q, %d in the census, want %q", strings.Join(gone, " "), left, found, x.census.place(h).Load(), want)
		}
		if x.find(h, 1, event.Key{Name: "b"}) != nil {
			t.Error("found in another source")
		}
	}
}
