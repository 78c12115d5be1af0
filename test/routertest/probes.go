package routertest

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Ready waits until /readyz says so and returns what it says.
func (r *Router) Ready(t *testing.T) string {
	t.Helper()
	var body string
	Poll(t, "readiness", func() bool {
		var code int
		code, body = r.Get(t, "/readyz")
		return code == http.StatusOK
	})
	return body
}

// Get asks the listener of the probes for a path. A router that does not answer has code 0.
func (r *Router) Get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	response, err := http.Get(r.probes + path)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// Metric returns a metric, given as a series with all its labels, or as a name, of which all series
// are added; 0 if there is none.
func (r *Router) Metric(t *testing.T, series string) (sum float64) {
	t.Helper()
	_, body := r.Get(t, "/metrics")
	for line := range strings.SplitSeq(body, "\n") {
		rest, ok := strings.CutPrefix(line, series)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			t.Fatalf("metric %s: %v", series, err)
		}
		sum += value
	}
	return sum
}

// Saved waits until everything that the router has taken so far is on disk: for the end of a cut
// that began after the call, which is the second to end.
func (r *Router) Saved(t *testing.T) {
	t.Helper()
	for range 2 {
		last := r.Metric(t, "deltarouter_checkpoint_age_seconds")
		Poll(t, "a cut to be written", func() bool {
			age := r.Metric(t, "deltarouter_checkpoint_age_seconds")
			younger := age < last
			last = age
			return younger
		})
	}
}

// Poll tries until the condition holds, for things that nobody announces.
func Poll(t *testing.T, what string, holds func() bool) {
	t.Helper()
	PollEvery(t, 50*time.Millisecond, what, holds)
}

// PollEvery is Poll with another time between two tries.
func PollEvery(t *testing.T, interval time.Duration, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	deadline := time.After(Patience)
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
