package informer_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

func TestStartErrors(t *testing.T) {
	a := newAPI(t)
	a.put("default/a", "web")
	var n atomic.Int32
	a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
		if kindOf(r) == "DISCOVERY" {
			return false
		}
		switch n.Add(1) {
		case 1:
			fail(w, http.StatusServiceUnavailable, "ServiceUnavailable", "starting")
		case 2:
			fail(w, http.StatusTooManyRequests, "TooManyRequests", "busy")
		case 3:
			panic(http.ErrAbortHandler) // EOF
		case 4:
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "<html>a proxy</html>")
		default:
			return false
		}
		return true
	})
	r := newRig(t, a, options{})
	r.start()
	r.sink.want(t, false, "added pods default/a initial")
	r.synced()
	if got := a.seen("LIST"); got != 0 {
		t.Errorf("%d lists: start errors made the Reflector fall back", got)
	}
}

func TestForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.put("default/a", "web")
		var allowed atomic.Bool
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			if allowed.Load() || kindOf(r) == "DISCOVERY" {
				return false
			}
			fail(w, http.StatusForbidden, "Forbidden", `pods is forbidden: User "x" cannot watch resource "pods" in API group "" at the cluster scope`)
			return true
		})
		r := newRig(t, a, options{})
		r.start()
		eventually(t, "the reason is known", func() bool {
			s, _ := r.factory.Status("pods")
			return !s.Synced && strings.Contains(s.Reason, `cannot watch resource "pods"`)
		})
		if n := strings.Count(r.log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings, want 1:\n%s", n, r.log)
		}
		allowed.Store(true)
		r.sink.want(t, false, "added pods default/a initial")
		r.synced()
		if s := r.factory.Statuses(); len(s) != 1 || s[0] != (informer.Status{Source: "pods", Synced: true}) {
			t.Errorf("statuses %+v", s)
		}
		// The loss of rights deletes nothing.
		allowed.Store(false)
		a.compact()
		a.dropWatches()
		eventually(t, "forbidden again", func() bool { s, _ := r.factory.Status("pods"); return s.Synced && s.Reason != "" })
		if got := r.sink.take(); len(got) > 0 {
			t.Errorf("got %v", got)
		}
	})
}

func TestWatchListRefused(t *testing.T) {
	a := newAPI(t)
	for i := range 20 {
		a.put(fmt.Sprintf("default/p%02d", i), "web")
	}
	a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
		if kindOf(r) != "WATCHLIST" {
			return false
		}
		fail(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
		return true
	})
	r := syncedRig(t, a, options{})
	if n := len(r.sink.take()); n != 20 {
		t.Errorf("%d deltas, want 20", n)
	}
	a.put("default/p00", "db")
	r.sink.want(t, false, "updated pods default/p00")
	if log := r.log.String(); strings.Contains(log, "forbidden") {
		t.Errorf("the log mentions a right that is not missing: %s", log)
	}
}

// A server that is too old for sendInitialEvents ignores it and never marks the end of the initial
// events.
func TestWatchListIgnored(t *testing.T) {
	a := newAPI(t)
	a.put("default/a", "web")
	a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
		if kindOf(r) != "WATCHLIST" {
			return false
		}
		p := pod{namespace: "default", name: "a", uid: "uid-1", version: 101}
		fmt.Fprint(w, frame("ADDED", &p))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	})
	r := newRig(t, a, options{config: informer.Config{BookmarkWait: 50 * time.Millisecond}})
	r.start()
	r.sink.want(t, false, "added pods default/a initial")
	a.put("default/a", "db")
	r.sink.want(t, false, "updated pods default/a")
	if a.seen("WATCHLIST") != 1 {
		t.Errorf("asked %d times", a.seen("WATCHLIST"))
	}
}

// TestWatchListUnfinished: a stream of initial events that breaks half-way, or goes on without
// their end, is a failure with a reason, and a list follows.
func TestWatchListUnfinished(t *testing.T) {
	for name, c := range map[string]struct {
		endless bool
		wait    time.Duration
		streams int
		then    string // the end of the stream
		reason  string
	}{
		"ended":   {false, 0, 2, "", "ended before the mark of their end"},
		"error":   {false, 0, 2, busy, "starting"},
		"endless": {true, 7 * time.Second, 1, "", ""}, // the limit of all initial events is ten times that
	} {
		bubble(t, name, func(t *testing.T) {
			a := newAPI(t)
			a.put("default/a", "web")
			a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
				if kindOf(r) != "WATCHLIST" {
					return false
				}
				p := pod{namespace: "default", name: "a", uid: "uid-1", version: 101}
				for fmt.Fprint(w, frame("ADDED", &p)); c.endless && r.Context().Err() == nil; {
					fmt.Fprint(w, strings.Repeat(frame("MODIFIED", &p), 1000)) // several are decoded together
					w.(http.Flusher).Flush()
					time.Sleep(100 * time.Millisecond)
				}
				fmt.Fprint(w, c.then)
				return true
			})
			r := newRig(t, a, options{config: informer.Config{BookmarkWait: c.wait}})
			r.start()
			r.sink.want(t, false, "added pods default/a initial")
			a.put("default/a", "db")
			r.sink.want(t, false, "updated pods default/a")
			if got := a.seen("WATCHLIST"); got != c.streams {
				t.Errorf("%d streams", got)
			}
			if log := r.log.String(); !strings.Contains(log, c.reason) {
				t.Errorf("no reason: %s", log)
			}
		})
	}
}

func TestPages(t *testing.T) {
	a := newAPI(t)
	const n = 2000
	for i := range n {
		a.put(fmt.Sprintf("default/p%04d", i), "web")
	}
	var pages atomic.Int32
	a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
		if kindOf(r) == "LIST" && pages.Add(1) == 100 && r.URL.Query().Has("continue") {
			fail(w, http.StatusGone, "Expired", "the provided continue parameter is too old")
			return true
		}
		return false
	})
	r := syncedRig(t, a, options{config: informer.Config{PageSize: 7}})
	if got := len(r.sink.take()); got != n {
		t.Errorf("%d deltas, want %d", got, n)
	}
	if got := pages.Load(); got != 101 { // 99 pages, the expired one, and then a whole list
		t.Errorf("%d pages", got)
	}
}

func TestResourceAppearsAndVanishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.put("default/a", "web")
		a.setResources(`{"name":"services","kind":"Service"}`)
		r := newRig(t, a, options{})
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			if kindOf(r) == "DISCOVERY" || !strings.Contains(a.resources, "services") {
				return false
			}
			fail(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
			return true
		})
		r.start()
		eventually(t, "the reason is known", func() bool {
			s, _ := r.factory.Status("pods")
			return s.Reason == "resource v1/pods: does not exist (yet)"
		})
		a.setResources("")
		r.sink.want(t, false, "added pods default/a") // not initial: it was absent before
		r.synced()

		a.setResources(`{"name":"services","kind":"Service"}`)
		a.dropWatches()
		r.sink.want(t, false, "deleted pods default/a stale")
		eventually(t, "not synced", func() bool { s, _ := r.factory.Status("pods"); return !s.Synced })
		a.setResources("")
		r.sink.want(t, false, "added pods default/a")
	})
}

// Only discovery itself proves that a resource is gone.
func TestDiscoveryFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.put("default/a", "web")
		r := syncedRig(t, a, options{})
		r.sink.take()
		var asked atomic.Int32
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case kindOf(r) != "DISCOVERY":
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, "404 page not found")
			case asked.Add(1)%2 == 0:
				fail(w, http.StatusForbidden, "Forbidden", "no")
			default:
				fail(w, http.StatusServiceUnavailable, "ServiceUnavailable", "no")
			}
			return true
		})
		a.dropWatches()
		eventually(t, "asked often", func() bool { return asked.Load() > 10 })
		a.onRequest(nil)
		a.put("default/b", "web")
		r.sink.want(t, false, "added pods default/b")
	})
}

func TestUnreadableObjects(t *testing.T) {
	// Guarantee: unreadable-object
	secret := `,"spec":{"x":"topsecret` + "\xff" + `"}`
	for name, config := range map[string]informer.Config{"streamed": {}, "paged": {PageSize: 2}} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			a.put("default/bad", "web", secret)
			a.put("default/good", "web")
			r := syncedRig(t, a, options{config: config})
			r.sink.want(t, false, "added pods default/good initial")
			a.put("default/good", "web", `,"spec":{"a":1,"a":2}`)
			a.put("default/good", "web", `,"spec":01`)
			a.put("default/other", "web")
			r.sink.want(t, false, "added pods default/other")
			if got := r.metric("source_object_errors_total"); got != 3 {
				t.Errorf("source_object_errors_total = %v, want 3\n%s", got, r.log)
			}
			for _, want := range []string{"default/bad", "not UTF-8", "key stands twice", "malformed number"} {
				if !strings.Contains(r.log.String(), want) {
					t.Errorf("the log does not say %q", want)
				}
			}
			// The object still exists, so it is not deleted. When it is deleted, the delta has its
			// last known state.
			a.compact()
			a.dropWatches()
			a.put("default/other", "db")
			r.sink.want(t, false, "updated pods default/other")
			a.delete("default/good")
			a.put("default/bad", "web")
			r.sink.want(t, false, "deleted pods default/good stale", "added pods default/bad")
			r.stop()
			if strings.Contains(r.log.String(), "topsecret") {
				t.Error("the log has the content of an object")
			}
		})
	}
}

// The connection breaks within an event: no event is lost or repeated.
func TestCutConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		r := newRig(t, a, options{})
		var cuts atomic.Int32
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			if kindOf(r) != "WATCH" {
				return false
			}
			a.watch(&recorder{header: w.Header(), limit: 300 * int(cuts.Add(1)), w: w}, r)
			return true
		})
		a.put("default/first", "web")
		r.start()
		r.synced()
		want := []string{"added pods default/first initial"}
		a.dropWatches()
		for i := range 40 {
			a.put(fmt.Sprintf("default/n%03d", i), "web")
			want = append(want, fmt.Sprintf("added pods default/n%03d", i))
		}
		r.sink.want(t, false, want...)
		if cuts.Load() < 5 {
			t.Errorf("%d cuts only", cuts.Load())
		}
	})
}

// recorder passes a number of bytes, and then breaks the connection.
type recorder struct {
	header http.Header
	w      http.ResponseWriter
	limit  int
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(int)     {}
func (r *recorder) Flush()              { r.w.(http.Flusher).Flush() }

func (r *recorder) Write(p []byte) (int, error) {
	n := min(len(p), r.limit)
	_, _ = r.w.Write(p[:n])
	r.limit -= n
	if n < len(p) {
		r.Flush()
		panic(http.ErrAbortHandler)
	}
	return len(p), nil
}

func TestStopWithDeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.put("default/a", "web")
		r := syncedRig(t, a, options{})
		a.onRequest(func(_ http.ResponseWriter, r *http.Request) bool {
			<-r.Context().Done() // accepts and does not answer
			return true
		})
		before := a.seen("WATCH")
		a.dropWatches()
		eventually(t, "rewatch", func() bool { return a.seen("WATCH") > before })
		r.stop() // checks that it takes less than a second
	})
}

func TestStopWhileRefused(t *testing.T) {
	a := newAPI(t)
	a.server.Close()
	r := newRig(t, a, options{})
	r.start()
	eventually(t, "refused", func() bool {
		s, _ := r.factory.Status("pods")
		return strings.Contains(s.Reason, "connection refused")
	})
	r.stop()
}

// Bytes that are no JSON end the watch with a clear error, and the next watch continues.
func TestNotJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.put("default/a", "web")
		var once atomic.Bool
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			if kindOf(r) != "WATCH" || once.Swap(true) {
				return false
			}
			_, _ = io.WriteString(w, "<html>\n")
			return true
		})
		r := syncedRig(t, a, options{})
		r.sink.take()
		a.dropWatches()
		a.put("default/b", "web")
		r.sink.want(t, false, "added pods default/b")
		if !strings.Contains(r.log.String(), "not JSON") {
			t.Errorf("log: %s", r.log)
		}
	})
}

// A restarted watch sends events that were applied already: they do not become deltas again.
func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.put("default/a", "web")
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			if kindOf(r) != "WATCH" {
				return false
			}
			for _, v := range []int{102, 101, 103, 102, 104} {
				p := pod{namespace: "default", name: "a", uid: "uid-1", version: v}
				fmt.Fprint(w, frame("MODIFIED", &p))
			}
			p := pod{namespace: "default", name: "never-seen", uid: "uid-9", version: 105}
			fmt.Fprint(w, frame("DELETED", &p))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return true
		})
		r := syncedRig(t, a, options{})
		a.dropWatches()
		r.sink.want(t, false, "added pods default/a initial", "updated pods default/a", "updated pods default/a", "updated pods default/a")
		versions := []string{}
		for _, o := range slices.Collect(r.store.All()) {
			versions = append(versions, o.ResourceVersion())
		}
		if !slices.Equal(versions, []string{"104"}) || r.store.Get(event.Key{Namespace: "default", Name: "never-seen"}) != nil {
			t.Errorf("stored versions %v", versions)
		}
	})
}

// The API server ends a watch with 410: a list supplies the changes since then.
func TestExpiredWhileWatching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.put("default/a", "web")
		r := syncedRig(t, a, options{})
		r.sink.take()
		var once atomic.Bool
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			if kindOf(r) != "WATCH" || once.Swap(true) {
				return false
			}
			fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old"}}`+"\n")
			return true
		})
		a.dropWatches()
		a.put("default/b", "web")
		r.sink.want(t, false, "added pods default/b")
		eventually(t, "relist counted", func() bool { return r.metric("source_relists_total", "expired") == 1 })
	})
}

// A silent connection that neither side closes is given up: over HTTP/1.1 there are no pings.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.put("default/a", "web")
		var silent atomic.Int32
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			if kindOf(r) != "WATCH" || silent.Add(1) > 2 {
				return false
			}
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return true
		})
		r := newRig(t, a, options{config: informer.Config{Silence: 50 * time.Millisecond}})
		r.start()
		r.sink.want(t, false, "added pods default/a initial")
		a.dropWatches()
		a.put("default/a", "db")
		a.delete("default/a")
		r.sink.want(t, false, "updated pods default/a", "deleted pods default/a")
		if n := a.lists(); n != 1 {
			t.Errorf("%d lists, want one", n)
		}
		if silent.Load() < 3 {
			t.Errorf("opened %d times", silent.Load())
		}
	})
}
