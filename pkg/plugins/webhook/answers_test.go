package webhook_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

// TestAnswerIsEnough: a response with status 200 counts even if its body is incomplete or never
// ends.
func TestAnswerIsEnough(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nthe beginning"
	t.Run("it ends early", func(t *testing.T) {
		r := newReceiver()
		r.fault = func(_ int, subjects []string, w http.ResponseWriter) bool {
			r.acked[subjects[0]]++
			hangUp(t, w, false, head)
			return true
		}
		s := httptest.NewServer(r)
		defer s.Close()
		if dead := route(t, 20, open(t, "url: "+s.URL)); len(dead.all) != 0 || r.requests != 20 || total(r.acked) != 20 {
			t.Errorf("%d requests for 20 events, %d dead letters", r.requests, len(dead.all))
		}
	})
	t.Run("it never ends", func(t *testing.T) {
		r := newReceiver()
		r.fault = func(_ int, subjects []string, w http.ResponseWriter) bool {
			r.acked[subjects[0]]++
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return true
			}
			_, _ = io.WriteString(conn, head)
			t.Cleanup(func() { _ = conn.Close() })
			return true
		}
		s := httptest.NewServer(r)
		defer s.Close()
		// The sink stops reading the body long before the timeout, and the response counts.
		if dead := route(t, 1, open(t, fmt.Sprintf("{url: %q, timeout: 10m}", s.URL))); len(dead.all) != 0 || r.requests != 1 || total(r.acked) != 1 {
			t.Errorf("%d requests for an event, %d dead letters", r.requests, len(dead.all))
		}
	})
	t.Run("it is long", func(t *testing.T) {
		// More than the buffers of a connection can hold: the response is sent only if the sink
		// reads it.
		const size, unread = 1 << 30, 32 << 20
		taken := make(chan int, 1)
		r := newReceiver()
		r.fault = func(_ int, subjects []string, w http.ResponseWriter) bool {
			r.acked[subjects[0]]++
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return true
			}
			go func() {
				defer conn.Close()
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
				sent, chunk := 0, make([]byte, 64<<10)
				for sent < size {
					n, err := conn.Write(chunk)
					if sent += n; err != nil {
						break
					}
				}
				taken <- sent
			}()
			return true
		}
		s := httptest.NewServer(r)
		defer s.Close()
		if dead := route(t, 1, open(t, fmt.Sprintf("{url: %q, timeout: 10m}", s.URL))); len(dead.all) != 0 || r.requests != 1 || total(r.acked) != 1 {
			t.Errorf("%d requests for an event, %d dead letters", r.requests, len(dead.all))
		}
		if n := <-taken; n > unread {
			t.Errorf("the sink took %d MiB of the body, want its first 4 KiB and what the connection holds", n>>20)
		}
	})
	// A RST may overtake the head of the response, so the result is unknown: those events are sent
	// again.
	t.Run("RST", func(t *testing.T) {
		r := newReceiver()
		r.fault = func(k int, _ []string, w http.ResponseWriter) bool {
			if k%3 != 1 {
				return false
			}
			hangUp(t, w, true, head)
			return true
		}
		s := httptest.NewServer(r)
		defer s.Close()
		dead := route(t, 40, open(t, "url: "+s.URL))
		cut := total(r.got) - total(r.acked)
		if events, twice := sum(r.got); events != 40 || twice > cut || cut == 0 || len(dead.all) != 0 {
			t.Errorf("%d events arrived, %d again, %d answers were cut, %d dead letters", events, twice, cut, len(dead.all))
		}
	})
}

// TestRetryAfterHeeded: after a 429 with Retry-After, in seconds or as a date, nothing is sent
// before that time. Then the event is sent once.
func TestRetryAfterHeeded(t *testing.T) {
	// Guarantee: sink-unavailable, retry-after-ignored
	for name, value := range map[string]func() (header string, earliest time.Time){
		"seconds": func() (string, time.Time) { return "1", time.Now().Add(time.Second) },
		"date": func() (string, time.Time) {
			at := time.Now().Add(2 * time.Second).Truncate(time.Second)
			return at.UTC().Format(http.TimeFormat), at
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver()
			var earliest time.Time
			r.fault = func(k int, _ []string, w http.ResponseWriter) bool {
				if early := time.Until(earliest); k > 1 {
					// the test compares two clocks: the wall clock and the monotonic one
					if early > 10*time.Millisecond {
						t.Errorf("asked again %v too early", early)
					}
					return false
				}
				var header string
				header, earliest = value()
				w.Header().Set("Retry-After", header)
				w.WriteHeader(http.StatusTooManyRequests)
				return true
			}
			s := httptest.NewServer(r)
			defer s.Close()
			dead := route(t, 1, open(t, "url: "+s.URL))
			if acked, twice := sum(r.acked); acked != 1 || twice != 0 || len(dead.all) != 0 || r.requests != 2 {
				t.Errorf("%d acknowledged, %d twice, %d dead letters, after %d requests", acked, twice, len(dead.all), r.requests)
			}
		})
	}
}

// TestInOrder: whichever request fails, and in whatever way, no event is delivered before an
// earlier event of its key that will be retried. In the end all events are delivered in order, with
// as few requests as the mode allows.
func TestInOrder(t *testing.T) {
	// Guarantee: key-order-in-batch
	var events []event.Event
	for i := range 24 {
		e := sample()
		e.ID, e.Subject, e.Key = strconv.Itoa(i), strconv.Itoa(i), "key "+strconv.Itoa(i%2)
		events = append(events, e)
	}
	for mode, requests := range map[string]int{"structured": 24, "binary": 24, "batched": 3} {
		for _, status := range []int{http.StatusServiceUnavailable, http.StatusBadRequest} {
			for bad := range requests + 1 {
				t.Run(fmt.Sprint(mode, status, bad), func(t *testing.T) {
					r, took := newReceiver(), []string{}
					r.fault = func(n int, subjects []string, w http.ResponseWriter) bool {
						if n == bad+1 || status == http.StatusBadRequest && slices.Contains(subjects, "13") {
							w.WriteHeader(status)
							return true
						}
						took = append(took, subjects...)
						return false
					}
					s := httptest.NewServer(r)
					defer s.Close()
					maxBatch := ""
					if mode == "batched" {
						maxBatch = ", maxBatch: 4000"
					}
					sink := open(t, fmt.Sprintf("{url: %q, mode: %s%s}", s.URL, mode, maxBatch))
					errs := sink.Write(t.Context(), events)
					plugintest.CheckOrder(t, events, errs)
					var again []event.Event
					for i, err := range errs {
						if err != nil && plugins.ClassOf(err) != plugins.Rejected {
							again = append(again, events[i])
						}
					}
					if len(again) > 0 {
						sink.Write(t.Context(), again)
					}
					if !slices.IsSortedFunc(took, func(a, b string) int { x, _ := strconv.Atoi(a); y, _ := strconv.Atoi(b); return x - y }) {
						t.Errorf("it took %v", took)
					}
					if status == http.StatusServiceUnavailable && len(took) != len(events) {
						t.Errorf("it took %d of %d", len(took), len(events))
					}
				})
			}
		}
	}
}
