package printable_test

import (
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/printable"
)

func TestDuration(t *testing.T) {
	for text, want := range map[string]string{
		"0s": "0s", "999ns": "999ns", "1234ns": "1.23µs", "218543022ns": "219ms", "1.0004s": "1s", "20.218543022s": "20.2s",
		"-20.218543022s": "-20.2s", "59.96s": "1m", "90s": "1m30s", "10m": "10m", "10m0.4s": "10m", "1h": "1h", "2h0m5.3s": "2h0m5s", "1h2m5.6s": "1h2m6s",
	} {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := printable.Duration(d); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
