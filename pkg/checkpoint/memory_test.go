package checkpoint_test

import (
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
)

// TestForgetMemory: what a handler remembers outlives its configuration by a day.
func TestForgetMemory(t *testing.T) {
	db := open(t, statePath(t))
	defer db.Close()
	write(t, db, checkpoint.Cut{Memories: []checkpoint.MemoryCut{
		{Handler: "a", Put: []checkpoint.Value{{Key: "k", Value: []byte("1")}}},
		{Handler: "b", Put: []checkpoint.Value{{Key: "k", Value: []byte("2")}}},
	}})
	start := time.Unix(1e9, 0)
	there := func(handler string) bool {
		t.Helper()
		values, err := db.LoadMemory(handler)
		if err != nil {
			t.Fatal(err)
		}
		return len(values) == 1
	}
	for _, step := range []struct {
		after    time.Duration
		handlers []string
		b        bool
	}{
		{0, []string{"a"}, true},
		{checkpoint.KeepDebts - 1, []string{"a"}, true},
		{checkpoint.KeepDebts - 1, []string{"a", "b"}, true}, // it is back
		{2 * checkpoint.KeepDebts, []string{"a"}, true},
		{3 * checkpoint.KeepDebts, []string{"a"}, false},
	} {
		if err := db.Forget(checkpoint.Configured{Handlers: step.handlers}, start.Add(step.after)); err != nil {
			t.Fatal(err)
		}
		if !there("a") || there("b") != step.b {
			t.Errorf("after %v: a %v, b %v, want %v", step.after, there("a"), there("b"), step.b)
		}
	}
}
