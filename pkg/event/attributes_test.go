package event_test

import (
	"maps"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestAttributes: what is empty is no attribute, and the rest is spelled as CloudEvents says.
func TestAttributes(t *testing.T) {
	bare := event.Event{ID: "1", Source: "/s", Type: "t"}
	full := event.Event{
		ID: "1", Source: "/s", Type: "t", Subject: "n/a", Time: time.Date(2026, 3, 1, 16, 4, 5, 600_000, time.FixedZone("", 3600)),
		Route: "r", K8sUID: "u", K8sResourceVersion: "7", Redelivered: true, Data: []byte("{}"),
	}
	for _, test := range []struct {
		event event.Event
		want  map[string]string
	}{
		{bare, map[string]string{"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}},
		{full, map[string]string{
			"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "subject": "n/a", "time": "2026-03-01T15:04:05.0006Z",
			"route": "r", "k8suid": "u", "k8sresourceversion": "7", "redelivered": "true",
		}},
	} {
		if got := maps.Collect(test.event.Attributes); !maps.Equal(got, test.want) {
			t.Errorf("got  %v\nwant %v", got, test.want)
		}
	}
	for name := range full.Attributes {
		if name != "specversion" {
			t.Errorf("%s comes after the end", name)
		}
		break
	}
}
