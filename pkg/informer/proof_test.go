package informer_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/informer"
)

// TestBarrenWatches: a watch that is opened each time and brings nothing is replaced by a list. The
// list happens once, as the next one has to wait for a minute.
func TestBarrenWatches(t *testing.T) {
	// Guarantee: barren-watch
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		says   string // the reason, after the list; empty: the next watch is silent
	}{
		"ended":  {func(http.ResponseWriter, *http.Request) {}, "ends at once, without an event or a bookmark"},
		"login":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>log in</html>")) }, "ask for a login"},
		"error":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(busy)) }, "starting"},
		"silent": {func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-r.Context().Done() }, ""},
	} {
		bubble(t, name, func(t *testing.T) {
			a := newAPI(t)
			a.put("default/a", "web")
			r := syncedRig(t, a, options{config: informer.Config{ProbeInterval: 20 * time.Millisecond, Unproven: 50 * time.Millisecond}})
			r.sink.take()
			a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
				if kindOf(r) != "WATCH" && kindOf(r) != "WATCHLIST" {
					return false
				}
				c.answer(w, r)
				return true
			})
			a.dropWatches()
			a.put("default/b", "web")
			r.sink.want(t, false, "added pods default/b")
			eventually(t, "relist counted", func() bool { return r.metric("source_relists_total", "stalled") == 1 })
			if c.says == "" {
				return
			}
			before := a.seen("WATCH")
			eventually(t, "more watches", func() bool { return a.seen("WATCH") > before+4 })
			r.named(c.says)
			if n := r.metric("source_relists_total", "stalled"); n != 1 {
				t.Errorf("%v lists within a minute", n)
			}
			a.onRequest(nil)
			a.put("default/a", "db")
			r.sink.want(t, false, "updated pods default/a")
			eventually(t, "it is over", func() bool { s, _ := r.factory.Status("pods"); return s.Reason == "" })
		})
	}
}

const busy = `{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"starting","reason":"TooManyRequests","code":429}}` + "\n"

// TestSilentWatchUpToDate: an open watch that brings nothing stays if the API server has nothing
// newer.
func TestSilentWatchUpToDate(t *testing.T) {
	a := newAPI(t)
	a.put("default/a", "web")
	r := syncedRig(t, a, options{config: informer.Config{ProbeInterval: 10 * time.Millisecond, Unproven: time.Nanosecond}})
	before := a.seen("PROBE")
	eventually(t, "probes", func() bool { return a.seen("PROBE") > before+5 })
	if n := a.lists() + a.seen("WATCH"); n != 1 {
		t.Errorf("%d lists and watches, want one\n%s", n, r.log)
	}
}

// TestUnproven: answers to probes are no proof that changes arrive.
func TestUnproven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.put("default/a", "web")
		r := syncedRig(t, a, options{config: informer.Config{ProbeInterval: 10 * time.Millisecond}})
		var once sync.Once
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			if kindOf(r) != "WATCH" {
				return false
			}
			once.Do(func() { a.put("default/b", "web") })
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return true
		})
		a.dropWatches()
		eventually(t, "the metric grows", func() bool { return r.metric("source_unproven_seconds", "pods") > 1 })
		if contact := r.metric("source_last_contact_seconds", "pods"); contact >= r.metric("source_unproven_seconds", "pods") {
			t.Errorf("last contact %v s ago", contact)
		}
		if log := r.log.String(); strings.Contains(log, "cannot list or watch") {
			t.Errorf("a reason although the silence is short:\n%s", log)
		}
	})
}
