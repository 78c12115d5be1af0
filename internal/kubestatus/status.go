package kubestatus

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltarouter/deltarouter/internal/printable"
)

// The types of conditions.
const (
	accepted = "Accepted"
	ready    = "Ready"
	degraded = "Degraded"
)

// The reasons of conditions.
const (
	reasonValid       = "Valid"
	reasonInvalid     = "Invalid"
	reasonRunning     = "Running"
	reasonFormer      = "FormerVersionRuns"
	reasonNotAccepted = "NotAccepted"
	reasonPaused      = "Paused"
	reasonNotSynced   = "SourceNotSynced"
	reasonHealthy     = "Healthy"
	reasonSink        = "SinkUnavailable"
	reasonLetters     = "DeadLetters"
	reasonDeferred    = "FiltersDeferred"
)

// maxMessage bounds the message of a condition, in bytes.
const maxMessage = 4096

// State is the state of a route at the router, without content of other objects.
type State struct {
	Generation  int64  // the generation that the router has compiled
	Problem     string // the first mistake; empty: there is none
	Runs        bool   // a route runs: of this generation, or without one of a former
	Paused      bool
	NotSynced   string // a source that has no objects yet; empty: there is none
	Unavailable string // a sink that is unavailable; empty: there is none
	DeadLetters bool   // the route has dead letters
	Deferred    bool   // its filter was deferred in the last minute
	// the counts of its deltas, with Since to the second; nil: there are none
	Deltas *Deltas
}

// conditions returns the conditions of a state. lastTransitionTime is not set.
func (s *State) conditions() []metav1.Condition {
	of := func(kind string, holds bool, reason, message string) metav1.Condition {
		status := metav1.ConditionFalse
		if holds {
			status = metav1.ConditionTrue
		}
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: printable.Text(message, maxMessage), ObservedGeneration: s.Generation}
	}
	all := []metav1.Condition{of(accepted, true, reasonValid, "The spec has no mistake.")}
	if s.Problem != "" {
		all[0] = of(accepted, false, reasonInvalid, s.Problem)
	}
	switch {
	case !s.Runs:
		all = append(all, of(ready, false, reasonNotAccepted, "The route does not run, because its spec has a mistake: see the condition Accepted."))
	case s.Paused:
		all = append(all, of(ready, false, reasonPaused, "The route is paused, and its deltas wait: router status shows the reason, and router resume continues it."))
	case s.NotSynced != "":
		all = append(all, of(ready, false, reasonNotSynced, "The source "+s.NotSynced+" does not have its objects yet: router status shows the reason."))
	case s.Problem != "":
		all = append(all, of(ready, true, reasonFormer, "The former version of the route runs, because the present one has a mistake: see the condition Accepted."))
	default:
		all = append(all, of(ready, true, reasonRunning, "The route gets deltas and delivers them."))
	}
	switch {
	case s.Runs && s.Paused:
		return append(all, of(degraded, true, reasonPaused, "The route is paused."))
	case s.Runs && s.Unavailable != "":
		return append(all, of(degraded, true, reasonSink, "The sink "+s.Unavailable+" is unavailable, and events for it wait: router status shows the reason."))
	case s.Runs && s.DeadLetters:
		return append(all, of(degraded, true, reasonLetters, "Deltas of the route could not be delivered: router dlq list shows them."))
	case s.Runs && s.Deferred:
		return append(all, of(degraded, true, reasonDeferred, "The filters and keys of the namespace's routes take more CPU than the router may spend on them before other routes, so deliveries are late."))
	}
	return append(all, of(degraded, false, reasonHealthy, "Deliveries do not fail."))
}

// statusOf returns the status for a state, with the times of the former status. changed is false if
// both are the same, except for the counts.
func statusOf(s *State, former *Status, now metav1.Time) (status Status, changed bool) {
	status = Status{ObservedGeneration: s.Generation, Conditions: s.conditions(), Deltas: s.Deltas}
	changed = former.ObservedGeneration != s.Generation || len(former.Conditions) != len(status.Conditions)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		was := former.condition(c.Type)
		c.LastTransitionTime = was.LastTransitionTime
		if was.Status != c.Status {
			c.LastTransitionTime = now
		}
		if was.LastTransitionTime = c.LastTransitionTime; was != *c {
			changed = true
		}
	}
	return status, changed
}
