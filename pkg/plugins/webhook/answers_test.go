package webhook_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestAnswerIsEnough: what comes of the body of a 200 does not matter: it may end early, or never.
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
		// After the timeout the body is given up, and the answer counts.
		if dead := route(t, 1, open(t, fmt.Sprintf("{url: %q, timeout: 2s}", s.URL))); len(dead.all) != 0 || r.requests != 1 || total(r.acked) != 1 {
			t.Errorf("%d requests for an event, %d dead letters", r.requests, len(dead.all))
		}
	})
	// A RST may overtake the head of the answer, and then nobody can know of it: those events come again.
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

// TestRetryAfterHeeded: after a 429 with Retry-After, in seconds or as a date, nothing is sent before that, and
// then the event once.
func TestRetryAfterHeeded(t *testing.T) {
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
					if early > 10*time.Millisecond { // two clocks: that of the wall, and the monotonic one
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
