package router

import (
	"testing"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// TestSourceCheck: /readyz reports a source with a problem, and waits only for sources that have
// never synced and may be watched.
func TestSourceCheck(t *testing.T) {
	for _, test := range []struct {
		status informer.Status
		want   api.Check
	}{
		{informer.Status{Source: "s", Synced: true}, api.Check{OK: true}},
		{informer.Status{Source: "s", Reason: "listing"}, api.Check{Holds: true, Message: "listing"}},
		{informer.Status{Source: "s", Reason: "forbidden", Refused: true}, api.Check{Message: "forbidden"}},
		{informer.Status{Source: "s", Synced: true, Reason: "forbidden", Refused: true}, api.Check{Message: "forbidden"}},
		{informer.Status{Source: "s", Synced: true, Reason: "unknown authority"}, api.Check{Message: "unknown authority"}},
	} {
		test.want.Name = "sources/s"
		if got := sourceCheck(test.status); got != test.want {
			t.Errorf("%+v: got %+v, want %+v", test.status, got, test.want)
		}
	}
}
