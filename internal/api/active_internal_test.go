package api

import (
	"net/url"
	"testing"
)

// FuzzActive shows that any parameters are either refused or parsed within the limits, and that
// parsed parameters mean the same as their text.
func FuzzActive(f *testing.F) {
	for _, text := range []string{"", "limit=10", "continue=bm9kZXMAAG4x", "continue=bm9kZXM", "limit=0", "a;b", "%zz", "limit=1&limit=2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := parseActive("down", text)
		if err != nil {
			return
		}
		if q.Limit < 1 || q.Limit > maxLimit || q.Route != "down" {
			t.Errorf("%q: %+v", text, q)
		}
		values := url.Values{}
		if q.After != (Active{}) {
			values.Set("continue", q.After.token())
		}
		again, err := parseActive("down", values.Encode())
		if again.Limit = q.Limit; err != nil || again != q {
			t.Errorf("%q: %+v, then %+v, %v", text, q, again, err)
		}
	})
}
