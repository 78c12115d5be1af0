package kubestatus

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestConditions shows the conditions of each state, as status and reason.
func TestConditions(t *testing.T) {
	for _, c := range []struct {
		state State
		want  string
	}{
		{State{Runs: true}, "Accepted True Valid, Ready True Running, Degraded False Healthy"},
		{State{Problem: "p"}, "Accepted False Invalid, Ready False NotAccepted, Degraded False Healthy"},
		{State{Problem: "p", Runs: true}, "Accepted False Invalid, Ready True FormerVersionRuns, Degraded False Healthy"},
		{State{Runs: true, Paused: true, NotSynced: "s"}, "Accepted True Valid, Ready False Paused, Degraded True Paused"},
		{State{Runs: true, NotSynced: "s"}, "Accepted True Valid, Ready False SourceNotSynced, Degraded False Healthy"},
		{State{Runs: true, Unavailable: "s", DeadLetters: true}, "Accepted True Valid, Ready True Running, Degraded True SinkUnavailable"},
		{State{Runs: true, DeadLetters: true}, "Accepted True Valid, Ready True Running, Degraded True DeadLetters"},
		{State{Runs: true, DeadLetters: true, Deferred: true}, "Accepted True Valid, Ready True Running, Degraded True DeadLetters"},
		{State{Runs: true, Deferred: true}, "Accepted True Valid, Ready True Running, Degraded True FiltersDeferred"},
		{State{Problem: "p", DeadLetters: true, Paused: true}, "Accepted False Invalid, Ready False NotAccepted, Degraded False Healthy"},
	} {
		var got []string
		for _, condition := range c.state.conditions() {
			got = append(got, strings.Join([]string{condition.Type, string(condition.Status), condition.Reason}, " "))
			if condition.Message == "" {
				t.Errorf("%+v: %s has no message", c.state, condition.Type)
			}
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.state, got, c.want)
		}
	}
}

// TestStatusChanges shows that only a difference is a change, and that the time of a condition
// changes with its status only.
func TestStatusChanges(t *testing.T) {
	at := func(hour int) metav1.Time { return metav1.NewTime(time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC)) }
	first, changed := statusOf(&State{Generation: 1, Runs: true}, &Status{}, at(1))
	if !changed || first.ObservedGeneration != 1 || slices.ContainsFunc(first.Conditions, func(c metav1.Condition) bool { return c.LastTransitionTime != at(1) }) {
		t.Errorf("got %+v", first)
	}
	if _, changed := statusOf(&State{Generation: 1, Runs: true}, &first, at(2)); changed {
		t.Error("the same state is a change")
	}
	second, changed := statusOf(&State{Generation: 2, Runs: true, Problem: "p"}, &first, at(3))
	if !changed || second.condition(accepted).LastTransitionTime != at(3) || second.condition(ready).LastTransitionTime != at(1) || second.condition(ready).ObservedGeneration != 2 {
		t.Errorf("got %+v", second)
	}
	if _, changed := statusOf(&State{Generation: 2, Runs: true, Problem: "q"}, &second, at(4)); !changed {
		t.Error("another mistake is no change")
	}
}

// TestMessageIsBounded shows that the message of a condition keeps whole characters.
func TestMessageIsBounded(t *testing.T) {
	s := State{Problem: "a" + strings.Repeat("ü", maxMessage)}
	if got := s.conditions()[0].Message; len(got) > maxMessage || !strings.HasSuffix(got, "ü…") {
		t.Errorf("got %d bytes: %s", len(got), got)
	}
}
