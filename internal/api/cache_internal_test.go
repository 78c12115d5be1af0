package api

import (
	"net/url"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// FuzzQuery shows that any parameters are either refused or parsed within the limits, and that
// parsed parameters mean the same as their text.
func FuzzQuery(f *testing.F) {
	for _, text := range []string{"", "limit=10&name=a", "continue=bnMvYQ", "filter=a+b%20c", "labels=app%3Dweb,!x", "value=&limit=07", "continue=L2E&x", "watch=true&name=a", "watch=1&limit=2", "watch=x", "a;b", "%zz"} {
		f.Add("", text)
		f.Add("byNode", text)
	}
	f.Fuzz(func(t *testing.T, index, text string) {
		q, watch, err := parseQuery("pods", index, text)
		if err != nil {
			return
		}
		if q.Limit < 1 || q.Limit > maxLimit || q.Source != "pods" || q.Index != index || watch && q.After != (event.Key{}) {
			t.Errorf("%q: %+v", text, q)
		}
		values := url.Values{"namespace": {q.Namespace}, "name": {q.Name}, "labels": {q.Labels}, "filter": {q.Filter}}
		if index != "" {
			values.Set("value", q.Value)
		}
		if watch {
			values.Set("watch", "true")
		}
		if q.After != (event.Key{}) {
			values.Set("continue", Token(q.After))
		}
		again, still, err := parseQuery("pods", index, values.Encode())
		if again.Limit = q.Limit; err != nil || again != q || still != watch {
			t.Errorf("%q: %+v, then %+v, %v", text, q, again, err)
		}
	})
}
