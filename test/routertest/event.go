package routertest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// Event is a CloudEvent in the format of the sinks.
type Event struct {
	ID                 string          `json:"id"`
	Type               string          `json:"type"`
	Source             string          `json:"source"`
	Subject            string          `json:"subject"`
	Route              string          `json:"route"`
	K8sUID             string          `json:"k8suid"`
	K8sResourceVersion string          `json:"k8sresourceversion"`
	Time               time.Time       `json:"time"` // time at which the router saw the change
	Redelivered        bool            `json:"redelivered"`
	Data               json.RawMessage `json:"data"`
	At                 time.Time       `json:"-"` // time at which the test got it
}

// String returns the form that tests compare: "route updated ns/name".
func (e Event) String() string {
	return e.Route + " " + strings.TrimPrefix(e.Type, "io.deltarouter.") + " " + e.Subject
}

// Summary returns the events as strings; see Event.String.
func Summary(events []Event) []string {
	s := make([]string, len(events))
	for i, e := range events {
		s[i] = e.String()
	}
	return s
}

// About returns the events about a subject in their order.
func About(events []Event, subject string) (got []Event) {
	for _, e := range events {
		if e.Subject == subject {
			got = append(got, e)
		}
	}
	return got
}

// Of is the Summary of About.
func Of(events []Event, subject string) []string { return Summary(About(events, subject)) }

// Exactly reports missing and excess events.
func Exactly(t *testing.T, got, want []string) {
	t.Helper()
	left := make(map[string]int)
	for _, w := range want {
		left[w]++
	}
	for _, g := range got {
		left[g]--
	}
	for what, n := range left {
		switch {
		case n > 0:
			t.Errorf("not delivered: %s", what)
		case n < 0:
			t.Errorf("delivered, although nothing of the kind happened: %s", what)
		}
	}
}
