package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// holds is delete holds with a clock, and their reports.
type holds struct {
	*rules.DeleteHolds

	t        testing.TB
	length   time.Duration
	clock    *timer.Fake
	wheel    *timer.Wheel
	saved    map[string]string
	reported []string
}

func (b *holds) start(at time.Time) {
	b.clock = timer.NewFake(at)
	b.wheel = timer.NewWheel(b.clock)
	b.DeleteHolds = rules.NewDeleteHolds(b.length, rules.HoldShare{}, b.wheel, func(a *rules.DeleteHold) {
		d := b.Fire(a, b.clock.Now())
		if d == nil {
			return
		}
		text := fmt.Sprintf("%s %s/%s since %s", b.clock.Now().Sub(start), d.Key().Name, d.Old.UID(), d.Since.Sub(start))
		if d.Late {
			text += " late"
		}
		if !d.Seen.Equal(b.clock.Now()) {
			text += fmt.Sprintf(" seen %s", d.Seen.Sub(start))
		}
		b.reported = append(b.reported, text)
	})
	for key, value := range b.saved {
		must.Succeed(b.t, b.Restore(rules.Record{Key: key, Value: []byte(value)}, b.decode, at))
	}
}

// decode returns a delta of name/uid.
func (b *holds) decode(text []byte) (*event.Delta, error) {
	name, uid, _ := strings.Cut(string(text), "/")
	return &event.Delta{Source: "pods", Op: event.Deleted, Old: object(b.t, name, uid, 1)}, nil
}

func (b *holds) save() {
	encode := func(d *event.Delta) []byte { return []byte(d.Key().Name + "/" + d.Old.UID()) }
	for _, r := range b.Dirty(b.clock.Now(), encode) {
		if _, known := b.saved[r.Key]; r.Value == nil && !known {
			b.t.Errorf("%q is gone, and was not handed over", r.Key)
		}
		if delete(b.saved, r.Key); r.Value != nil {
			b.saved[r.Key] = string(r.Value)
		}
	}
}

// Each transition of a delete hold: gone and back have a name and a key.
func TestDeleteHolds(t *testing.T) {
	tests := map[string]struct {
		// gone or back with a name and a key, a duration to pass or to configure, save, or restart
		// with the jump of the wall clock
		steps string
		want  []string
		saved int
	}{
		"lasts":                      {steps: "gone a -, 59s, 1s, 1h", want: []string{"1m0s a/1 since 0s"}},
		"comes back":                 {steps: "gone a -, 59s, back a -, 1h"},
		"another comes back":         {steps: "gone a -, 59s, back b -, 1h", want: []string{"1m0s a/1 since 0s"}},
		"its key comes back":         {steps: "gone a k, 59s, back b k, 1h"},
		"another key comes back":     {steps: "gone a k, 59s, back b l, 1h", want: []string{"1m0s a/1 since 0s"}},
		"its name, with another key": {steps: "gone a k, 59s, back a l, 1h"},
		"twice":                      {steps: "gone a -, 30s, gone a - 2, 1h", want: []string{"1m0s a/1 since 0s", "1m30s a/2 since 30s"}},
		"the same twice":             {steps: "gone a -, 30s, gone a -, 1h", want: []string{"1m30s a/1 since 30s"}},
		"both come back":             {steps: "gone a -, 30s, gone a - 2, back a -, 1h"},
		"restart":                    {steps: "gone a -, 30s, save, restart 10s, 19s, 1s", want: []string{"1m0s a/1 since 0s"}, saved: 1},
		"restart, comes back":        {steps: "gone a k, save, restart 10s, back b k, 1h, save"},
		"late":                       {steps: "gone a -, save, restart 10m, 0s", want: []string{"10m0s a/1 since 0s late seen 1m0s"}, saved: 1},
		"reported and saved":         {steps: "gone a -, save, 1m, save, restart 1h, 1h", want: []string{"1m0s a/1 since 0s"}},
		"comes and goes unsaved":     {steps: "gone a -, back a -, save"},
		"the clock goes back": {steps: "gone a -, 30s, save, restart -24h, 59s, save, restart 0s, 1s", want: []string{
			"-23h58m30s a/1 since -23h59m30s",
		}, saved: 1},
		"longer":         {steps: "gone a -, 30s, for 2m, 1h", want: []string{"2m0s a/1 since 0s"}},
		"shorter":        {steps: "gone a -, 30s, for 10s, 0s", want: []string{"30s a/1 since 0s"}},
		"shorter, ahead": {steps: "gone a -, 10s, for 30s, 1h", want: []string{"30s a/1 since 0s"}},
		"abandoned":      {steps: "gone a -, save, abandon, save, 1h"},
		"closed":         {steps: "gone a -, save, close, save, 1h", saved: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := &holds{t: t, length: time.Minute, saved: map[string]string{}}
			b.start(start)
			for step := range strings.SplitSeq(test.steps, ", ") {
				b.step(append(strings.Fields(step), "1"))
			}
			if !slices.Equal(b.reported, test.want) || len(b.saved) != test.saved || b.Len() != b.wheel.Len() {
				t.Errorf("reported %q, want %q; %d are saved, %d held, %d timers set", b.reported, test.want, len(b.saved), b.Len(), b.wheel.Len())
			}
		})
	}
}

func (b *holds) step(words []string) {
	length, err := time.ParseDuration(words[0])
	key := ""
	if len(words) > 2 && words[2] != "-" {
		key = words[2]
	}
	switch {
	case err == nil:
		b.clock.Advance(b.clock.Now().Add(length))
	case words[0] == "gone":
		b.Hold(&event.Delta{Source: "pods", Op: event.Deleted, Old: object(b.t, words[1], words[3], 1)}, key, b.clock.Now())
	case words[0] == "back":
		b.Cancel("pods", event.Key{Name: words[1]}, key)
	case words[0] == "save":
		b.save()
	case words[0] == "restart":
		length, _ = time.ParseDuration(words[1])
		b.start(b.clock.Now().Add(length))
	case words[0] == "for":
		b.length, _ = time.ParseDuration(words[1])
		b.Configure(b.length, b.clock.Now())
	case words[0] == "abandon":
		b.Abandon()
	case words[0] == "forget":
		clear(b.saved)
	case words[0] == "close":
		b.Close()
	}
}

// An expired hold fires, unless it was cancelled or extended in the meantime, and also if it is
// processed late.
func TestDeleteHoldsFire(t *testing.T) {
	var due []*rules.DeleteHold
	clock := timer.NewFake(start)
	wheel := timer.NewWheel(clock)
	s := rules.NewDeleteHolds(time.Minute, rules.HoldShare{}, wheel, func(a *rules.DeleteHold) { due = append(due, a) })
	for _, name := range []string{"a", "b", "c"} {
		s.Hold(&event.Delta{Source: "pods", Op: event.Deleted, Old: object(t, name, "1", 1)}, "", start)
	}
	clock.Advance(start.Add(time.Minute))
	s.Cancel("pods", event.Key{Name: "a"}, "")
	reported := 0
	for _, a := range due {
		if a.Delta().Key().Name == "b" {
			s.Forget(a)
		}
		if d := s.Fire(a, clock.Now()); d != nil {
			reported++
		}
		if d := s.Fire(a, clock.Now()); d != nil {
			t.Errorf("%s is reported twice", d)
		}
	}
	if len(due) != 3 || reported != 1 {
		t.Errorf("%d are due, %d reported", len(due), reported)
	}
	s.Hold(&event.Delta{Source: "pods", Op: event.Deleted, Old: object(t, "d", "1", 1)}, "", clock.Now())
	due = nil
	clock.Advance(start.Add(2 * time.Minute))
	s.Configure(time.Hour, clock.Now())
	if d := s.Fire(due[0], clock.Now()); d != nil {
		t.Errorf("%s is reported before its time", d)
	}
}
