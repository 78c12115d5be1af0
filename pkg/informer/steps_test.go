package informer_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/informer"
)

// TestReasonOfStep: a source says why a step fails as long as that step fails, although the other
// steps succeed in between.
func TestReasonOfStep(t *testing.T) {
	answer := func(code int, reason, message string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { fail(w, code, reason, message) }
	}
	inStream := func(code int, reason, message string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			fmt.Fprintf(w, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":%q,"reason":%q,"code":%d}}`+"\n", message, reason, code)
		}
	}
	page := func(code int, text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.WriteHeader(code); fmt.Fprint(w, text) }
	}
	all := []string{"LIST", "WATCHLIST", "WATCH"}
	for name, c := range map[string]struct {
		kinds  []string
		answer func(http.ResponseWriter)
		paged  bool // the source lists; else it streams initial events
		says   string
	}{
		"expired":     {all, answer(http.StatusGone, "Expired", "too old"), false, "too old"},
		"no list":     {all, answer(http.StatusMethodNotAllowed, "MethodNotAllowed", "not supported"), false, "not supported"},
		"not found":   {all[2:], page(http.StatusNotFound, "404 page not found"), false, "404 Not Found"},
		"busy stream": {all[2:], inStream(http.StatusTooManyRequests, "TooManyRequests", "starting"), false, "starting"},
		"failed":      {all[2:], inStream(http.StatusInternalServerError, "InternalError", "no etcd"), true, "no etcd"},
		"forbidden":   {all[2:], inStream(http.StatusForbidden, "Forbidden", "no rights"), true, "no rights"},
		"login":       {all[1:], page(http.StatusOK, "<html>log in</html>"), false, "does a proxy before it ask for a login"},
	} {
		bubble(t, name, func(t *testing.T) {
			a := newAPI(t)
			a.put("default/a", "web")
			o := options{config: informer.Config{ProbeInterval: 10 * time.Millisecond}}
			if c.paged {
				o.config.PageSize = 100
			}
			r := syncedRig(t, a, o)
			reasons := make(chan string, 1000)
			a.onRequest(func(w http.ResponseWriter, req *http.Request) bool {
				if !slices.Contains(c.kinds, kindOf(req)) {
					return false
				}
				s, _ := r.factory.Status("pods")
				reasons <- s.Reason
				c.answer(w)
				return true
			})
			a.dropWatches()
			next := func() (reason string) {
				select {
				case reason = <-reasons:
				case <-time.After(time.Minute):
					t.Fatalf("no request any more:\n%s", r.log)
				}
				return reason
			}
			for !strings.Contains(next(), c.says) {
			}
			for range 5 {
				if got := next(); !strings.Contains(got, c.says) {
					t.Errorf("the source says %q", got)
				}
			}
			a.onRequest(nil)
			a.put("default/a", "db")
			eventually(t, "it is over", func() bool { s, _ := r.factory.Status("pods"); return s.Reason == "" })
			if log := r.log.String(); strings.Contains(log, "level=WARN msg=client-go") {
				t.Errorf("client-go repeats the reasons:\n%s", log)
			}
		})
	}
}

// TestNoReason: what happens in normal operation is no reason once it is over, also without an
// event.
func TestNoReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.put("default/a", "web")
		r := syncedRig(t, a, options{config: informer.Config{ProbeInterval: 10 * time.Millisecond}})
		a.onRequest(func(w http.ResponseWriter, req *http.Request) bool {
			if kindOf(req) != "WATCH" || a.seen("WATCH") > 1 {
				return false
			}
			fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"busy","reason":"TooManyRequests","code":429}}`+"\n")
			return true
		})
		a.dropWatches()
		eventually(t, "a reason", func() bool { return strings.Contains(r.log.String(), "err=busy") })
		eventually(t, "it is over", func() bool { s, _ := r.factory.Status("pods"); return s.Reason == "" })
		a.compact()
		a.dropWatches()
		eventually(t, "relist counted", func() bool { return r.metric("source_relists_total", "expired") == 1 })
		eventually(t, "it is over", func() bool { s, _ := r.factory.Status("pods"); return s.Reason == "" })
		if n := strings.Count(r.log.String(), "cannot list or watch"); n != 1 {
			t.Errorf("%d warnings, want one: %s", n, r.log)
		}
	})
}
