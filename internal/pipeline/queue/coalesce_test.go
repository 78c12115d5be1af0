package queue

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/pipeline/chain"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

var widgets = &event.Resource{Cluster: "test"}

func newObject(t testing.TB, name, uid string, version int, more string) *event.Object {
	t.Helper()
	o, err := event.ParseObject(widgets, fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Widget","metadata":{"namespace":"default","name":%q,"uid":%q,"resourceVersion":"%d"}%s}`, name, uid, version, more))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// newDelta returns the delta from the previous version to the given one.
func newDelta(t testing.TB, op event.Op, name, uid string, version int) *event.Delta {
	t.Helper()
	d := &event.Delta{Source: "widgets", Op: op, Seen: time.Unix(int64(version), 0)}
	if op != event.Added && op != event.Sync {
		d.Old = newObject(t, name, uid, version-1, "")
	}
	if Ends(op) {
		d.Old = newObject(t, name, uid, version, "")
	} else {
		d.New = newObject(t, name, uid, version, "")
	}
	return d
}

// show formats a delta as op uid old→new.
func show(d *event.Delta) string {
	version := func(o *event.Object) string {
		if o == nil {
			return ""
		}
		return o.ResourceVersion()
	}
	return fmt.Sprintf("%s %s %s→%s", d.Op, d.Object().UID(), version(d.Old), version(d.New))
}

func TestFoldEveryPair(t *testing.T) {
	// a is at version 10, b at 20. For the same object, and for two that had one name.
	same := map[event.Op][6]string{
		event.Added:      {"", "added u →20", "added u →20", "nothing", "nothing", "added u →20"},
		event.Updated:    {"", "updated u 9→20", "updated u 9→20", "deleted u 20→", "deselected u 20→", "updated u 9→20"},
		event.Deleted:    {"", "both", "both", "deleted u 20→", "deleted u 10→", "both"},
		event.Deselected: {"", "both", "both", "deleted u 20→", "deselected u 20→", "both"},
		event.Sync:       {"", "added u →20", "updated u 19→20", "deleted u 20→", "deselected u 20→", "sync u →20"},
	}
	others := map[event.Op][6]string{
		event.Added:      {"", "added v →20", "updated v 19→20", "deleted v 20→", "deselected v 20→", "sync v →20"},
		event.Updated:    {"", "added v →20", "updated v 19→20", "deleted v 20→", "deselected v 20→", "sync v →20"},
		event.Deleted:    {"", "both", "both", "both", "both", "both"},
		event.Deselected: {"", "both", "both", "both", "both", "both"},
		event.Sync:       {"", "added v →20", "updated v 19→20", "deleted v 20→", "deselected v 20→", "sync v →20"},
	}
	for uid, table := range map[string]map[event.Op][6]string{"u": same, "v": others} {
		for _, a := range event.SourceOps() {
			for _, b := range event.SourceOps() {
				d, kept := coalesce(newDelta(t, a, "x", "u", 10), newDelta(t, b, "x", uid, 20))
				got := "both"
				switch kept {
				case keepNone:
					got = "nothing"
				case keepOne:
					got = show(d)
				case keepBoth:
				}
				if want := table[a][b]; got != want {
					t.Errorf("%s u + %s %s = %s, want %s", a, b, uid, got, want)
				}
			}
		}
	}
}

// TestFoldSelective: for a route with a selector the end of an object must be delivered if an
// earlier end may have been missed.
func TestFoldSelective(t *testing.T) {
	added, updated := newDelta(t, event.Added, "x", "u", 10), newDelta(t, event.Updated, "x", "u", 15)
	transit.Of(added).Selective = true
	for _, first := range [][]*event.Delta{{added}, {added, updated}} {
		for _, op := range []event.Op{event.Deleted, event.Deselected} {
			a, end := first[0], newDelta(t, op, "x", "u", 20)
			for _, b := range first[1:] {
				a, _ = coalesce(a, b)
			}
			if d, kept := coalesce(a, end); kept != keepOne || d != end {
				t.Errorf("%s + %s after %d = %v, %v", show(a), show(end), len(first), d, kept)
			}
		}
	}
}

// TestFoldKeepsTheGate: the net change waits for the identity of its object if one of the two
// deltas does.
func TestFoldKeepsTheGate(t *testing.T) {
	gate := make(chan struct{})
	for i := range 2 {
		pair := []*event.Delta{newDelta(t, event.Added, "x", "u", 1), newDelta(t, event.Updated, "x", "u", 2)}
		transit.Of(pair[i]).Durable = gate
		if d, _ := coalesce(pair[0], pair[1]); transit.Of(d).Durable != gate {
			t.Errorf("the gate of delta %d is lost", i)
		}
	}
}

func TestFoldFlags(t *testing.T) {
	a, b := newDelta(t, event.Added, "x", "u", 1), newDelta(t, event.Updated, "x", "u", 2)
	a.Initial, a.Redelivered, b.Stale = true, true, true
	d, _ := coalesce(a, b)
	if !d.Initial || !d.Redelivered || !d.Stale || !d.Seen.Equal(b.Seen) || d.Old != nil {
		t.Errorf("got %+v", d)
	}
	if d, _ = coalesce(b, newDelta(t, event.Updated, "x", "u", 3)); d.Initial {
		t.Error("an update is not initial")
	}
	if a.Op != event.Added || b.Old == nil || a.New.ResourceVersion() != "1" {
		t.Error("the deltas are shared and must not change")
	}
}

// TestFoldIsBounded: for any deltas of a name, coalescing leaves at most one end of each
// incarnation and the net change after them, and the last of these results in the same state.
func TestFoldIsBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var q Queue
		last, undone := (*event.Delta)(nil), false
		incarnations := 0
		for version := range rapid.IntRange(1, 12).Draw(rt, "deltas") {
			op := rapid.SampledFrom(event.SourceOps()).Draw(rt, "op")
			uid := rapid.SampledFrom([]string{"u", "v"}).Draw(rt, "uid")
			if last == nil || last.Object().UID() != uid {
				incarnations++
			}
			last = newDelta(t, op, "x", uid, version+2)
			before := q.Len()
			e := add(&q, last, ObjectKey(last))
			coalesced, _ := q.Coalesce(e)
			if before+1 != q.Len()+coalesced {
				rt.Fatalf("%d pending, one added, %d coalesced: %d pending", before, coalesced, q.Len())
			}
			if undone = q.Len() == 0; q.Len() > incarnations+1 {
				rt.Fatalf("%d deltas are left", q.Len())
			}
		}
		tail := q.Head.ages[Waiting].tail
		switch {
		case Ends(last.Op) && (tail == nil || Ends(tail.Delta.Op)):
		case !Ends(last.Op) && tail != nil && tail.Delta.New == last.New:
		default:
			rt.Fatalf("after %s: %v left, undone: %v", show(last), tail, undone)
		}
	})
}

func TestIdentityOnly(t *testing.T) {
	big := `,"spec":{"text":"` + strings.Repeat("x", 2*smallDelete) + `"}`
	d := &event.Delta{Source: "widgets", Op: event.Deleted, Old: newObject(t, `we"ird`, "u", 7, big), Stale: true}
	got := IdentityOnly(d)
	if o := got.Old; got == d || len(o.JSON()) > smallDelete || !o.Same(d.Old) || o.Resource() != widgets || !got.Stale {
		t.Errorf("got %s", o.JSON())
	}
	if o := got.Old.Raw(); o.Get("kind").Str() != "Widget" || o.Get("apiVersion").Str() != "v1" {
		t.Errorf("got %s", o)
	}
	small := newDelta(t, event.Deleted, "x", "u", 7)
	live := &event.Delta{Source: "widgets", Op: event.Updated, New: d.Old}
	if IdentityOnly(small) != small || IdentityOnly(live) != live {
		t.Error("only large deletes shrink")
	}
}

// TestFoldEdges: for any edges of a condition, delivered or pending, coalescing leaves alternating
// entered and left, at most one of each for each time that it held, and none of them alone.
func TestFoldEdges(t *testing.T) {
	// Guarantee: conditions-alternate
	rapid.Check(t, func(rt *rapid.T) {
		var q Queue
		// reported: entered is delivered, and left is pending
		version, holds, repeat := 0, rapid.Bool().Draw(rt, "reported"), 0
		first := holds
		edge := func(op event.Op) {
			d := newDelta(t, event.Updated, "x", "u", 100+version)
			d.Op, d.Began, d.Repeat = op, strconv.Itoa(version), repeat
			e := add(&q, d, ObjectKey(d))
			q.Coalesce(e)
		}
		for range rapid.IntRange(1, 12).Draw(rt, "edges") {
			switch {
			case !holds:
				version, holds, repeat = version+1, true, 0
				edge(event.Entered)
			case rapid.Bool().Draw(rt, "remind"):
				repeat++
				edge(event.Entered)
			default:
				holds, repeat = false, 0
				edge(event.Left)
			}
		}
		reported := first
		n := 0
		for e := q.Head.ages[Waiting].head; e != nil; e = e.links[byAge].next {
			n++
			entered := e.Delta.Op == event.Entered
			if entered && reported && e.Delta.Repeat == 0 || !entered && !reported {
				rt.Fatalf("%s after reported %v", show(e.Delta), reported)
			}
			reported = entered
		}
		if reported != holds || n > 3 {
			rt.Fatalf("%d are left, which tell that it holds: %v, and it is %v", n, reported, holds)
		}
	})
}

// An event counts as memory. A delta from an upstream route is not reduced to an identity, because
// it is not coalesced.
func TestFedSize(t *testing.T) {
	o, err := event.ParseObject(&event.Resource{}, `{"metadata":{"name":"x"},"x":"`+strings.Repeat("x", 1000)+`"}`)
	if err != nil {
		t.Fatal(err)
	}
	d := &event.Delta{Source: "s", Op: event.Deleted, Old: o}
	fed := chain.Delta(d, &event.Event{Data: make([]byte, 5000)})
	if of, without := (&Entry{Delta: fed}).size(), (&Entry{Delta: d}).size(); of-without != 5000 {
		t.Errorf("%d and %d bytes", of, without)
	}
	if IdentityOnly(d) == d || IdentityOnly(fed) != fed {
		t.Error("what is fed is cut down, or what is not is not")
	}
}
