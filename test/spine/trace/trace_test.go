package trace

import (
	"encoding/json"
	"testing"

	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func outer() {
	defer Enter(1)()
	for range loop {
		inner()
	}
}

// loop is an iterator: it calls the body of a loop over it.
func loop(yield func() bool) {
	defer Enter(3)()
	yield()
}

func inner() {
	defer Enter(2)()
	Lock(7)
}

// TestWindow shows the records of calls in the window, and that there are none outside of it.
func TestWindow(t *testing.T) {
	outer()
	leaveBefore := Enter(8)
	ask(t, Begin)
	leaveBefore()
	outer()
	if n := ask(t, Count); n != "7" {
		t.Errorf("%s records, want 7", n)
	}
	var got []Record
	must.Succeed(t, json.Unmarshal([]byte(ask(t, End)), &got))
	outer()
	want := []Record{{Kind: Entered, ID: 1}, {Kind: Entered, ID: 3}, {Kind: Entered, ID: 2}, {Kind: Locking, ID: 7}, {Kind: Left, ID: 2}, {Kind: Left, ID: 3}, {Kind: Left, ID: 1}}
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i, r := range got {
		if r.Kind != want[i].Kind || r.ID != want[i].ID || r.Goroutine != current() {
			t.Errorf("record %d is %v, want %v", i, r, want[i])
		}
		if (len(r.Running) > 0) != (i == 0) {
			t.Errorf("record %d has the running functions %v", i, r.Running)
		}
	}
	// The loop's body is part of outer, although loop calls it.
	if got[1].Caller.Line+1 != got[2].Caller.Line || got[1].Caller.File != got[2].Caller.File {
		t.Errorf("loop is called from %v, and inner from %v", got[1].Caller, got[2].Caller)
	}
}

// TestSecondWindow shows that the end of a call in a former window is no record.
func TestSecondWindow(t *testing.T) {
	ask(t, Begin)
	leave := Enter(1)
	ask(t, Begin)
	leave()
	if got := ask(t, End); got != "null" {
		t.Errorf("got %s", got)
	}
}

func TestUnknown(t *testing.T) {
	if _, known := do("stop"); known {
		t.Error("an unknown request has an answer")
	}
}

func ask(t *testing.T, request string) string {
	t.Helper()
	answer, known := do(request)
	if !known {
		t.Fatalf("%s is unknown", request)
	}
	return string(answer)
}
