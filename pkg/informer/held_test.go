package informer_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/deltarouter/deltarouter/pkg/informer"
)

// of returns the deltas of one object.
func of(name string, deltas []string) []string {
	return slices.DeleteFunc(slices.Clone(deltas), func(d string) bool { return !strings.Contains(d, "default/"+name) })
}

// refuseQuestions makes the API server fail the questions whether an object exists, until allowed
// is closed.
func refuseQuestions(a *api) (allowed chan struct{}) {
	allowed = make(chan struct{})
	a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
		select {
		case <-allowed:
			return false
		default:
		}
		if kindOf(r) == "GET" || kindOf(r) == "LIST" && r.URL.Query().Get("labelSelector") == "" {
			fail(w, http.StatusServiceUnavailable, "ServiceUnavailable", "no answer")
			return true
		}
		return false
	})
	return allowed
}

// While the API server does not say whether an object was deleted or deselected, only the changes
// under its name wait, in order. The source goes on, and its status names a waiting object.
func TestHeldChanges(t *testing.T) {
	// Guarantee: deleted-means-gone
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		for _, name := range []string{"away", "back", "gone", "other"} {
			a.put("default/"+name, "web")
		}
		r := syncedRig(t, a, options{spec: informer.Spec{LabelSelector: "app=web"}})
		r.sink.take()
		allowed := refuseQuestions(a)
		a.put("default/away", "db")
		a.put("default/back", "db")
		a.put("default/back", "web")
		a.put("default/back", "web")
		a.delete("default/gone")
		a.put("default/gone", "web")
		a.delete("default/gone")
		a.put("default/other", "web")
		// A stream that ends behind the last event of default/gone would bring it again, behind the
		// held ones.
		synctest.Wait()
		a.dropWatches() // the open stream is no part of it
		a.put("default/new", "web")
		r.sink.want(t, false, "updated pods default/other", "added pods default/new")
		r.named("the changes of default/away and of 2 others wait")
		eventually(t, "the metric", func() bool { return r.metric("source_held_changes") == 7 })
		close(allowed)
		eventually(t, "all of it", func() bool { return len(r.sink.peek()) >= 7 })
		got := r.sink.take()
		for name, want := range map[string][]string{
			"away": {"deselected pods default/away"},
			"back": {"deselected pods default/back", "added pods default/back", "updated pods default/back"},
			"gone": {"deleted pods default/gone", "added pods default/gone", "deleted pods default/gone"},
		} {
			if got := of(name, got); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
		eventually(t, "it is over", func() bool { s, _ := r.factory.Status("pods"); return s.Reason == "" })
		if n := strings.Count(r.log.String(), "cannot list or watch"); n != 1 {
			t.Errorf("%d log lines\n%s", n, r.log)
		}
	})
}

// One list answers about many objects that leave at once.
func TestManyLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 400
		a := newAPI(t)
		for i := range n {
			a.put(fmt.Sprintf("default/p%03d", i), "web")
		}
		r := syncedRig(t, a, options{spec: informer.Spec{LabelSelector: "app=web"}})
		r.sink.take()
		all := make(chan struct{})
		a.onRequest(func(_ http.ResponseWriter, r *http.Request) bool {
			if kindOf(r) == "GET" || kindOf(r) == "LIST" {
				<-all
			}
			return false
		})
		for i := range n {
			if key := fmt.Sprintf("default/p%03d", i); i%2 == 0 {
				a.put(key, "db")
			} else {
				a.delete(key)
			}
		}
		eventually(t, "all are held", func() bool { return r.metric("source_held_changes") == n })
		close(all)
		eventually(t, "all are told", func() bool { return len(r.sink.peek()) == n })
		for _, d := range r.sink.peek() {
			want := "deselected"
			if d.Key().Name[3]%2 == 1 {
				want = "deleted"
			}
			if d.Op.String() != want {
				t.Errorf("%s, want %s", describe(d), want)
			}
		}
		if gets, lists := a.seen("GET"), a.seen("LIST"); gets > 32 || lists > 3 {
			t.Errorf("%d requests for single objects and %d lists", gets, lists)
		}
	})
}

// A restart repeats the changes that were held back, and loses none.
func TestRestartWhileHeld(t *testing.T) {
	for _, listed := range []bool{false, true} {
		bubble(t, fmt.Sprint(listed), func(t *testing.T) {
			a, d := newAPI(t), newDisk()
			for _, name := range []string{"away", "gone", "other"} {
				a.put("default/"+name, "web")
			}
			o := options{spec: informer.Spec{LabelSelector: "app=web"}}
			r := restart(t, a, o, d)
			r.synced()
			a.awaitWatch()
			r.save(d)
			r.sink.take()
			allowed := refuseQuestions(a)
			a.put("default/away", "db")
			a.delete("default/gone")
			a.put("default/gone", "web")
			waits := func() bool {
				s, _ := r.factory.Status("pods")
				return strings.Contains(s.Reason, "default/away and of 1 others")
			}
			eventually(t, "both are held", waits)
			if listed {
				a.compact()
				a.dropWatches()
			}
			a.put("default/other", "web")
			r.sink.want(t, false, "updated pods default/other")
			r.shutdown(d)

			r = restart(t, a, o, d)
			r.synced()
			r.named("default/away")
			close(allowed)
			eventually(t, "all of it", func() bool { return len(r.sink.peek()) >= 3 })
			r.shutdown(d)
			versions, got := r.sink.versions(), r.sink.take()
			stale := ""
			if listed {
				stale = " stale"
			}
			want := []string{"deleted pods default/gone" + stale, "added pods default/gone"}
			if !slices.Equal(of("gone", got), want) || len(of("away", got)) != 1 {
				t.Errorf("%v\n%v, want %v", versions, got, want)
			}
			if n := a.lists(); !listed && n > 0 {
				t.Errorf("%d lists", n)
			}
			r = restart(t, a, o, d)
			r.synced()
			r.stop()
			if got := r.sink.take(); len(got) > 0 || a.lists() > 0 {
				t.Errorf("after the answers: %v, %d lists", got, a.lists())
			}
		})
	}
}
