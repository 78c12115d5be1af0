package app

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/api"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
)

func keys(objects []*event.Object) (all []string) {
	for _, o := range objects {
		all = append(all, o.Key().String())
	}
	return all
}

// TestFirst: whatever the order in which objects are found, pages of any size bring each once, in order.
func TestFirst(t *testing.T) {
	var all []*event.Object
	for i := range 30 {
		all = append(all, parse(t, "pods", fmt.Sprintf(`{"metadata":{"name":"p%02d","namespace":"ns%d"}}`, i, i%3)))
	}
	slices.SortFunc(all, func(a, b *event.Object) int { return byKey(a.Key(), b.Key()) })
	shuffled := slices.Clone(all)
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 2, 7, 29, 30, 31} {
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		var got []*event.Object
		after, more, pages := event.Key{}, true, 0
		for ; more; pages++ {
			var page []*event.Object
			if page, more = first(shuffled, after, size); len(page) == 0 {
				t.Fatalf("size %d: an empty page", size)
			}
			got, after = append(got, page...), page[len(page)-1].Key()
		}
		if want := (len(all) + size - 1) / size; pages != want || !slices.Equal(keys(got), keys(all)) {
			t.Errorf("size %d: %d pages, want %d: %q", size, pages, want, keys(got))
		}
	}
	if page, more := first(nil, event.Key{}, 1); len(page) > 0 || more {
		t.Error(page, more)
	}
}

// TestPager: a page ends at its limit, when it is too long or takes too long, and goes on from there; it always makes progress.
func TestPager(t *testing.T) {
	env, err := expr.NewEnv(expr.EnvConfig{Sources: map[string][]string{"pods": {"name"}}})
	if err != nil {
		t.Fatal(err)
	}
	compile := func(text string) *expr.Program {
		p, err := env.Compile(text, expr.Query, "pods")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	var objects []*event.Object
	for i := range 5 {
		objects = append(objects, parse(t, "pods", fmt.Sprintf(`{"metadata":{"name":"p%d"},"n":%d,"odd%d":true}`, i, i, i%2)))
	}
	future, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for _, c := range []struct {
		name   string
		p      pager
		more   bool
		want   string // the names
		next   string
		absent int
		err    string
	}{
		{"all", pager{deadline: future, query: api.Query{Limit: 5}}, false, "p0 p1 p2 p3 p4", "", 0, ""},
		{"more", pager{deadline: future, query: api.Query{Limit: 5}}, true, "p0 p1 p2 p3 p4", "p4", 0, ""},
		{"limit", pager{deadline: future, query: api.Query{Limit: 2}}, false, "p0 p1", "p1", 0, ""},
		{"too long", pager{deadline: future, query: api.Query{Limit: 5}, bytes: maxPage + 1}, false, "p0", "p0", 0, ""},
		{"filter", pager{deadline: future, query: api.Query{Limit: 5}, filter: compile("object.n > 2")}, false, "p3 p4", "", 0, ""},
		{"filter, limit", pager{deadline: future, query: api.Query{Limit: 1}, filter: compile("object.n > 2")}, false, "p3", "p3", 0, ""},
		{"none in time", pager{deadline: past, query: api.Query{Limit: 5}, filter: compile("object.n > 2")}, false, "", "p0", 0, ""},
		{"absent", pager{deadline: future, query: api.Query{Limit: 5}, filter: compile("object.odd1")}, false, "p1 p3", "", 3, ""},
		{"type", pager{deadline: future, query: api.Query{Limit: 5}, filter: compile("object.n")}, false, "", "", 0, "filter: on p0: the result is of type int"},
	} {
		answer, err := c.p.fill(t.Context(), objects, c.more)
		if c.err != "" {
			if _, ok := errors.AsType[*api.QueryError](err); !ok || err.Error() != c.err {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		var names []string
		for _, item := range answer.Items {
			names = append(names, parse(t, "pods", string(item)).Key().Name)
		}
		next := ""
		if c.next != "" {
			next = api.Token(event.Key{Name: c.next})
		}
		if err != nil || strings.Join(names, " ") != c.want || answer.Continue != next || answer.Absent != c.absent {
			t.Errorf("%s: %q, %+v, %v", c.name, names, answer, err)
		}
	}
}
