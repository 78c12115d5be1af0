// Package inorder contains the loops of sinks that keep the order of the events of each key: after
// an event that was not delivered and may be retried, no further event of its key is sent.
package inorder

import (
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Each delivers events one after the other, and returns the result of Write in [plugins.Sink].
// After an error that makes the sink unavailable, or pauses the route, it delivers no further
// event; after an event that is postponed, no further event of its key.
func Each(events []event.Event, deliver func(e *event.Event) error) []error {
	var errs []error
	var postponed map[string]error // by key
	for i := range events {
		err := postponed[events[i].OrderKey()]
		if err == nil {
			err = deliver(&events[i])
		}
		if err == nil {
			continue
		}
		if errs == nil {
			errs = make([]error, len(events))
		}
		errs[i] = err
		switch plugins.ClassOf(err) {
		case plugins.Rejected:
		case plugins.Postponed:
			if postponed == nil {
				postponed = map[string]error{}
			}
			postponed[events[i].OrderKey()] = err
		default:
			fill(errs[i+1:], err)
			return errs
		}
	}
	return errs
}

// Flights delivers events of different keys together, and returns the result of Write in
// [plugins.Sink]. send delivers the events with the given indexes, sets the errors of those that
// failed, and returns when all of them are done. The error that it returns applies to all later
// events.
func Flights(events []event.Event, send func(flight []int, errs []error) error) []error {
	errs := make([]error, len(events))
	failed := map[string]error{} // by key: not rejected, so later events must not overtake it
	keys := map[string]bool{}    // of the flight
	var flight []int
	land := func() error {
		err := send(flight, errs)
		for _, i := range flight {
			if errs[i] != nil && plugins.ClassOf(errs[i]) != plugins.Rejected {
				failed[events[i].OrderKey()] = errs[i]
			}
		}
		flight = flight[:0]
		clear(keys)
		return err
	}
	for i := range events {
		key := events[i].OrderKey()
		if keys[key] {
			if err := land(); err != nil {
				fill(errs[i:], err)
				return errs
			}
		}
		if errs[i] = failed[key]; errs[i] == nil {
			keys[key] = true
			flight = append(flight, i)
		}
	}
	if len(flight) > 0 {
		_ = land()
	}
	for _, err := range errs {
		if err != nil {
			return errs
		}
	}
	return nil
}

func fill(errs []error, err error) {
	for i := range errs {
		errs[i] = err
	}
}
