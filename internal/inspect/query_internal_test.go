package inspect

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

func keys(objects []*event.Object) (all []string) {
	for _, o := range objects {
		all = append(all, o.Key().String())
	}
	return all
}

// TestFirst shows that pages of any size contain each object once and in order, whatever the order
// in the cache.
func TestFirst(t *testing.T) {
	// Guarantee: get-consistent
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

// TestPager shows that a page ends at its limits of objects, bytes and time, that the next page
// continues there, and that each page makes progress.
func TestPager(t *testing.T) {
	env, err := cel.NewEnv(cel.EnvConfig{Sources: map[string][]string{"pods": {"name"}}})
	must.Succeed(t, err)
	compile := func(text string) *cel.Program {
		p, err := env.Compile(text, cel.Query, "pods")
		must.Succeed(t, err)
		return p
	}
	selector := func(text string) labels.Selector {
		s, err := selectorOf(text)
		must.Succeed(t, err)
		return s
	}
	if _, err := selectorOf("app in web"); err == nil || !strings.Contains(err.Error(), "write it like app=web") {
		t.Error(err)
	}
	var objects []*event.Object
	for i := range 5 {
		objects = append(objects, parse(t, "pods", fmt.Sprintf(`{"metadata":{"name":"p%d"},"n":%d,"odd%d":true}`, i, i, i%2)))
		if i == 3 {
			objects[i] = parse(t, "pods", `{"metadata":{"name":"p3","labels":{"app":"web"}},"n":3,"odd1":true}`)
		}
	}
	future, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for _, c := range []struct {
		name   string
		p      pager
		more   bool
		want   string // their names
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
		{"labels", pager{deadline: future, query: api.Query{Limit: 5}, selector: selector("app in (web, db)")}, false, "p3", "", 0, ""},
		{"labels and filter", pager{deadline: future, query: api.Query{Limit: 5}, selector: selector("!app"), filter: compile("object.n > 2")}, false, "p4", "", 0, ""},
		{"labels, none in time", pager{deadline: past, query: api.Query{Limit: 5}, selector: selector("app")}, false, "", "p0", 0, ""},
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

func parse(t *testing.T, resource, text string) *event.Object {
	t.Helper()
	gvr := schema.GroupVersionResource{Version: "v1", Resource: resource}
	o, err := event.ParseObject(&event.Resource{GroupVersionResource: gvr}, text)
	must.Succeed(t, err)
	return o
}

// TestRedacted shows that a redacted Secret reveals nothing about its data, and that other fields
// are unchanged.
func TestRedacted(t *testing.T) {
	// Guarantee: api-no-secrets
	const meta = `"metadata":{"name":"s","namespace":"ns","uid":"u","resourceVersion":"7"`
	for _, c := range []struct{ name, text, want string }{
		{"nothing to hide", `{` + meta + `},"type":"Opaque"}`, `{` + meta + `},"type":"Opaque"}`},
		{
			"data", `{` + meta + `},"data":{"a":"aHVudGVy","b\n":"aHVudGVy"},"type":"Opaque"}`,
			`{"data":{"a":"(redacted)","b\n":"(redacted)"},` + meta + `},"type":"Opaque"}`,
		},
		{
			"at the end, in both", ` { "stringData": {"a":"hunter"}, ` + meta + `}, "data": {"a":"hunter"} } `,
			`{"data":{"a":"(redacted)"},"stringData":{"a":"(redacted)"},  ` + meta + `}}`,
		},
		{
			"what tools keep",
			`{` + meta + `,"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"hunter","kapp.k14s.io/original":"hunter",` +
				`"meta.helm.sh/release-name":"r","objectset.rio.cattle.io/applied":"hunter","banzaicloud.com/last-applied":"hunter"}}}`,
			`{` + meta + `,"annotations":{"meta.helm.sh/release-name":"r"}}}`,
		},
		{"an escaped annotation", `{` + meta + `,"annotations":{"meta.helm.sh/release-n\u0061me":"r","b":"hunter"}}}`, `{` + meta + `,"annotations":{"meta.helm.sh/release-n\u0061me":"r"}}}`},
		{"of another form", `{` + meta + `},"data":["hunter"]}`, `{"data":{},` + meta + `}}`},
		{"an escaped key", `{` + meta + `},"d\u0061ta":{"a":"hunter"}}`, `{"data":{"a":"(redacted)"},` + meta + `}}`},
		{"null", `{` + meta + `},"data":null}`, `{"data":{},` + meta + `}}`},
	} {
		o := Redacted(parse(t, "secrets", c.text), shownAs)
		if got := string(o.JSON()); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if err := rawjson.Check(string(o.JSON())); err != nil || o.ResourceVersion() != "7" || strings.Contains(string(o.JSON()), "hunter") {
			t.Errorf("%s: %v, %s", c.name, err, o.JSON())
		}
		other := parse(t, "configmaps", c.text)
		if Redacted(other, shownAs) != other {
			t.Errorf("%s: of a ConfigMap something is hidden", c.name)
		}
	}
}
