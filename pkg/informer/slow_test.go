package informer_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/informer"
)

// TestSlowObjects: where both a stream of initial events and a list take too long at first, both
// are tried again, with longer waits.
func TestSlowObjects(t *testing.T) {
	for name, served := range map[string]string{"stream": "WATCHLIST", "list": "LIST"} {
		bubble(t, name, func(t *testing.T) {
			a := newAPI(t)
			a.put("default/a", "web")
			a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
				kind := kindOf(r)
				if kind != "LIST" && kind != "WATCHLIST" || kind == served && a.seen(kind) > 2 {
					return false
				}
				if kind == "WATCHLIST" {
					w.(http.Flusher).Flush() // it begins at once
				}
				<-r.Context().Done()
				return true
			})
			wait := 50 * time.Millisecond
			r := newRig(t, a, options{config: informer.Config{BookmarkWait: wait, HeaderTimeout: wait}})
			r.start()
			r.sink.want(t, false, "added pods default/a initial")
			r.synced()
			for _, says := range []string{"no initial event for ", "the API server did not answer in time"} {
				if !strings.Contains(r.log.String(), says) {
					t.Errorf("the log does not say %q:\n%s", says, r.log)
				}
			}
		})
	}
}
