package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// TestConditionFailsOnce: a condition that fails on an object causes one dead letter for each
// change of the object, regardless of rescans and restarts; and one more if the condition changes.
func TestConditionFailsOnce(t *testing.T) {
	// Guarantee: condition-errors
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		when := func(version string) spec.Settings {
			return spec.Settings{Name: "r", Sources: []string{"pods"}, Ops: edges, Handler: describingHandler, Sinks: to(s), Existing: true, When: spec.When{
				Version: version, Resource: resourceOf, Filter: filters.Func(func(_ context.Context, d *event.Delta) (bool, error) {
					if d.Key().Name == "bad" && d.New.ResourceVersion() != "9" {
						return false, errors.New("2:1: no timestamp")
					}
					return isOn(d.New), nil
				}),
			}}
		}
		bad := conditionDelta(t, event.Added, "bad", 1, true)
		looks := func(b *harness, want ...string) {
			t.Helper()
			for range 3 {
				roundOf(t, b, bad.New)
				pass(time.Minute)
				d.cut(b)
			}
			pass(time.Second)
			if got := b.letters.got(); !slices.Equal(got, want) {
				t.Errorf("dead letters: %q, want %q", got, want)
			}
		}
		runOnce(t, d, when("1"), func(b *harness) {
			b.admit(bad)
			looks(b, "bad@1 ")
			if text := b.letters.all[0].Error; !strings.HasPrefix(text, "when: ") {
				t.Errorf("the dead letter says %q", text)
			}
			if page, _, _ := b.Active("r", pipeline.Holding{}, 10); len(page) > 0 {
				t.Errorf("it holds for %v", page)
			}
		})
		runOnce(t, d, when("1"), func(b *harness) {
			looks(b)
			bad = conditionDelta(t, event.Updated, "bad", 2, true)
			b.admit(bad)
			looks(b, "bad@2 ")
		})
		runOnce(t, d, when("2"), func(b *harness) {
			looks(b, "bad@2 ")
			bad = conditionDelta(t, event.Updated, "bad", 9, true)
			b.admit(bad)
			looks(b, "bad@2 ")
			expectData(t, s, "entered bad@9")
			b.admit(conditionDelta(t, event.Updated, "bad", 10, true))
			pass(time.Second)
			b.admit(conditionDelta(t, event.Deleted, "bad", 10, true))
			pass(time.Second)
			d.cut(b)
			pass(time.Second)
			expectData(t, s, "entered bad@9", "left bad@10")
		})
	})
}

// roundOf rescans all objects.
func roundOf(t *testing.T, b *harness, objects ...*event.Object) {
	t.Helper()
	rescan, err := b.Rescan("r")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		commit, err := rescan.Admit(t.Context(), &event.Delta{Source: "pods", Op: event.Sync, New: o, Seen: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		if commit != nil {
			commit.Commit()
		}
	}
	rescan.End(func(string) bool { return true })
}
