package main

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestLedger: what was never told is lost, what was told before is told again, and only the first
// time counts for the latency.
func TestLedger(t *testing.T) {
	l, began := newLedger(), time.Now()
	var changes []change
	for range 4 {
		c := l.next("a")
		l.records[c].sent = began
		changes = append(changes, c)
	}
	removed := l.deletes("b")
	arrive := func(after time.Duration, statements ...told) {
		for _, s := range statements {
			l.arrived(s, began.Add(after))
		}
	}
	arrive(10*time.Millisecond, told{"a", changes[0].stamp, false})
	arrive(30*time.Millisecond, told{"a", changes[1].stamp, false}, told{"a", changes[0].stamp, false})
	arrive(50*time.Millisecond, told{"a", changes[3].stamp, false}, told{"a", 99, false}, told{"c", changes[0].stamp, false})
	if got := l.lost(changes); got != 1 {
		t.Errorf("%d changes are lost, want 1", got)
	}
	if l.lost([]change{removed}) != 1 {
		t.Error("a delete that was not told is not lost")
	}
	arrive(50*time.Millisecond, told{object: "b", stamp: -1, deleted: true})
	if l.lost([]change{removed}) != 0 {
		t.Error("a delete that was told is lost")
	}
	if got := l.repeats(); got != 1 {
		t.Errorf("%d were told again, want 1", got)
	}
	if got := l.statements(); got != 5 || l.unknown != 2 {
		t.Errorf("%d statements are known and %d are not, want 5 and 2", got, l.unknown)
	}
	if p50, p99 := l.latency(changes); p50 != 30*time.Millisecond || p99 != 30*time.Millisecond {
		t.Errorf("got p50 %v and p99 %v of three", p50, p99)
	}
	if p50, _ := l.latency(nil); p50 != 0 {
		t.Errorf("got p50 %v of nothing", p50)
	}
}

// TestAwait: waiting ends with the last change, or after the patience.
func TestAwait(t *testing.T) {
	l := newLedger()
	c := l.next("a")
	if err := l.await(t.Context(), time.Nanosecond, []change{c}); err != nil || l.lost([]change{c}) != 1 {
		t.Errorf("got error %v", err)
	}
	go l.arrived(told{"a", c.stamp, false}, time.Now())
	if err := l.await(t.Context(), time.Minute, []change{c}); err != nil || l.lost([]change{c}) != 0 {
		t.Errorf("got error %v", err)
	}
}

// TestReceiver: what is posted while the receiver is down does not count, and a POST that cannot be
// read makes the figures wrong.
func TestReceiver(t *testing.T) {
	p := metacontroller()
	r := startReceiver(&p)
	t.Cleanup(r.http.Close)
	first := r.next("a")
	post := func(body string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.http.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := r.http.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	const body = `{"object":{"metadata":{"name":"a"},"data":{"stamp":"1"}}}`
	r.down.Store(true)
	if status := post(body); status != http.StatusServiceUnavailable || r.lost([]change{first}) != 1 {
		t.Errorf("down: got status %d", status)
	}
	r.down.Store(false)
	if status := post(body); status != http.StatusOK || r.lost([]change{first}) != 0 || r.problem() != nil {
		t.Errorf("up: got status %d, problem %v", status, r.problem())
	}
	post("no JSON")
	if r.problem() == nil {
		t.Error("a POST that cannot be read is no problem")
	}
}
