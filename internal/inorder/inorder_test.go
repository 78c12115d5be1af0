package inorder_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/inorder"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

var (
	errDown     = errors.New("down")
	errRejected = plugins.Reject(errors.New("rejected"))
	errPostpone = plugins.Postpone(errors.New("postponed"), time.Second)
	errPaused   = plugins.Pause(errors.New("paused"))
	errOver     = errors.New("over")
)

// draw makes events of a few keys, and the result of sending each.
func draw(t *rapid.T, outcomes ...error) (events []event.Event, fate []error) {
	for range rapid.IntRange(0, 12).Draw(t, "events") {
		events = append(events, event.Event{Key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")})
		fate = append(fate, rapid.SampledFrom(append(outcomes, nil, nil, nil)).Draw(t, "fate"))
	}
	return events, fate
}

func check(t *rapid.T, got, want []error) {
	t.Helper()
	some := false
	for i, err := range want {
		some = some || err != nil
		if got != nil && !errors.Is(got[i], err) || err == nil && got != nil && got[i] != nil {
			t.Fatalf("event %d: %v, want %v", i, got[i], err)
		}
	}
	if some != (got != nil) || got != nil && len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// TestEach shows that each event is sent in its turn, unless an earlier event of its key was
// postponed, or any earlier event made the sink unavailable.
func TestEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events, fate := draw(t, errDown, errRejected, errPostpone, errPaused)
		want, sent := make([]error, len(events)), []int(nil)
		blocked, over := map[string]error{}, error(nil)
		for i := range events {
			key := events[i].Key
			if want[i] = over; over != nil {
				continue
			}
			if want[i] = blocked[key]; want[i] != nil {
				continue
			}
			sent = append(sent, i)
			switch want[i] = fate[i]; {
			case errors.Is(fate[i], errPostpone):
				blocked[key] = fate[i]
			case errors.Is(fate[i], errDown), errors.Is(fate[i], errPaused):
				over = fate[i]
			}
		}
		got := inorder.Each(events, func(e *event.Event) error {
			if len(sent) == 0 || &events[sent[0]] != e {
				t.Fatalf("an event was sent that is not the next of %v", sent)
			}
			i := sent[0]
			sent = sent[1:]
			return fate[i]
		})
		if len(sent) > 0 {
			t.Fatalf("%v were not sent", sent)
		}
		check(t, got, want)
	})
}

// TestFlights shows that the events of a flight have different keys, and that the events of each
// key are sent in order. After an event that failed and was not rejected, no event of its key is
// sent. After a flight with an error, no event is sent.
func TestFlights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events, fate := draw(t, errDown, errRejected)
		// the flight with this event returns an error
		overAt := rapid.IntRange(0, 20).Draw(t, "over at")
		want, last, blocked, over := make([]error, len(events)), -1, map[string]error{}, false
		got := inorder.Flights(events, func(flight []int, errs []error) error {
			if over || len(flight) == 0 {
				t.Fatal("nothing is to be sent")
			}
			keys := map[string]bool{}
			for _, i := range flight {
				key := events[i].Key
				if i <= last || keys[key] || blocked[key] != nil {
					t.Fatalf("%d of key %q is sent after %d, blocked: %v", i, key, last, blocked[key])
				}
				for k := last + 1; k < i; k++ { // left out
					want[k] = blocked[events[k].Key]
				}
				last, keys[key] = i, true
				want[i], errs[i] = fate[i], fate[i]
				over = over || i >= overAt
			}
			for _, i := range flight {
				if errors.Is(fate[i], errDown) {
					blocked[events[i].Key] = fate[i]
				}
			}
			if over {
				return errOver
			}
			return nil
		})
		for k := last + 1; k < len(events); k++ {
			if want[k] = blocked[events[k].Key]; want[k] == nil {
				want[k] = errOver
			}
			if over && got != nil && errors.Is(got[k], errOver) {
				want[k] = errOver
			}
			if errors.Is(want[k], errOver) && !over {
				t.Fatalf("event %d was not sent", k)
			}
		}
		check(t, got, want)
	})
}
