package routertest

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Ready waits until /readyz reports readiness, and returns its text.
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

// Probes returns the address of the listener of the probes.
func (r *Router) Probes() string { return strings.TrimPrefix(r.probes, "http://") }

// Get requests a path from the listener of the probes. The code is 0 if the router does not answer.
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

// Metric is Sum of the metrics of the router.
func (r *Router) Metric(t *testing.T, series string) float64 {
	t.Helper()
	_, body := r.Get(t, "/metrics")
	sum, err := Sum(body, series)
	if err != nil {
		t.Fatalf("metric %s: %v", series, err)
	}
	return sum
}

// Sum returns the value of a series with all its labels, or the sum of all series of a name; 0 if
// there is none.
func Sum(metrics, series string) (sum float64, err error) {
	for line := range strings.SplitSeq(metrics, "\n") {
		rest, ok := strings.CutPrefix(line, series)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, err
		}
		sum += value
	}
	return sum, nil
}

// Saved waits until everything that the router has taken so far is on disk: until the end of a cut
// that began after the call, which is the second cut to end.
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

// Poll tries until the condition holds, if there is no event to wait for.
func Poll(t *testing.T, what string, holds func() bool) {
	t.Helper()
	PollEvery(t, 50*time.Millisecond, what, holds)
}

// PollEvery is Poll with another interval.
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
