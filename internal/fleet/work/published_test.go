package work_test

import (
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
)

// A new leader begins with an older checkpoint than the leader before: the events that are in the
// stream already are not stored again, whether the workers have handled them or not. A redelivered
// dead letter is.
func TestPublishedBefore(t *testing.T) {
	// Guarantee: workers-once
	conn := connect(t, embedded.Start(t, nil).Addr().String())
	route := work.Route{ID: "r", Hash: "h", Partitions: 1}
	var want []string
	var all [][]event.Event
	first := leader(t, conn, "a").Sink(route)
	for n := range 6 {
		all = append(all, events(t, "r", n, "x", "y"))
		want = append(want, fmt.Sprintf("r/1/0 x@%d", n), fmt.Sprintf("r/1/0 y@%d", n))
		if n < 4 {
			write(t, first, all[n])
		}
	}
	for holder := range 3 { // the second one ends before it publishes anything
		o := leader(t, conn, fmt.Sprint("later", holder))
		if holder == 1 {
			o.Use(nil)
			continue
		}
		s := o.Sink(route)
		for n := 2; n < 6; n++ {
			write(t, s, all[n])
		}
	}
	expect(t, conn, want...)

	again := events(t, "r", 5, "x")
	again[0].Of.Redelivered = true
	write(t, leader(t, conn, "last").Sink(route), again)
	expect(t, conn, append(want, "r/1/0 x@5")...)
}

// A new leader reads the lists of all batches.
func TestPublishedLists(t *testing.T) {
	conn := connect(t, embedded.Start(t, nil).Addr().String())
	route := work.Route{ID: "r", Hash: "h", Partitions: 1}
	s := leader(t, conn, "a").Sink(route)
	const batches = 60
	for n := range batches {
		write(t, s, events(t, "r", n, "x"))
	}
	next := leader(t, conn, "b").Sink(route)
	for n := range batches {
		write(t, next, events(t, "r", n, "x"))
	}
	if got := stored(t, conn); len(got) != batches {
		t.Errorf("%d messages are stored", len(got))
	}
}
