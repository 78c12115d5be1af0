package informer_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/deltarouter/deltarouter/pkg/informer"
)

// pagesUnasked makes an API server answer every list in pages of seven. expired reports whether the
// token of a page has expired.
func pagesUnasked(a *api, expired func() bool) {
	a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
		switch kindOf(r) {
		case "WATCHLIST":
			fail(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden")
			return true
		case "LIST":
			q := r.URL.Query()
			if q.Has("continue") && expired() {
				fail(w, http.StatusGone, "Expired", "the provided continue parameter is too old")
				return true
			}
			q.Set("limit", "7")
			r = r.Clone(r.Context())
			r.URL = &url.URL{Path: r.URL.Path, RawQuery: q.Encode()}
			a.list(w, r)
			return true
		}
		return false
	})
}

// If a token expires in the middle of a list, the objects behind it are not deleted, even if the
// server answers the request for the whole list with a page again.
func TestPagesUnasked(t *testing.T) {
	// Guarantee: incomplete-list
	synctest.Test(t, func(t *testing.T) {
		const n = 40
		a, d := newAPI(t), newDisk()
		for i := range n {
			a.put(fmt.Sprintf("default/p%02d", i), "web")
		}
		var pages atomic.Int32
		pagesUnasked(a, func() bool { return pages.Add(1) == 12 })
		r := syncedRig(t, a, options{config: informer.Config{Gate: d.gate}})
		if got := len(r.sink.take()); got != n {
			t.Errorf("%d deltas, want %d", got, n)
		}
		pages.Store(9)
		a.compact()
		a.dropWatches()
		a.put("default/q", "web")
		r.sink.want(t, false, "added pods default/q")
		a.delete("default/p39")
		r.sink.want(t, false, "deleted pods default/p39")
		if pages.Load() < 12 {
			t.Errorf("nothing expired, %d pages", pages.Load())
		}
	})
}

// A list that never ends deletes nothing, and the source reports why it is not up to date.
func TestPagesNeverComplete(t *testing.T) {
	// Guarantee: incomplete-list
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		for i := range 20 {
			a.put(fmt.Sprintf("default/p%02d", i), "web")
		}
		var broken atomic.Bool
		pagesUnasked(a, broken.Load)
		r := syncedRig(t, a, options{})
		r.sink.take()
		broken.Store(true)
		a.compact()
		a.dropWatches()
		eventually(t, "the reason is named", func() bool {
			s, _ := r.factory.Status("pods")
			return strings.Contains(s.Reason, "did not return all pages")
		})
		if got := r.sink.take(); len(got) > 0 {
			t.Errorf("got %v", got)
		}
		broken.Store(false)
		a.delete("default/p19")
		r.sink.want(t, false, "deleted pods default/p19 stale")
	})
}

// A list that ends in the middle does not decide whether a deselected object was deleted.
func TestPagesOfIdentities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 30
		a := newAPI(t)
		for i := range n {
			a.put(fmt.Sprintf("default/p%02d", i), "web")
		}
		const (
			silent = 1 // no watch can be opened
			gap    = 2
		)
		var phase, expired atomic.Int32
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			q := r.URL.Query()
			switch kind := kindOf(r); {
			case phase.Load() == gap && kind == "GET" && expired.Load() <= 3: // after that, a list follows
				w.Header().Set("Retry-After", "1")
				fail(w, http.StatusTooManyRequests, "TooManyRequests", "later")
				return true
			case phase.Load() == silent && kind != "PROBE" && kind != "DISCOVERY":
				fail(w, http.StatusServiceUnavailable, "ServiceUnavailable", "later")
				return true
			case kind != "LIST" || q.Has("labelSelector"):
				return false
			case q.Has("continue") && expired.Add(1) <= 3:
				fail(w, http.StatusGone, "Expired", "the provided continue parameter is too old")
				return true
			}
			q.Set("limit", "7")
			r = r.Clone(r.Context())
			r.URL = &url.URL{Path: r.URL.Path, RawQuery: q.Encode()}
			a.list(w, r)
			return true
		})
		o := options{}
		o.spec.LabelSelector = "app=web"
		r := syncedRig(t, a, o)
		r.sink.take()
		phase.Store(silent)
		a.dropWatches()
		for i := range n {
			a.put(fmt.Sprintf("default/p%02d", i), "db")
		}
		a.compact()
		phase.Store(gap)
		eventually(t, "all have left", func() bool { return len(r.sink.peek()) >= n })
		for _, got := range r.sink.take() {
			if !strings.HasPrefix(got, "deselected") {
				t.Error(got)
			}
		}
		if expired.Load() < 3 {
			t.Errorf("%d tokens were used", expired.Load())
		}
	})
}

// An API server that answers every stream of initial events with 410 is asked for a list instead,
// without a retry loop.
func TestWatchListExpired(t *testing.T) {
	for name, refuse := range map[string]func(w http.ResponseWriter){
		"as its answer": func(w http.ResponseWriter) { fail(w, http.StatusGone, "Expired", "too old") },
		"as its first event": func(w http.ResponseWriter) {
			fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}}`)
		},
	} {
		bubble(t, name, func(t *testing.T) {
			a := newAPI(t)
			a.put("default/a", "web")
			a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
				if kindOf(r) != "WATCHLIST" {
					return false
				}
				refuse(w)
				return true
			})
			r := newRig(t, a, options{})
			r.start()
			r.sink.want(t, false, "added pods default/a initial")
			r.synced()
			if n := a.seen("WATCHLIST"); n > 2 {
				t.Errorf("asked %d times", n)
			}
			if !strings.Contains(r.log.String(), "listing instead") {
				t.Errorf("logged %s", r.log)
			}
			a.compact()
			a.dropWatches()
			a.put("default/a", "db")
			r.sink.want(t, false, "updated pods default/a")
			if n := a.seen("WATCHLIST"); n > 4 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}
