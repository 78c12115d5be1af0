package fields_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/history/fields"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestCompare(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after string
		want          []string
	}{
		"equal":         {`{"a":{"b":1}}`, `{"a":{"b":1}}`, nil},
		"order of keys": {`{"a":1,"b":2}`, `{"b":2,"a":1}`, nil},
		"version only":  {`{"metadata":{"resourceVersion":"1","managedFields":[1]}}`, `{"metadata":{"resourceVersion":"2","managedFields":[]}}`, nil},
		"value":         {`{"a":{"b":1,"c":"x"}}`, `{"a":{"b":2,"c":"x"}}`, []string{"a.b 1→2"}},
		"added, gone":   {`{"a":{"b":1}}`, `{"a":{"c":{"d":true}}}`, []string{"a.b 1→", `a.c →{"d":true}`}},
		"null":          {`{"a":null}`, `{}`, nil},
		"another kind":  {`{"a":[1]}`, `{"a":{"x":1}}`, []string{`a [1]→{"x":1}`}},
		"odd key":       {`{"metadata":{"labels":{"app.kubernetes.io/name":"a"}}}`, `{"metadata":{"labels":{"app.kubernetes.io/name":"b"}}}`, []string{`metadata.labels["app.kubernetes.io/name"] "a"→"b"`}},
		"by type": {
			`{"c":[{"type":"Ready","status":"True"},{"type":"Scheduled","status":"True"}]}`,
			`{"c":[{"type":"Scheduled","status":"True"},{"type":"Ready","status":"False"},{"type":"New","status":"True"}]}`,
			[]string{`c[type=New] →{"status":"True","type":"New"}`, `c[type=Ready].status "True"→"False"`},
		},
		"by name":    {`{"c":[{"name":"a","n":1}]}`, `{"c":[{"name":"a","n":2}]}`, []string{"c[name=a].n 1→2"}},
		"same names": {`{"c":[{"name":"a","n":1},{"name":"a","n":1}]}`, `{"c":[{"name":"a","n":1},{"name":"a","n":2}]}`, []string{"c[1].n 1→2"}},
		"by place":   {`{"c":[1,2]}`, `{"c":[1,3,4]}`, []string{"c[1] 2→3", "c[2] →4"}},
		"numbers":    {`{"a":12345678901234567890}`, `{"a":12345678901234567891}`, []string{"a 12345678901234567890→12345678901234567891"}},
		"no JSON":    {`x`, `{"a":1}`, []string{` →{"a":1}`}},
		"created":    {``, `{"a":1}`, []string{` →{"a":1}`}},
	} {
		t.Run(name, func(t *testing.T) {
			changes, more := fields.Compare(tt.before, tt.after, 10)
			var got []string
			for _, c := range changes {
				got = append(got, fmt.Sprintf("%s %s→%s", c.Path, c.From, c.To))
			}
			if !slices.Equal(got, tt.want) || more != 0 {
				t.Errorf("got %q and %d more, want %q", got, more, tt.want)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	changes, more := fields.Compare(`{"a":[0,0,0,0,0]}`, fmt.Sprintf(`{"a":[1,1,%q,1,1]}`, strings.Repeat("ü", 1000)), 3)
	if len(changes) != 3 || more != 2 || len(changes[2].To) > 210 {
		t.Errorf("%d changes, %d more: %v", len(changes), more, changes)
	}
}

// FuzzCompare compares any texts.
func FuzzCompare(f *testing.F) {
	f.Add(`{"a":[{"name":"x"}]}`, `{"a":[{"name":"y"},1]}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		if changes, more := fields.Compare(before, before, 5); len(changes)+more > 0 {
			t.Errorf("a state differs from itself: %v", changes)
		}
		_, _ = fields.Compare(before, after, 5)
	})
}
