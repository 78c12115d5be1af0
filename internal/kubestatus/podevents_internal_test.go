package kubestatus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// recorder keeps the messages of created Events, or refuses them.
type recorder struct {
	now      time.Time
	messages []string
	err      error
}

func (r *recorder) create(_ context.Context, e *corev1.Event) error {
	if r.err == nil {
		r.messages = append(r.messages, e.Message)
	}
	return r.err
}

// reporter returns a Reporter with the time and the Events of r.
func (r *recorder) reporter() *Reporter {
	reporter := NewPodEvents(Pod{"ns", "pod", "uid"}, &plugins.API{}, func() time.Time { return r.now })
	reporter.create = r.create
	return reporter
}

func state(message string) Condition {
	return Condition{Reason: RoutePaused, Subject: "r", Message: message}
}

func count(n float64) Condition {
	return Condition{Reason: DeadLetters, Subject: "r", Message: "lost", Count: n}
}

func TestReport(t *testing.T) {
	type step struct {
		after      time.Duration
		conditions []Condition
		want       []string // the messages of the new Events
	}
	const minute = time.Minute
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{"a state is reported when it begins, and again after half an hour", []step{
			{0, []Condition{state("a")}, []string{"a"}},
			{29 * minute, []Condition{state("a")}, nil},
			{minute, []Condition{state("a")}, []string{"a"}},
		}},
		{"a new message and a new beginning are reported", []step{
			{0, []Condition{state("a")}, []string{"a"}},
			{0, []Condition{state("b")}, []string{"b"}},
			{0, nil, nil},
			{0, []Condition{state("b")}, []string{"b"}},
		}},
		{"a count is reported when it rises, not again with the time", []step{
			{0, []Condition{count(1)}, []string{"lost"}},
			{time.Hour, []Condition{count(1)}, nil},
			{0, []Condition{count(2)}, []string{"lost"}},
		}},
		{"subjects and reasons are separate", []step{
			{0, []Condition{state("a"), count(1), {Reason: RoutePaused, Subject: "other", Message: "a"}}, []string{"a", "lost", "a"}},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &recorder{now: time.Unix(1e9, 0)}
			reporter := r.reporter()
			for i, s := range test.steps {
				r.now, r.messages = r.now.Add(s.after), nil
				if err := reporter.Report(t.Context(), s.conditions); err != nil || !slices.Equal(r.messages, s.want) {
					t.Errorf("step %d: got %q, %v, want %q", i, r.messages, err, s.want)
				}
			}
		})
	}
}

func TestObservedCounts(t *testing.T) {
	r := &recorder{now: time.Unix(1e9, 0)}
	reporter := r.reporter()
	reporter.Observe([]Condition{count(5), state("a")})
	if err := reporter.Report(t.Context(), []Condition{count(5), state("a")}); err != nil || !slices.Equal(r.messages, []string{"a"}) {
		t.Errorf("got %q, %v, want only the state", r.messages, err)
	}
}

// TestRateLimit shows that many conditions create 25 Events, and that the others follow later.
func TestRateLimit(t *testing.T) {
	r := &recorder{now: time.Unix(1e9, 0)}
	reporter := r.reporter()
	var all []Condition
	for i := range 30 {
		all = append(all, Condition{Reason: SourceRefused, Subject: strings.Repeat("s", i+1), Message: "m"})
	}
	for _, want := range []int{25, 25, 26} {
		if err := reporter.Report(t.Context(), all); err != nil || len(r.messages) != want {
			t.Errorf("got %d Events, %v, want %d", len(r.messages), err, want)
		}
		if want == 25 && len(r.messages) == 25 {
			r.now = r.now.Add(refill / 2)
		}
	}
}

// TestFailedReport shows that an Event that the API server refuses is created later.
func TestFailedReport(t *testing.T) {
	r := &recorder{now: time.Unix(1e9, 0), err: errors.New("down")}
	reporter := r.reporter()
	if err := reporter.Report(t.Context(), []Condition{state("a"), count(1)}); !errors.Is(err, r.err) {
		t.Errorf("got %v, want %v", err, r.err)
	}
	r.err = nil
	if err := reporter.Report(t.Context(), []Condition{state("a"), count(1)}); err != nil || !slices.Equal(r.messages, []string{"a", "lost"}) {
		t.Errorf("got %q, %v", r.messages, err)
	}
}

func TestLongMessage(t *testing.T) {
	r := &recorder{now: time.Unix(1e9, 0)}
	if err := r.reporter().Report(t.Context(), []Condition{state(strings.Repeat("ä", maxEventMessage))}); err != nil {
		t.Fatal(err)
	}
	if m := r.messages[0]; len(m) > maxEventMessage || len(m) < maxEventMessage-4 || strings.Trim(m, "ä") != "…" {
		t.Errorf("%d bytes: %q", len(m), m)
	}
}
