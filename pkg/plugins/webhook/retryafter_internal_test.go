package webhook

import (
	"testing"
	"time"
)

// TestRetryAfter: seconds and dates in each of HTTP's forms; what is absurd is none, or a day.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "86400": 24 * time.Hour, "86401": 24 * time.Hour, "4294967295": 24 * time.Hour,
		"4294967296": 0, "99999999999999999999": 0, "-1": 0, "1.5": 0, "1e3": 0, "soon": 0, " 7": 0,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Friday, 02-Jan-26 03:05:05 GMT": time.Minute, "Fri Jan  2 03:05:05 2026": time.Minute,
		"Fri, 02 Jan 2026 03:04:04 GMT": 0, "Thu, 01 Jan 1970 00:00:00 GMT": 0, "Fri, 31 Dec 9999 23:59:59 GMT": 24 * time.Hour,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}
